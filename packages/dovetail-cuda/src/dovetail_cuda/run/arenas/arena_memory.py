"""An arena as an allocator of a device: locks, what comes back while a lock is held, and waiting for streams."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

from dovetail.allocators import IGpuAllocator
from dovetail_cuda.run.arenas.arena import ALIGNMENT, Arena, ArenaRules, ArenaStatistics
from dovetail_cuda.run.arenas.memory import DeviceMemory

if TYPE_CHECKING:
    from dovetail_cuda.run.gpu import Gpu

__all__ = ["ArenaMemory"]


class ArenaMemory(DeviceMemory):
    """A best-fit arena over blocks of the device; several threads may use it.

    Args:
        gpu: The device.
        rules: How the arena grows.
        source: Where its regions come from.
    """

    def __init__(self, gpu: Gpu, rules: ArenaRules, source: IGpuAllocator) -> None:
        self._gpu = gpu
        self._arena = Arena(rules, lambda size: source.allocate(size, ALIGNMENT, 0), source.deallocate)
        self._lock = threading.Lock()
        self._out: dict[int, int] = {}
        """What is out, and its size: to take an entry away needs no lock."""
        self._returned: deque[tuple[int, int]] = deque()
        """What came back and in whose order, until somebody has the lock: the garbage collector may bring some while
        this very thread has it, and must not wait."""

    @property
    def statistics(self) -> ArenaStatistics:
        """What is held now."""
        with self._lock:
            self._take_back()
            return self._arena.statistics

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """Memory that every stream may use at once."""
        self._gpu.release_now()
        return self.allocate_async(size, alignment, flags, 0)

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        """Memory for work in the order of a stream; where there is no other, streams are waited for."""
        if size < 0 or alignment > ALIGNMENT:
            return 0
        with self._lock:
            self._take_back()
            address = self._arena.allocate(size, stream)
            if not address and self._wait_for_streams():
                address = self._arena.allocate(size, stream)
            return self._note(address, size)

    def reserve(self, size: int) -> int:
        """Memory by itself, such as for weights, which goes back to the device as soon as it is given back."""
        self._gpu.release_now()
        with self._lock:
            self._take_back()
            return self._note(self._arena.reserve(size), size)

    def deallocate(self, memory: int) -> bool:
        """Take memory back that any stream may still use; False when it is not out."""
        if self._out.pop(memory, None) is None:
            return False
        self._gpu.release_later(lambda: self._returned.append((memory, 0)))
        self._gpu.release_now()
        self._try_take_back()
        return True

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Take memory back in the order of a stream."""
        if not stream:
            return self.deallocate(memory)
        if self._out.pop(memory, None) is None:
            return False
        self._returned.append((memory, stream))
        self._try_take_back()
        return True

    def shrink(self) -> int:
        """Give back every region that nothing uses; how many bytes that were."""
        self._gpu.release_now()
        with self._lock:
            self._take_back()
            self._wait_for_streams()
            return self._arena.shrink()

    def _note(self, address: int, size: int) -> int:
        if address:
            self._out[address] = size
        return address

    def _wait_for_streams(self) -> bool:
        """Make what came back in the order of streams everybody's; False where nothing can be waited for now."""
        if not self._gpu.try_synchronize():
            return False
        self._arena.forget_streams()
        return True

    def _try_take_back(self) -> None:
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._take_back()
            finally:
                self._lock.release()

    def _take_back(self) -> None:
        while self._returned:
            with contextlib.suppress(IndexError):  # another thread took the last one
                memory, stream = self._returned.popleft()
                self._arena.free(memory, stream)
