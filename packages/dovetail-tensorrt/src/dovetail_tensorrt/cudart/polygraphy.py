"""Polygraphy on a machine without a CUDA device: its wrapper of the CUDA runtime works on memory of the host.

Polygraphy loads the CUDA runtime's library by itself, through one object that all of it uses. Where there is no device,
that object is replaced as soon as its module is imported.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

from dovetail_tensorrt.cudart import runtime
from dovetail_tensorrt.modules import ModuleFinder

__all__ = ["PolygraphyFinder"]

_MODULE: Final = "polygraphy.cuda.cuda"


class HostCuda:
    """The calls of Polygraphy's own wrapper, over the stand-ins of this package."""

    handle: Any = None

    def check(self, status: int) -> None:
        """Raise, in Polygraphy's way, where a call failed."""
        if status:
            from polygraphy.logger import G_LOGGER

            G_LOGGER.critical(f"CUDA Error: {int(status)} ({runtime.cudaError_t(status).name})")

    def create_stream(self) -> int:
        """A stream."""
        status, stream = runtime.cudaStreamCreate()
        self.check(status)
        return int(stream)

    def stream_synchronize(self, ptr: int) -> None:
        """Wait for a stream, which has done everything already."""
        self.check(runtime.cudaStreamSynchronize(ptr)[0])

    def destroy_stream(self, ptr: int) -> None:
        """Let go of a stream."""
        self.check(runtime.cudaStreamDestroy(ptr)[0])

    def malloc(self, nbytes: int) -> int:
        """The address of new memory."""
        status, address = runtime.cudaMalloc(nbytes)
        self.check(status)
        return int(address)

    def free(self, ptr: int) -> None:
        """Give memory back."""
        self.check(runtime.cudaFree(ptr)[0])

    def memcpy(self, dst: int, src: int, nbytes: int, kind: Any, stream_ptr: int | None = None) -> None:
        """Copy bytes, at once."""
        number = kind.value if isinstance(kind, ctypes.c_int) else kind
        self.check(runtime.cudaMemcpy(dst, src, nbytes, runtime.cudaMemcpyKind(number))[0])


class _PatchingLoader(importlib.abc.Loader):
    """Loads the module as it is, and puts the wrapper in."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module.G_CUDA = HostCuda()  # type: ignore[attr-defined]


class PolygraphyFinder(ModuleFinder):
    """Finds Polygraphy's module of CUDA calls where it is, to load it with the stand-in."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The specification of that one module."""
        if fullname != _MODULE:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others if hasattr(finder, "find_spec"))
        spec = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader)
        return spec
