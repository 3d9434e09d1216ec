"""Arrays and memory of a host device: bytes of this process that NumPy is not allowed to read."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dovetail.allocators import HostAllocator
from dovetail.provider.arena import align
from dovetail.provider.arena_allocator import ArenaAllocator

__all__ = ["HostDeviceAllocator", "HostDeviceArray"]

_POISON = 0xFF
"""What fresh memory holds: NaN as floats and -1 as integers, so that reading too early shows."""


class HostDeviceArray:
    """An array in the memory of a host device.

    It has a shape, a type and an address, and NumPy refuses it: code that reads it on the host by mistake fails.

    >>> array = HostDeviceArray(np.zeros(3, np.float32).ctypes.data, (3,), np.float32, device="d")
    >>> np.add(array, 1)
    Traceback (most recent call last):
    TypeError: operand 'HostDeviceArray' does not support ufuncs (__array_ufunc__=None)
    """

    __slots__ = ("__weakref__", "_owner", "address", "device", "dtype", "shape")
    __array_ufunc__ = None

    def __init__(
        self, address: int, shape: Sequence[int], dtype: npt.DTypeLike, *, device: str, owner: Any = None
    ) -> None:
        self.address = address
        self.shape = tuple(shape)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.device = device
        """The provider in whose memory it lies."""
        self._owner = owner

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return self.size * self.dtype.itemsize

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"an array on device '{self.device}' cannot be read on the host: copy it first")

    def view(self) -> npt.NDArray[Any]:
        """The memory as NumPy sees it; for code that runs on the device, after all work on it is done."""
        if not self.nbytes:
            return np.empty(self.shape, self.dtype)
        memory = memoryview((ctypes.c_char * self.nbytes).from_address(self.address))
        return np.ndarray(self.shape, self.dtype, memory)

    def __repr__(self) -> str:
        return f"HostDeviceArray(shape={self.shape}, dtype={self.dtype.name}, device='{self.device}')"


class HostDeviceAllocator(ArenaAllocator):
    """Private memory of a host device, filled with a pattern; it can be limited, or told to fail.

    Args:
        limit_bytes: How much it gives out at most; None for no limit.
        fail_at: The number of the allocation, from 1, that gets no memory; 0 for none.
        before: Called before each allocation; what it raises is what the caller sees.
        submit_free: Puts the giving back of memory on the stream with a handle; without it memory goes back at once.
    """

    def __init__(
        self,
        *,
        limit_bytes: int | None = None,
        fail_at: int = 0,
        before: Callable[[str], None] | None = None,
        submit_free: Callable[[int, Callable[[], None]], None] | None = None,
    ) -> None:
        super().__init__(HostAllocator(), chunk_bytes=2**16)
        self._limit_bytes = limit_bytes
        self._fail_at = fail_at
        self._before = before
        self._attempts = 0
        self._submit_free = submit_free
        self._sizes: dict[int, int] = {}
        self._freed: dict[int, int] = {}
        """What was given back in the order of a stream that has not come there yet."""

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """A block that holds the pattern, or 0."""
        if self._before is not None:
            self._before("allocate")
        self._attempts += 1
        # What is given back on a stream counts as free: memory is asked for in the order of the same stream.
        used_bytes = self.statistics.used_bytes - sum(map(align, self._freed.copy().values()))
        is_over = self._limit_bytes is not None and used_bytes + size > self._limit_bytes
        if is_over or self._attempts == self._fail_at:
            return 0
        address = super().allocate(size, alignment, flags)
        if address:
            ctypes.memset(address, _POISON, size)
            self._sizes[address] = size
        return address

    def deallocate(self, memory: int) -> bool:
        """Take a block back at once."""
        self._sizes.pop(memory, None)
        return super().deallocate(memory)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Take a block back when the stream comes there; nothing that is ordered from now on may use it."""
        if memory not in self._sizes or memory in self._freed:
            return False
        if self._before is not None:
            self._before("deallocate_async")
        if self._submit_free is None:
            return self.deallocate(memory)
        self._freed[memory] = self._sizes[memory]
        self._submit_free(stream, lambda: self._finish_free(memory))
        return True

    def _finish_free(self, memory: int) -> None:
        ctypes.memset(memory, _POISON, self._freed.pop(memory))
        self.deallocate(memory)

    def is_freed(self, address: int) -> bool:
        """Whether an address lies in memory that was given back in the order of a stream."""
        return any(start <= address < start + size for start, size in self._freed.copy().items())
