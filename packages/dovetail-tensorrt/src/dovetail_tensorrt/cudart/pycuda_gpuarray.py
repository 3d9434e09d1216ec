"""Stands in for ``pycuda.gpuarray``: arrays that scripts bind and copy; they do not compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail_tensorrt.cudart.pycuda_driver import DeviceAllocation, from_device, memcpy_htod

__all__ = ["GPUArray", "empty", "empty_like", "to_gpu", "to_gpu_async", "zeros", "zeros_like"]


class GPUArray:
    """An array in a block.

    Args:
        shape: Its sizes.
        dtype: The type of its elements.
        gpudata: The block, or None for one of its own.
    """

    def __init__(self, shape: Any, dtype: Any, gpudata: Any = None) -> None:
        self.shape: tuple[int, ...] = tuple(np.empty(shape, np.bool_).shape)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.size = int(np.prod(self.shape, dtype=np.int64))
        self.nbytes = self.size * self.dtype.itemsize
        self.ndim = len(self.shape)
        self.gpudata = DeviceAllocation(self.nbytes) if gpudata is None else gpudata

    @property
    def ptr(self) -> int:
        """The address."""
        return int(self.gpudata)

    def __int__(self) -> int:
        return self.ptr

    __index__ = __int__

    def __len__(self) -> int:
        return self.shape[0]

    def set(self, ary: npt.NDArray[Any], async_: bool = False, stream: Any = None) -> None:
        """Take the elements of an array."""
        if ary.shape != self.shape or ary.dtype != self.dtype:
            raise ValueError(f"the array is {ary.dtype} {ary.shape}, and this is {self.dtype} {self.shape}")
        memcpy_htod(self.gpudata, np.ascontiguousarray(ary))

    set_async = set

    def get(self, ary: npt.NDArray[Any] | None = None, async_: bool = False, stream: Any = None) -> npt.NDArray[Any]:
        """The elements, in an array that is given or in a new one."""
        found = from_device(self.gpudata, self.shape, self.dtype)
        if ary is None:
            return found
        ary[...] = found
        return ary

    get_async = get

    def fill(self, value: Any, stream: Any = None) -> GPUArray:
        """Set all elements."""
        memcpy_htod(self.gpudata, np.full(self.shape, value, self.dtype))
        return self

    def reshape(self, *shape: Any) -> GPUArray:
        """The same block in another shape."""
        wanted = np.empty(self.shape, np.bool_).reshape(*shape).shape
        return GPUArray(wanted, self.dtype, self.gpudata)


def to_gpu(ary: npt.NDArray[Any]) -> GPUArray:
    """A copy of an array."""
    result = GPUArray(ary.shape, ary.dtype)
    result.set(ary)
    return result


def to_gpu_async(ary: npt.NDArray[Any], stream: Any = None) -> GPUArray:
    """The same."""
    return to_gpu(ary)


def empty(shape: Any, dtype: Any) -> GPUArray:
    """An array."""
    return GPUArray(shape, dtype)


def zeros(shape: Any, dtype: Any) -> GPUArray:
    """An array of zeros."""
    return GPUArray(shape, dtype).fill(0)


def empty_like(other: GPUArray) -> GPUArray:
    """An array like another."""
    return GPUArray(other.shape, other.dtype)


def zeros_like(other: GPUArray) -> GPUArray:
    """An array of zeros like another."""
    return zeros(other.shape, other.dtype)
