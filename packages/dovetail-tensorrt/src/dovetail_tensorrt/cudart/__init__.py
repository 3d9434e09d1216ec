"""Stand-ins for the few CUDA calls that scripts make around inference, over memory of the host.

They take the place of ``cuda.cudart``, ``cuda.bindings.runtime`` and ``pycuda`` where these cannot be imported or no
device is there. A device pointer is then a host pointer, every stream runs at once, and a plugin can be stepped through
in a debugger. Nothing here launches kernels.
"""

from __future__ import annotations

from typing import Final

from dovetail_tensorrt.cudart.devices import can_import, has_device
from dovetail_tensorrt.modules import ModuleFinder

__all__ = ["find_aliases", "find_patches", "has_device"]

_CUDA: Final = {
    "cuda.cudart": "dovetail_tensorrt.cudart.runtime",
    "cuda.cuda": "dovetail_tensorrt.cudart.driver",
    "cuda.nvrtc": "dovetail_tensorrt.cudart.nvrtc",
    "cuda.bindings.runtime": "dovetail_tensorrt.cudart.runtime",
    "cuda.bindings.driver": "dovetail_tensorrt.cudart.driver",
    "cuda.bindings.nvrtc": "dovetail_tensorrt.cudart.nvrtc",
}
_PYCUDA: Final = {
    "pycuda": "dovetail_tensorrt.cudart.pycuda",
    "pycuda.autoinit": "dovetail_tensorrt.cudart.pycuda_autoinit",
    "pycuda.autoprimaryctx": "dovetail_tensorrt.cudart.pycuda_autoinit",
    "pycuda.driver": "dovetail_tensorrt.cudart.pycuda_driver",
    "pycuda.gpuarray": "dovetail_tensorrt.cudart.pycuda_gpuarray",
    "pycuda.tools": "dovetail_tensorrt.cudart.pycuda_tools",
}


def find_patches() -> list[ModuleFinder]:
    """What is loaded as it is and changed then."""
    if has_device():
        return []
    from dovetail_tensorrt.cudart.polygraphy import PolygraphyFinder

    return [PolygraphyFinder()]


def find_aliases() -> dict[str, str]:
    """What is stood in for on this machine: imported name -> module of ours."""
    is_there = has_device()
    aliases: dict[str, str] = {}
    if not (is_there and can_import("cuda.bindings.runtime")):
        aliases |= _CUDA
        if not can_import("cuda"):
            aliases["cuda"] = "dovetail_tensorrt.cudart.cuda"
        if not can_import("cuda.bindings"):
            aliases["cuda.bindings"] = "dovetail_tensorrt.cudart.bindings"
    if not (is_there and can_import("pycuda.driver")):
        aliases |= _PYCUDA
    return aliases
