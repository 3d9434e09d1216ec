"""Memory of a device: the driver's own pool, or blocks of it that an arena cuts; and pinned memory of the host."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from dovetail.allocators import IGpuAllocator
from dovetail.errors import DovetailError, ResourceError

if TYPE_CHECKING:
    from dovetail_cuda.run.gpu import Gpu

__all__ = ["BlockMemory", "PinnedMemory", "PoolMemory"]

_ALIGNMENT: Final = 256
"""What the driver aligns to, at least."""


class _TrackedMemory(IGpuAllocator):
    """Memory with a limit and a list of what is out, so that nothing is given back twice."""

    def __init__(self, gpu: Gpu, *, limit_bytes: int = 0) -> None:
        self._gpu = gpu
        self._limit_bytes = limit_bytes
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """How much is out."""
        with self._lock:
            return sum(self._sizes.values())

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """Memory, or 0 where there is none."""
        return self._take(size, alignment, 0)

    def deallocate(self, memory: int) -> bool:
        """Take memory back; False when it is not out."""
        return self._return(memory, 0)

    def _take(self, size: int, alignment: int, stream: int) -> int:
        is_too_much = 0 < self._limit_bytes < self.used_bytes + size
        if size < 0 or alignment > _ALIGNMENT or is_too_much:
            return 0
        try:
            address = self._get(max(size, 1), stream)
        except ResourceError:
            return 0
        with self._lock:
            self._sizes[address] = size
        return address

    def _return(self, memory: int, stream: int) -> bool:
        with self._lock:
            is_out = self._sizes.pop(memory, None) is not None
        if is_out:
            try:
                self._put_back(memory, stream)
            except DovetailError:
                return False
        return is_out

    def _get(self, size: int, stream: int) -> int:
        raise NotImplementedError

    def _put_back(self, memory: int, stream: int) -> None:
        raise NotImplementedError


class PoolMemory(_TrackedMemory):
    """The driver's pool: memory comes and goes in the order of a stream."""

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """Memory that every stream may use at once."""
        self._gpu.release_now()
        address = self._take(size, alignment, 0)
        if address:
            self._gpu.driver.synchronize_stream(0)
        return address

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        """Memory in the order of a stream."""
        return self._take(size, alignment, stream)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Take it back in the order of a stream."""
        return self._return(memory, stream)

    def _get(self, size: int, stream: int) -> int:
        return self._gpu.driver.allocate_async(size, stream)

    def _put_back(self, memory: int, stream: int) -> None:
        if stream:
            self._gpu.driver.free_async(memory, stream)
        else:  # in no stream's order, so that work on any of them may still use it
            self._gpu.release_later(lambda: self._gpu.driver.free(memory))
            self._gpu.release_now()


class BlockMemory(_TrackedMemory):
    """Plain blocks, for an arena to cut; the device waits when one is given back."""

    def _get(self, size: int, stream: int) -> int:
        return self._gpu.driver.allocate(size)

    def _put_back(self, memory: int, stream: int) -> None:
        self._gpu.driver.free(memory)


class PinnedMemory(_TrackedMemory):
    """Memory of the host that the device copies from and to by itself."""

    def _get(self, size: int, stream: int) -> int:
        return self._gpu.driver.allocate_pinned(size)

    def _put_back(self, memory: int, stream: int) -> None:
        self._gpu.driver.free_pinned(memory)
