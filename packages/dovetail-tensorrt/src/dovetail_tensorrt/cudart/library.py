"""The runtime library as ``ctypes`` gives it, over the same memory: for tools that load it themselves.

Polygraphy is such a tool. Where there is no device, its module for CUDA gets this object in place of the library.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

from dovetail_tensorrt.cudart import runtime

__all__ = ["LibraryFinder", "RuntimeLibrary"]

_MODULE: Final = "polygraphy.cuda.cuda"


class RuntimeLibrary:
    """Functions that take pointers and give error codes as numbers."""

    def cudaMalloc(self, pointer: Any, size: Any) -> int:
        """Write the address of a block through a pointer."""
        error, address = runtime.cudaMalloc(_number(size))
        pointer._obj.value = address
        return int(error)

    def cudaFree(self, pointer: Any) -> int:
        """Give a block back."""
        return int(runtime.cudaFree(_number(pointer))[0])

    def cudaMemcpy(self, target: Any, source: Any, count: Any, kind: Any) -> int:
        """Copy, within the blocks."""
        return int(runtime.cudaMemcpy(_number(target), _number(source), _number(count))[0])

    def cudaMemcpyAsync(self, target: Any, source: Any, count: Any, kind: Any, stream: Any) -> int:
        """The same."""
        return self.cudaMemcpy(target, source, count, kind)

    def cudaStreamCreate(self, pointer: Any) -> int:
        """Write a handle through a pointer; not 0, which pointers of ctypes turn into None."""
        pointer._obj.value = runtime.cudaStreamLegacy
        return 0

    def cudaStreamSynchronize(self, stream: Any) -> int:
        """Nothing to wait for."""
        return 0

    def cudaStreamDestroy(self, stream: Any) -> int:
        """Nothing to give back."""
        return 0


def _number(pointer: Any) -> int:
    return int(getattr(pointer, "value", pointer) or 0)


class LibraryFinder(importlib.abc.MetaPathFinder):
    """Has Polygraphy use ``RuntimeLibrary`` from when its module for CUDA is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own specification, with a loader that changes it afterwards."""
        if fullname != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _LibraryLoader(spec.loader)
        return spec


class _LibraryLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)

        def use_library(self: Any) -> None:
            self.handle = RuntimeLibrary()

        module.Cuda.__init__ = use_library
