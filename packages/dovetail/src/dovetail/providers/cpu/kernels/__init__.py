"""The NumPy reference kernels, one module a family; importing a family registers its kernels."""

from __future__ import annotations

import importlib
import pkgutil

__all__ = ["load_kernels"]


def load_kernels() -> tuple[str, ...]:
    """Import every family module, so that its kernels are in the registry, and return the names of the families.

    Modules whose name starts with an underscore are shared helpers and register nothing.
    """
    found = (info.name for info in pkgutil.iter_modules(__path__))
    families = tuple(sorted(name for name in found if not name.startswith("_")))
    for family in families:
        importlib.import_module(f"{__name__}.{family}")
    return families
