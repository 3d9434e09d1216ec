"""Putting modules in place of others: under the name that a script imports lies a module of this package."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Final

__all__ = ["ModuleTakenError", "install", "uninstall"]

_TRT: Final = "dovetail_tensorrt.trt"
_PACKAGES: Final = ("tensorrt", "tensorrt_bindings", "tensorrt_lean", "tensorrt_dispatch")
_NAMES: Final = dict.fromkeys((*_PACKAGES, *(f"{package}.{package}" for package in _PACKAGES)), _TRT)
"""What a script imports -> what it gets; submodules follow. The lean and dispatch runtimes load the same plans, and the
compiled module inside the package, ``tensorrt.tensorrt``, has all its names."""


class ModuleTakenError(ImportError):
    """Another module of the name is imported already, and objects of it may be in use."""


class _AliasLoader(importlib.abc.Loader):
    """Loads a module of ours under another name, as the same object."""

    def __init__(self, target: str) -> None:
        self._target = target

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system hands out what lies in sys.modules when this returns.
        sys.modules[module.__name__] = importlib.import_module(self._target)


class ModuleFinder(importlib.abc.MetaPathFinder):
    """Finds modules as long as it is installed."""

    def target_of(self, fullname: str) -> str | None:
        """The module that a name stands for, or None."""
        return None


class AliasFinder(ModuleFinder):
    """Finds modules under other names.

    Args:
        names: What is imported -> the module that is meant; ``tensorrt.plugin`` follows from ``tensorrt``.
    """

    def __init__(self, names: dict[str, str]) -> None:
        self.names = dict(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The specification of an alias; None for every other name."""
        meant = self.target_of(fullname)
        if meant is None or importlib.util.find_spec(meant) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, _AliasLoader(meant), is_package=True)

    def target_of(self, fullname: str) -> str | None:
        """The module that a name stands for, or None."""
        if fullname in self.names:
            return self.names[fullname]
        parent, _, child = fullname.rpartition(".")
        meant = self.target_of(parent) if parent else None
        return None if meant is None else f"{meant}.{child}"


_installed: list[ModuleFinder] = []
_undo: list[Callable[[], None]] = []
"""What takes back the changes to other modules."""


def install(*, cudart: bool = True) -> ModuleType:
    """Have ``import tensorrt`` give Dovetail's module from now on; the module comes back.

    ``ctypes`` opens libraries of TensorRT too, such as ``libnvinfer_plugin.so``, where there are none.

    Args:
        cudart: Whether ``cuda.cudart``, ``cuda.bindings.runtime``, ``pycuda`` and the library ``libcudart.so`` are
            stood in for where engines run on the host.

    Raises:
        ModuleTakenError: Another ``tensorrt`` is imported already.
    """
    if not _installed:
        _refuse_taken(_NAMES)
        _add(AliasFinder(_NAMES))
        if cudart:
            from dovetail_tensorrt.cudart import answer_for_cudart, find_aliases, find_patches

            _add(AliasFinder(find_aliases()), *find_patches())
            _undo.append(answer_for_cudart())
        from dovetail_tensorrt.libraries import answer_for_libraries

        _undo.append(answer_for_libraries())
    return importlib.import_module("tensorrt")


def _add(*finders: ModuleFinder) -> None:
    for finder in finders:
        sys.meta_path.insert(0, finder)
        _installed.append(finder)


def _refuse_taken(names: dict[str, str]) -> None:
    for name in names:
        module = sys.modules.get(name)
        if module is not None:
            place = getattr(module, "__file__", None) or "a module without a file"
            raise ModuleTakenError(
                f"install: '{name}' is imported already, from {place}\n"
                "  fix: call dovetail_tensorrt.install() before anything imports it, or run the script with "
                "`python -m dovetail_tensorrt script.py`"
            )


def uninstall() -> None:
    """Undo ``install``: later imports find what is installed under the names, if anything is."""
    for finder in _installed:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if finder.target_of(name) is not None]:
            del sys.modules[name]
    _installed.clear()
    while _undo:
        _undo.pop()()
