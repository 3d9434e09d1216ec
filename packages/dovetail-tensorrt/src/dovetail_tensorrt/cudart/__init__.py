"""Stand-ins for the few CUDA calls that scripts make around inference, over memory of the host.

They take the place of ``cuda.cudart``, ``cuda.bindings.runtime`` and ``pycuda`` where engines run on the host. A device
pointer is then a host pointer, every stream runs at once, and a plugin can be stepped through in a debugger. Nothing
here launches kernels. Where engines run on a device, scripts get the real packages, and names that newer ones dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dovetail_tensorrt.cudart.devices import DEVICE_OPTIONS, can_import, has_device, uses_device
from dovetail_tensorrt.modules import ModuleFinder

__all__ = ["DEVICE_OPTIONS", "answer_for_cudart", "find_aliases", "find_patches", "has_device", "uses_device"]

_CUDA: Final = {
    "cuda.cudart": "dovetail_tensorrt.cudart.runtime",
    "cuda.cuda": "dovetail_tensorrt.cudart.driver",
    "cuda.nvrtc": "dovetail_tensorrt.cudart.nvrtc",
    "cuda.bindings.runtime": "dovetail_tensorrt.cudart.runtime",
    "cuda.bindings.driver": "dovetail_tensorrt.cudart.driver",
    "cuda.bindings.nvrtc": "dovetail_tensorrt.cudart.nvrtc",
}
_OLD: Final = {
    "cuda.cudart": "cuda.bindings.runtime",
    "cuda.cuda": "cuda.bindings.driver",
    "cuda.nvrtc": "cuda.bindings.nvrtc",
}
"""Names of the bindings for version 12 of CUDA -> those of version 13."""
_PYCUDA: Final = {
    "pycuda": "dovetail_tensorrt.cudart.pycuda",
    "pycuda.autoinit": "dovetail_tensorrt.cudart.pycuda_autoinit",
    "pycuda.autoprimaryctx": "dovetail_tensorrt.cudart.pycuda_autoinit",
    "pycuda.driver": "dovetail_tensorrt.cudart.pycuda_driver",
    "pycuda.gpuarray": "dovetail_tensorrt.cudart.pycuda_gpuarray",
    "pycuda.tools": "dovetail_tensorrt.cudart.pycuda_tools",
}


def answer_for_cudart() -> Callable[[], None]:
    """Let ``ctypes`` open the library of the runtime where engines run on the host; what undoes it comes back."""
    if uses_device():
        return lambda: None
    from dovetail_tensorrt.cudart_library import answer_for_library

    return answer_for_library()


def find_patches() -> list[ModuleFinder]:
    """What is loaded as it is and changed then."""
    if uses_device():
        return []
    from dovetail_tensorrt.cudart.polygraphy import PolygraphyFinder

    return [PolygraphyFinder()]


def find_aliases() -> dict[str, str]:
    """What is stood in for on this machine: imported name -> module of ours."""
    if uses_device():
        return {old: new for old, new in _OLD.items() if not can_import(old)}
    aliases = {**_CUDA, **_PYCUDA}
    for name in ("cuda", "cuda.bindings"):
        if not can_import(name):
            aliases[name] = f"dovetail_tensorrt.cudart.{name.rpartition('.')[2]}"
    return aliases
