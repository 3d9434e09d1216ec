"""Arrays and memory of a host device: bytes of this process that NumPy is not allowed to read."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dovetail.allocators import HostAllocator
from dovetail.errors import ProviderError
from dovetail.formats import FOUR_BIT_TYPES, pack_nibbles, stored_size_bytes, unpack_nibbles
from dovetail.provider.memory.arena import align
from dovetail.provider.memory.arena_allocator import ArenaAllocator
from dovetail.testing.host_memory import DeviceAllocations
from dovetail.testing.host_streams import HostStream

__all__ = ["POISON", "HostDeviceAllocator", "HostDeviceArray"]

POISON = 0xFF
"""What fresh memory holds: NaN as floats and -1 as integers, so that reading too early shows."""


class HostDeviceArray:
    """An array in the memory of a host device.

    It has a shape, a type and an address, and NumPy refuses it: code that reads it on the host by mistake fails.

    >>> array = HostDeviceArray(np.zeros(3, np.float32).ctypes.data, (3,), np.float32, device="d")
    >>> np.add(array, 1)
    Traceback (most recent call last):
    TypeError: operand 'HostDeviceArray' does not support ufuncs (__array_ufunc__=None)
    """

    __slots__ = ("__weakref__", "_memory", "_owner", "address", "device", "dtype", "shape")
    __array_ufunc__ = None

    def __init__(
        self,
        address: int,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        *,
        device: str,
        owner: Any = None,
        memory: DeviceAllocations | None = None,
    ) -> None:
        self.address = address
        self.shape = tuple(shape)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.device = device
        """The provider in whose memory it lies."""
        self._owner = owner
        self._memory = memory
        """Where it is noted who touches it; None for an array that nobody watches."""

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
        """How many bytes it takes: two four-bit elements share one."""
        return stored_size_bytes(self.dtype.name, self.shape)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"an array on device '{self.device}' cannot be read on the host: copy it first")

    def require_live(self, user: str) -> None:
        """Check that its memory may be used by work that is put on a stream now."""
        if self._memory is not None:
            self._memory.require(self.address, self.nbytes, user)

    def read(self) -> npt.NDArray[Any]:
        """The memory as NumPy sees it, four-bit elements unpacked, to read only; for code that runs on the device."""
        self._touch(is_write=False)
        view = self._unpack() if self._is_packed else self._open()
        view.flags.writeable = False
        return view

    def view(self) -> npt.NDArray[Any]:
        """The memory as NumPy sees it, to read and to write; for code that runs on the device."""
        if self._is_packed:
            raise TypeError(f"{self.dtype.name} lies packed on device '{self.device}': use read and write")
        self._touch(is_write=True)
        return self._open()

    def write(self, array: npt.NDArray[Any]) -> None:
        """Put an array of the same shape and type here; for code that runs on the device."""
        if (array.shape, array.dtype) != (self.shape, self.dtype):
            raise TypeError(f"{array.dtype} {array.shape} written to {self!r}")
        if self._is_packed:
            self._touch(is_write=True)
            ctypes.memmove(self.address, pack_nibbles(array).ctypes.data, self.nbytes)
        else:
            self.view()[...] = array

    @property
    def _is_packed(self) -> bool:
        return self.dtype.name in FOUR_BIT_TYPES

    def _unpack(self) -> npt.NDArray[Any]:
        return unpack_nibbles(ctypes.string_at(self.address, self.nbytes), self.dtype, self.size).reshape(self.shape)

    def _touch(self, *, is_write: bool) -> None:
        if self._memory is not None:
            self._memory.touch(self.address, self.nbytes, is_write=is_write, name="view")

    def _open(self) -> npt.NDArray[Any]:
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
        memory: Where it is noted what is live.
        find_stream: Gives a stream of the device by its handle, for frees in the order of one.
    """

    def __init__(
        self,
        *,
        limit_bytes: int | None = None,
        fail_at: int = 0,
        before: Callable[[str], None] | None = None,
        memory: DeviceAllocations | None = None,
        find_stream: Callable[[int], HostStream] | None = None,
    ) -> None:
        super().__init__(HostAllocator(), chunk_bytes=2**16)
        self._limit_bytes = limit_bytes
        self._fail_at = fail_at
        self._before = before
        self._attempts = 0
        self._memory = memory or DeviceAllocations("a host device")
        self._find_stream = find_stream
        self._sizes: dict[int, int] = {}
        self._freed: dict[int, int] = {}
        """What was given back on a stream that has not come there yet, with its size."""

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
            ctypes.memset(address, POISON, size)
            self._memory.add(address, size)
            self._sizes[address] = size
        return address

    def deallocate(self, memory: int) -> bool:
        """Take a block back now: what still waits on a stream must not use it."""
        self._memory.remove(memory)
        self._sizes.pop(memory, None)
        return super().deallocate(memory)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Take a block back when the stream comes there; what is put on it later must not use the block."""
        if self._before is not None:
            self._before("deallocate_async")
        if self._find_stream is None or not stream:
            return self.deallocate(memory)
        queue = self._find_stream(stream)
        if queue.is_recording:
            raise ProviderError("memory was freed during a capture", fix="free it before or after")

        def free() -> None:
            size = self._freed.pop(memory)
            ctypes.memset(memory, POISON, size)
            self.deallocate(memory)

        if not self._memory.free_at(memory, queue.moment):
            return False
        self._freed[memory] = self._sizes[memory]
        queue.submit("free", free, is_certain=True)
        return True
