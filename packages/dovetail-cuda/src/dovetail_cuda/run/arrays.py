"""Arrays in memory of a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import InputError

if TYPE_CHECKING:
    from dovetail_cuda.run.gpu import Gpu

__all__ = ["CudaArray", "import_array"]


class CudaArray:
    """Elements that lie row by row from an address on; the owner keeps the memory alive."""

    __slots__ = ("_owner", "address", "dtype", "shape")
    __array_ufunc__ = None  # NumPy cannot read it

    def __init__(self, address: int, shape: Sequence[int], dtype: Any, owner: Any = None) -> None:
        self.address = address
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self._owner = owner

    @property
    def nbytes(self) -> int:
        """How large it is, four-bit elements counted as the halves of bytes they are."""
        count = math.prod(self.shape)
        return -(-count // 2) if self.dtype.name in ("int4", "uint4", "float4_e2m1fn") else count * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3}


def import_array(value: Any, gpu: Gpu) -> CudaArray | None:
    """A caller's array without a copy; None when it is none of CUDA's, or does not lie row by row.

    One whose maker says nothing of streams, and has DLPack, where it must, is left to that.

    Raises:
        InputError: Its memory is not of this device.
    """
    if isinstance(value, CudaArray):
        return value
    interface = getattr(value, "__cuda_array_interface__", None)
    if not isinstance(interface, dict) or (interface.get("stream") is None and hasattr(value, "__dlpack_device__")):
        return None
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    address = int(interface["data"][0])
    if not _is_whole(shape, interface.get("strides"), dtype.itemsize):
        return None
    if math.prod(shape):
        _require_here(address, gpu)
    return CudaArray(address, shape, dtype, owner=value)


def _require_here(address: int, gpu: Gpu) -> None:
    """Refuse memory of the host, of another device, and of nobody: a kernel that reads it ends the context."""
    found = gpu.driver.find_device_of(address)
    if found != gpu.ordinal:
        raise InputError(
            "its memory is not of the device that the engine runs on",
            expected=f"memory of CUDA device {gpu.ordinal}",
            got=f"address {address:#x}, " + ("no memory of a device" if found is None else f"of CUDA device {found}"),
            fix="copy it there first",
        )


def _is_whole(shape: tuple[int, ...], strides: Sequence[int] | None, itemsize: int) -> bool:
    if strides is None:
        return True
    expected = itemsize
    for size, stride in zip(reversed(shape), reversed(tuple(strides)), strict=True):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True
