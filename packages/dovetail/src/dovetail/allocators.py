"""Memory that users can provide: the allocator of an engine and the allocator of one output.

The names say GPU because the contract does; on the embedded back end the memory is host memory.
"""

from __future__ import annotations

import threading
from enum import IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["AllocatorFlag", "HostAllocator", "IGpuAllocator", "IGpuAsyncAllocator", "IOutputAllocator"]


class AllocatorFlag(IntFlag):
    """What an allocation must allow."""

    RESIZABLE = 1


class IGpuAllocator:
    """Gives out device memory; every method may be called from several threads."""

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """An address of at least ``size`` bytes, or 0 when there is none."""
        raise NotImplementedError(f"{type(self).__name__} must implement allocate(size, alignment, flags)")

    def reallocate(self, address: int, alignment: int, new_size: int) -> int:
        """Grow a resizable allocation; 0 when that is not possible."""
        return 0

    def deallocate(self, memory: int) -> bool:
        """Take memory back."""
        raise NotImplementedError(f"{type(self).__name__} must implement deallocate(memory)")

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        """Stream-ordered ``allocate``."""
        return self.allocate(size, alignment, flags)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Stream-ordered ``deallocate``."""
        return self.deallocate(memory)


class IGpuAsyncAllocator(IGpuAllocator):
    """An allocator whose stream-ordered forms are the real ones."""

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """Allocate on the default stream."""
        return self.allocate_async(size, alignment, flags, 0)

    def deallocate(self, memory: int) -> bool:
        """Deallocate on the default stream."""
        return self.deallocate_async(memory, 0)


class IOutputAllocator:
    """Provides the memory of one output whose shape is known only after the run."""

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        """An address of at least ``size`` bytes; ``memory`` is what was given last time (or 0)."""
        raise NotImplementedError(f"{type(self).__name__} must implement reallocate_output(...)")

    def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
        """Stream-ordered ``reallocate_output``."""
        return self.reallocate_output(tensor_name, memory, size, alignment)

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        """Called with the final shape."""
        raise NotImplementedError(f"{type(self).__name__} must implement notify_shape(...)")


class HostAllocator(IGpuAllocator):
    """Host memory from NumPy, aligned as asked.

    >>> allocator = HostAllocator(); address = allocator.allocate(100, 256, 0)
    >>> address % 256, allocator.deallocate(address)
    (0, True)
    """

    def __init__(self) -> None:
        self._blocks: dict[int, npt.NDArray[np.uint8]] = {}
        self._lock = threading.Lock()

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """An aligned block that lives until it is given back."""
        alignment = max(alignment, 1)
        block = np.empty(size + alignment, np.uint8)
        address = block.__array_interface__["data"][0]
        address += -address % alignment
        with self._lock:
            self._blocks[address] = block
        return int(address)

    def deallocate(self, memory: int) -> bool:
        """Give a block back; False when it is not one of ours."""
        with self._lock:
            return self._blocks.pop(memory, None) is not None
