"""Kernel modules that are imported when one of their operators is first asked for.

A provider with many kernels should not import them all to run a plan that has three of them. Its modules lie in one
package, and an index says which operators each registers. The index only saves time: what it does not name is looked
for in every module, so a module that was just written works before its index does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

__all__ = ["KernelFamilies", "index_name"]


def index_name(op: str, domain: str) -> str:
    """How an index spells an operator.

    >>> index_name("Add", ""), index_name("Gelu", "com.microsoft")
    ('Add', 'com.microsoft::Gelu')
    """
    return f"{domain}::{op}" if domain else op


class KernelFamilies:
    """The modules of a package and its folders, but those with an underscore; importing one registers its kernels.

    >>> families = KernelFamilies("json", {"decoder": ["Parse"]})
    >>> families.names()
    ('decoder', 'encoder', 'scanner', 'tool')
    """

    def __init__(self, package: str, index: Mapping[str, Sequence[str]]) -> None:
        self._package = package
        self._pending: dict[str, list[str]] = {}
        for module, ops in index.items():
            for op in ops:
                self._pending.setdefault(op, []).append(module)
        self._is_complete = False

    def names(self) -> tuple[str, ...]:
        """All modules of the package, from the package itself and not from the index."""
        import pkgutil

        path = importlib.import_module(self._package).__path__
        found = [info for info in pkgutil.walk_packages(path, f"{self._package}.") if not info.ispkg]
        names = [info.name.removeprefix(f"{self._package}.") for info in found]
        return tuple(sorted(name for name in names if not name.startswith("_")))

    def import_for(self, op: str, domain: str) -> None:
        """Import the modules that the index names for an operator.

        An entry goes only when its modules are there whole: a thread that finds none may use what is registered.
        """
        name = index_name(op, domain)
        modules = self._pending.get(name)
        if modules is not None:
            for module in modules:
                importlib.import_module(f"{self._package}.{module}")
            self._pending.pop(name, None)

    def import_all(self) -> None:
        """Import every module, once."""
        if not self._is_complete:
            for module in self.names():
                importlib.import_module(f"{self._package}.{module}")
            self._pending.clear()
            self._is_complete = True
