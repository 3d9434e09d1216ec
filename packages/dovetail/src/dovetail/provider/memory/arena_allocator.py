"""An allocator over another one: it takes large chunks, gives out parts of them, and joins what comes back.

Asking a driver for memory is slow, and on some devices it waits for all work to end; so a provider takes much at a
time and serves contexts from that. ``shrink`` gives chunks back that nothing uses.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections import deque
from dataclasses import dataclass, field

from dovetail.allocators import IGpuAllocator
from dovetail.provider.memory.arena import ALIGNMENT_BYTES, align

__all__ = ["ArenaAllocator", "ArenaStatistics"]


@dataclass(frozen=True, kw_only=True)
class ArenaStatistics:
    """What an allocator holds now, and the most it held."""

    used_bytes: int
    peak_bytes: int
    reserved_bytes: int
    """What was taken from below, used or not."""
    num_allocations: int
    """How often memory was asked for and given."""
    num_chunks: int
    num_growths: int = 0
    """How often a chunk was taken from below."""


@dataclass
class _Chunk:
    address: int
    size_bytes: int
    free: list[tuple[int, int]] = field(default_factory=list)
    """Offsets and sizes of what is free, in order of offsets; neighbours are always joined."""
    used: dict[int, int] = field(default_factory=dict)
    """Offsets and sizes of what was given out."""

    def take(self, size_bytes: int) -> int | None:
        """The offset of the smallest free part that is large enough."""
        fitting = [(size, offset) for offset, size in self.free if size >= size_bytes]
        if not fitting:
            return None
        size, offset = min(fitting)
        self.free.remove((offset, size))
        if size > size_bytes:
            insort(self.free, (offset + size_bytes, size - size_bytes))
        self.used[offset] = size_bytes
        return offset

    def give_back(self, offset: int) -> int:
        """Free a part, join it with its neighbours, and return its size."""
        size = self.used.pop(offset)
        insort(self.free, (offset, size))
        joined: list[tuple[int, int]] = []
        for start, length in self.free:
            if joined and joined[-1][0] + joined[-1][1] == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((start, length))
        self.free = joined
        return size


class ArenaAllocator(IGpuAllocator):
    """Gives out parts of chunks that it takes from another allocator; it may be used by several threads.

    >>> from dovetail.allocators import HostAllocator
    >>> arena = ArenaAllocator(HostAllocator(), chunk_bytes=1024)
    >>> address = arena.allocate(100, 256, 0); arena.statistics.used_bytes, arena.statistics.reserved_bytes
    (256, 1024)
    >>> arena.deallocate(address), arena.shrink(), arena.statistics.reserved_bytes
    (True, 1024, 0)

    Args:
        source: Where chunks come from.
        chunk_bytes: The size of a chunk, where what is asked for is not larger.
        max_chunk_bytes: Each further chunk is twice as large as the one before, up to this; by default all are equal.
        alignment_bytes: How strictly chunks are aligned.
    """

    def __init__(
        self,
        source: IGpuAllocator,
        *,
        chunk_bytes: int = 2**20,
        max_chunk_bytes: int = 0,
        alignment_bytes: int = ALIGNMENT_BYTES,
    ) -> None:
        self._source = source
        self._chunk_bytes = chunk_bytes
        self._max_chunk_bytes = max_chunk_bytes
        self._alignment_bytes = alignment_bytes
        self._chunks: list[_Chunk] = []
        self._owners: dict[int, _Chunk] = {}
        self._lock = threading.Lock()
        self._used_bytes = self._peak_bytes = self._num_allocations = 0
        self._num_growths = 0
        self._returned: deque[tuple[_Chunk, int]] = deque()
        """Parts that came back while the lock was taken: the garbage collector may bring some in the middle of
        ``allocate``, in the same thread, and must not wait there."""

    @property
    def statistics(self) -> ArenaStatistics:
        """What is held now."""
        with self._lock:
            self._take_back()
            return ArenaStatistics(
                used_bytes=self._used_bytes,
                peak_bytes=self._peak_bytes,
                reserved_bytes=sum(chunk.size_bytes for chunk in self._chunks),
                num_allocations=self._num_allocations,
                num_chunks=len(self._chunks),
                num_growths=self._num_growths,
            )

    def contains(self, address: int) -> bool:
        """Return True if an address is in a chunk, in memory that is given out or free."""
        with self._lock:
            return any(0 <= address - chunk.address < chunk.size_bytes for chunk in self._chunks)

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """A part of a chunk, or 0 when there is no memory, or none that is aligned so strictly."""
        if size < 0 or alignment > self._alignment_bytes:
            return 0
        needed = max(align(size), ALIGNMENT_BYTES)
        with self._lock:
            self._take_back()
            chunk, offset = self._find(needed)
            if chunk is None:
                return 0
            self._used_bytes += needed
            self._peak_bytes = max(self._peak_bytes, self._used_bytes)
            self._num_allocations += 1
            self._owners[chunk.address + offset] = chunk
            return chunk.address + offset

    def _find(self, size_bytes: int) -> tuple[_Chunk | None, int]:
        for chunk in self._chunks:
            offset = chunk.take(size_bytes)
            if offset is not None:
                return chunk, offset
        grown = self._grow(size_bytes)
        return grown, 0 if grown is None else grown.take(size_bytes) or 0

    def _grow(self, size_bytes: int) -> _Chunk | None:
        for size in sorted({max(self._chunk_bytes, size_bytes), size_bytes}, reverse=True):
            address = self._source.allocate(size, self._alignment_bytes, 0)
            if address:
                chunk = _Chunk(address, size, free=[(0, size)])
                self._chunks.append(chunk)
                self._num_growths += 1
                self._chunk_bytes = max(self._chunk_bytes, min(2 * self._chunk_bytes, self._max_chunk_bytes))
                return chunk
        return None

    def deallocate(self, memory: int) -> bool:
        """Take a part back; False when it was not given out here."""
        chunk = self._owners.pop(memory, None)
        if chunk is None:
            return False
        self._returned.append((chunk, memory))
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._take_back()
            finally:
                self._lock.release()
        return True

    def _take_back(self) -> None:
        while self._returned:
            chunk, memory = self._returned.popleft()
            self._used_bytes -= chunk.give_back(memory - chunk.address)

    def shrink(self) -> int:
        """Give back the chunks that nothing uses; how many bytes that were."""
        with self._lock:
            self._take_back()
            unused = [chunk for chunk in self._chunks if not chunk.used]
            self._chunks = [chunk for chunk in self._chunks if chunk.used]
        for chunk in unused:
            self._source.deallocate(chunk.address)
        return sum(chunk.size_bytes for chunk in unused)
