"""Memory that ONNX Runtime's allocators give out: an arena for each stream, over the allocator of the back end.

What is freed may still be used by work that waits on a stream. So memory that was given for a stream is given again for
that stream only, behind that work, until the stream ends. Memory that was given for no stream may be in use on any, so
it is given again when all streams have done what they had to do when it was freed. A captured graph has an arena of its
own: its replays write to the same places as long as it lives.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dovetail import UsageError
from dovetail.allocators import IGpuAllocator
from dovetail.provider.memory.arena import align
from dovetail.provider.memory.arena_allocator import ArenaAllocator

__all__ = ["ARENA_KEYS", "ArenaSettings", "Arenas", "read_settings"]

_DOUBLING: Final = ("0", "kNextPowerOfTwo")
_AS_REQUESTED: Final = ("1", "kSameAsRequested")
ARENA_KEYS: Final = (
    "arena.extend_strategy",
    "arena.initial_chunk_size_bytes",
    "arena.initial_growth_chunk_size_bytes",
    "arena.max_dead_bytes_per_chunk",
    "arena.max_mem",
    "arena.max_power_of_two_extend_bytes",
)
"""What ONNX Runtime calls the settings of an arena. ``max_dead_bytes_per_chunk`` bounds what stays unused at the end of
a part; nothing ever does here."""
_MAX_HELD_BYTES: Final = 2**26
"""How much may be free and wait for streams, before all are waited for."""

Barrier = Callable[[], bool]
"""Whether streams have done what they had to do when it was made."""


@dataclass(frozen=True, kw_only=True)
class ArenaSettings:
    """How arenas grow."""

    is_doubling: bool = True
    """Whether each chunk is twice as large as the last, or each as large as what is asked for."""
    first_chunk_bytes: int = 2**20
    next_chunk_bytes: int = 2**21
    max_chunk_bytes: int = 2**30
    limit_bytes: int = 0
    """How much is taken from the back end at most; 0 for no limit."""
    source_options: Mapping[str, str] = field(default_factory=dict)
    """Options of the back end for the memory below, such as those of a pool that the device's driver has."""


def read_settings(entries: Mapping[str, str], backend_keys: Collection[str] = ()) -> ArenaSettings:
    """The settings among the options of an allocator.

    Args:
        entries: The options.
        backend_keys: What else the back end itself reads.

    >>> read_settings({"arena.max_mem": "4096", "arena.extend_strategy": "1"}).limit_bytes
    4096
    """
    known = (*ARENA_KEYS, *sorted(set(backend_keys) - set(ARENA_KEYS)))
    for key in entries:
        if key not in known:
            raise UsageError(f"unknown option {key}", where="arena", expected=", ".join(known))
    strategy = entries.get("arena.extend_strategy", "0")
    if strategy not in (*_DOUBLING, *_AS_REQUESTED):
        raise UsageError("not a strategy", where="option arena.extend_strategy", expected="0 or 1", got=strategy)
    defaults = ArenaSettings()
    return ArenaSettings(
        is_doubling=strategy in _DOUBLING,
        first_chunk_bytes=_bytes(entries, "initial_chunk_size_bytes", defaults.first_chunk_bytes),
        next_chunk_bytes=_bytes(entries, "initial_growth_chunk_size_bytes", defaults.next_chunk_bytes),
        max_chunk_bytes=_bytes(entries, "max_power_of_two_extend_bytes", defaults.max_chunk_bytes),
        limit_bytes=_bytes(entries, "max_mem", 0) % (2**64 - 1),  # the largest size_t also says that there is no limit
        source_options={key: text for key, text in entries.items() if key not in ARENA_KEYS},
    )


def _bytes(entries: Mapping[str, str], key: str, default: int) -> int:
    text = entries.get(f"arena.{key}", "")
    if text in ("", "-1"):  # both say: as usual
        return default
    if not text.isdigit():
        raise UsageError("not a number", where=f"option arena.{key}", expected="0 or more bytes", got=text)
    return int(text)


class _Limited(IGpuAllocator):
    """Gives no more than a limit in all."""

    def __init__(self, source: IGpuAllocator, limit_bytes: int) -> None:
        self._source = source
        self._limit_bytes = limit_bytes
        self._sizes: dict[int, int] = {}
        self.used_bytes = 0

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        if self._limit_bytes and self.used_bytes + size > self._limit_bytes:
            return 0
        address = self._source.allocate(size, alignment, flags)
        if address:
            self._sizes[address] = size
            self.used_bytes += size
        return address

    def deallocate(self, memory: int) -> bool:
        self.used_bytes -= self._sizes.pop(memory, 0)
        return self._source.deallocate(memory)


@dataclass
class _Counts:
    in_use: int = 0
    max_in_use: int = 0
    num_allocs: int = 0
    num_reserves: int = 0
    num_shrinkages: int = 0
    max_alloc: int = 0


class Arenas:
    """Gives out memory for streams; it may be used by several threads."""

    def __init__(
        self,
        source: IGpuAllocator,
        settings: ArenaSettings,
        *,
        alignment_bytes: int = 256,
        synchronize: Callable[[], None] = lambda: None,
        make_barrier: Callable[[], Barrier | None] = lambda: None,
        shrink_source: Callable[[], object] = lambda: None,
    ) -> None:
        self._source = _Limited(source, settings.limit_bytes)
        self._settings = settings
        self._alignment_bytes = alignment_bytes
        self._synchronize = synchronize
        self._make_barrier = make_barrier
        self._shrink_source = shrink_source
        self._held: deque[tuple[Barrier, int]] = deque()
        """What is free and may still be in use on some stream, in the order in which it was freed."""
        self._held_bytes = 0
        self._arenas: dict[Hashable, ArenaAllocator] = {}
        self._idle: list[ArenaAllocator] = []
        """Those of streams that ended."""
        self._parts: dict[int, tuple[ArenaAllocator | None, int]] = {}
        self._shared: ArenaAllocator | None = None
        """The one whose memory any stream may use."""
        self._returned: deque[int] = deque()
        """Addresses that came back while the lock was taken, perhaps by this very thread through the garbage
        collector."""
        self._counts = _Counts()
        self._lock = threading.Lock()

    def allocate(self, size_bytes: int, key: Hashable = None) -> int:
        """Memory for a stream, for a graph, or without a key for nobody's; 0 when there is none left."""
        with self._lock:
            self._take_back()
            if self._held_bytes > _MAX_HELD_BYTES:
                self._wait()
            arena = self._arena(key)
            address = arena.allocate(size_bytes, self._alignment_bytes, 0)
            if not address and self._shrink():
                address = arena.allocate(size_bytes, self._alignment_bytes, 0)
            if address:
                self._count(address, arena, max(align(size_bytes), align(1)))
                self._counts.num_allocs += 1
            return address

    def reserve(self, size_bytes: int) -> int:
        """Memory that no arena has a part in, for what stays as long as a session does."""
        with self._lock:
            self._take_back()
            address = self._source.allocate(size_bytes, self._alignment_bytes, 0)
            if address:
                self._count(address, None, size_bytes)
                self._counts.num_reserves += 1
            return address

    def _count(self, address: int, arena: ArenaAllocator | None, size_bytes: int) -> None:
        counts = self._counts
        self._parts[address] = (arena, size_bytes)
        counts.in_use += size_bytes
        counts.max_in_use = max(counts.max_in_use, counts.in_use)
        counts.max_alloc = max(counts.max_alloc, size_bytes)

    def _arena(self, key: Hashable) -> ArenaAllocator:
        if key not in self._arenas:
            self._arenas[key] = self._idle.pop() if self._idle else self._make_arena()
            if key is None:
                self._shared = self._arenas[key]
        return self._arenas[key]

    def _make_arena(self) -> ArenaAllocator:
        settings, is_first = self._settings, not self._arenas and not self._idle
        if not settings.is_doubling:
            return ArenaAllocator(self._source, chunk_bytes=1, alignment_bytes=self._alignment_bytes)
        return ArenaAllocator(
            self._source,
            chunk_bytes=settings.first_chunk_bytes if is_first else settings.next_chunk_bytes,
            max_chunk_bytes=settings.max_chunk_bytes,
            alignment_bytes=self._alignment_bytes,
        )

    def free(self, address: int) -> None:
        """Take memory back."""
        self._returned.append(address)
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._take_back()
            finally:
                self._lock.release()

    def _take_back(self) -> None:
        while self._returned:
            address = self._returned.popleft()
            arena, size_bytes = self._parts[address]
            self._counts.in_use -= size_bytes
            barrier = self._make_barrier() if arena is None or arena is self._shared else None
            if barrier is None:
                self._give_back(address)
            else:
                self._held.append((barrier, address))
                self._held_bytes += size_bytes
        while self._held and self._held[0][0]():
            _, address = self._held.popleft()
            self._held_bytes -= self._give_back(address)

    def _give_back(self, address: int) -> int:
        arena, size_bytes = self._parts.pop(address)
        (self._source if arena is None else arena).deallocate(address)
        return size_bytes

    def retire(self, key: Hashable) -> None:
        """Let a stream's memory serve others: nothing waits on it any more."""
        with self._lock:
            arena = self._arenas.pop(key, None)
            if arena is not None:
                self._idle.append(arena)

    def shrink(self) -> int:
        """Give back what nothing uses, and have the back end do so; how many bytes came from here."""
        with self._lock:
            self._take_back()
            self._counts.num_shrinkages += 1
            num_bytes = self._shrink()
            self._shrink_source()
            return num_bytes

    def close(self) -> None:
        """Give back everything: nobody asks for memory any more."""
        with self._lock:
            self._take_back()
            self._shrink()

    def _wait(self) -> None:
        self._synchronize()
        while self._held:
            _, address = self._held.popleft()
            self._held_bytes -= self._give_back(address)

    def _shrink(self) -> int:
        self._wait()  # what is free may still be used by work that waits
        return sum(arena.shrink() for arena in (*self._arenas.values(), *self._idle))

    @property
    def statistics(self) -> dict[str, int]:
        """By the names that ONNX Runtime knows."""
        with self._lock:
            self._take_back()
            counts = self._counts
            growths = sum(arena.statistics.num_growths for arena in (*self._arenas.values(), *self._idle))
            return {
                "Limit": self._settings.limit_bytes or 2**63 - 1,
                "InUse": counts.in_use,
                "TotalAllocated": self._source.used_bytes,
                "MaxInUse": counts.max_in_use,
                "NumAllocs": counts.num_allocs,
                "NumReserves": counts.num_reserves,
                "NumArenaExtensions": growths,
                "NumArenaShrinkages": counts.num_shrinkages,
                "MaxAllocSize": counts.max_alloc,
            }
