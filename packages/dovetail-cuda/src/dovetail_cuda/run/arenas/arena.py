"""A best-fit arena with coalescing: regions of memory cut into chunks, the free ones in bins by size.

Everything here is arithmetic on addresses; whoever owns an ``Arena`` gives it regions to cut, and holds its lock. A
chunk that came back in the order of a stream serves that stream at once and others only after ``forget_streams``,
when work on the stream has ended. Free neighbours of one stream are always one chunk.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["ALIGNMENT", "Arena", "ArenaRules", "ArenaStatistics"]

ALIGNMENT: Final = 256
_NUM_BINS: Final = 21
"""Of 256 bytes, twice that, and so on up to 256 MiB, and all above."""

Take = Callable[[int], int]
"""Gives the address of a region of so many bytes, or 0."""
Give = Callable[[int], object]


@dataclass(frozen=True, kw_only=True)
class ArenaRules:
    """How an arena grows and cuts."""

    is_doubling: bool = True
    """Whether each region is twice the last, or as large as what is asked for."""
    first_region_bytes: int = 1 << 20
    first_growth_bytes: int = 2 << 20
    """The first region after a shrink."""
    largest_growth_bytes: int = 1 << 30
    """Where doubling ends."""
    most_dead_bytes: int = 128 << 20
    """A chunk is cut when more than this would be left over in it, or more than half of it."""
    limit_bytes: int = 0
    """How much may be taken in all; 0 for no limit."""


@dataclass(frozen=True, kw_only=True)
class ArenaStatistics:
    """What an arena holds now, and the most it held."""

    limit_bytes: int
    used_bytes: int
    peak_bytes: int
    total_bytes: int
    """What was taken from below, used or not."""
    largest_bytes: int
    """The most that was asked for at once."""
    num_allocations: int
    num_reserves: int
    num_extensions: int
    num_shrinkages: int


@dataclass(eq=False)
class _Chunk:
    """A part of a region; the chunks of a region are a list, linked in the order of addresses."""

    region: _ArenaRegion
    address: int
    size: int
    is_used: bool = False
    stream: int = 0
    """In whose order it came back; 0 where everybody may have it."""
    before: _Chunk | None = None
    after: _Chunk | None = None


@dataclass(eq=False)
class _ArenaRegion:
    address: int
    size: int
    num_used: int = 0
    is_reserved: bool = False
    """Whether it is one chunk that somebody asked for by itself, and goes back with it."""
    first: _Chunk = field(init=False)

    def __post_init__(self) -> None:
        self.first = _Chunk(self, self.address, self.size)

    def walk(self) -> Iterator[_Chunk]:
        """Its chunks in order."""
        chunk: _Chunk | None = self.first
        while chunk is not None:
            yield chunk
            chunk = chunk.after


class _Bins:
    """Free chunks by size, the smallest that fits first."""

    def __init__(self) -> None:
        self._bins: list[list[tuple[int, int]]] = [[] for _ in range(_NUM_BINS)]
        self._chunks: dict[int, _Chunk] = {}

    def add(self, chunk: _Chunk) -> None:
        insort(self._bins[_find_bin(chunk.size)], (chunk.size, chunk.address))
        self._chunks[chunk.address] = chunk

    def remove(self, chunk: _Chunk) -> None:
        entries, entry = self._bins[_find_bin(chunk.size)], (chunk.size, chunk.address)
        del entries[bisect_left(entries, entry)]
        del self._chunks[chunk.address]

    def find(self, size: int, stream: int) -> _Chunk | None:
        """The smallest chunk that is large enough and may be used in the order of a stream."""
        for number in range(_find_bin(size), _NUM_BINS):
            entries = self._bins[number]
            for _, address in entries[bisect_left(entries, (size, 0)) :]:
                chunk = self._chunks[address]
                if chunk.stream in (0, stream):
                    return chunk
        return None

    def list_all(self) -> list[_Chunk]:
        return list(self._chunks.values())


def _find_bin(size: int) -> int:
    return min((size // ALIGNMENT).bit_length() - 1, _NUM_BINS - 1)


def _round(size: int) -> int:
    return max(-(-size // ALIGNMENT) * ALIGNMENT, ALIGNMENT)


class Arena:
    """Memory cut to size.

    Args:
        rules: How it grows.
        take: Gives regions.
        give: Takes them back.
    """

    def __init__(self, rules: ArenaRules, take: Take, give: Give) -> None:
        self._rules, self._take, self._give = rules, take, give
        self._regions: list[_ArenaRegion] = []
        self._bins = _Bins()
        self._used: dict[int, _Chunk] = {}
        self._next_bytes = rules.first_region_bytes
        self._total = self._in_use = self._peak = self._largest = 0
        self._counts = dict.fromkeys(("allocations", "reserves", "extensions", "shrinkages"), 0)

    @property
    def statistics(self) -> ArenaStatistics:
        """What is held now."""
        return ArenaStatistics(
            limit_bytes=self._rules.limit_bytes,
            used_bytes=self._in_use,
            peak_bytes=self._peak,
            total_bytes=self._total,
            largest_bytes=self._largest,
            **{f"num_{name}": count for name, count in self._counts.items()},
        )

    def allocate(self, size: int, stream: int = 0) -> int:
        """The address of a chunk for work in the order of a stream, or 0 where there is none."""
        needed = _round(size)
        chunk = self._bins.find(needed, stream) or self._extend(needed)
        if chunk is None:
            return 0
        self._bins.remove(chunk)
        self._cut(chunk, needed)
        self._counts["allocations"] += 1
        return self._hand_out(chunk)

    def reserve(self, size: int) -> int:
        """A region by itself, which goes back as soon as it is freed."""
        region = self._add_region(_round(size))
        if region is None:
            return 0
        region.is_reserved = True
        self._counts["reserves"] += 1
        return self._hand_out(region.first)

    def free(self, address: int, stream: int = 0) -> bool:
        """Take a chunk back, in the order of a stream or of none; False when it is not out."""
        chunk = self._used.pop(address, None)
        if chunk is None:
            return False
        chunk.is_used, chunk.stream = False, stream
        chunk.region.num_used -= 1
        self._in_use -= chunk.size
        if chunk.region.is_reserved:
            self._drop(chunk.region)
        else:
            self._bins.add(self._join(chunk))
        return True

    def has(self, address: int) -> bool:
        """Whether a chunk is out."""
        return address in self._used

    def forget_streams(self, stream: int | None = None) -> None:
        """Let everybody have what came back in the order of a stream whose work has ended, or of any."""
        waiting = [chunk for chunk in self._bins.list_all() if chunk.stream and stream in (None, chunk.stream)]
        for chunk in waiting:
            chunk.stream = 0
        for region in {id(chunk.region): chunk.region for chunk in waiting}.values():
            self._join_all(region)

    def shrink(self) -> int:
        """Give back every region that nothing uses; how many bytes that were."""
        unused = [region for region in self._regions if not region.num_used]
        for region in unused:
            for chunk in region.walk():
                self._bins.remove(chunk)
            self._drop(region)
        self._counts["shrinkages"] += bool(unused)
        if unused:
            self._next_bytes = self._rules.first_growth_bytes
        return sum(region.size for region in unused)

    # regions

    def _extend(self, needed: int) -> _Chunk | None:
        """Take another region and put it into the bins as one chunk."""
        for size in self._propose_sizes(needed):
            region = self._add_region(size)
            if region is not None:
                self._counts["extensions"] += 1
                self._bins.add(region.first)
                return region.first
        return None

    def _propose_sizes(self, needed: int) -> Iterator[int]:
        """The size of the next region, and smaller ones where there is not so much."""
        rules = self._rules
        is_grown = rules.is_doubling or not self._regions
        size = max(self._next_bytes, needed) if is_grown else needed
        if rules.is_doubling:
            self._next_bytes = min(2 * size, rules.largest_growth_bytes)
        if rules.limit_bytes:
            size = min(size, (rules.limit_bytes - self._total) // ALIGNMENT * ALIGNMENT)
        while size > needed:
            yield size
            size = size // 2 // ALIGNMENT * ALIGNMENT
        yield needed

    def _add_region(self, size: int) -> _ArenaRegion | None:
        if 0 < self._rules.limit_bytes < self._total + size:
            return None
        address = self._take(size)
        if not address:
            return None
        region = _ArenaRegion(address, size)
        self._regions.append(region)
        self._total += size
        return region

    def _drop(self, region: _ArenaRegion) -> None:
        self._regions.remove(region)
        self._total -= region.size
        self._give(region.address)

    # chunks

    def _hand_out(self, chunk: _Chunk) -> int:
        chunk.is_used, chunk.stream = True, 0
        chunk.region.num_used += 1
        self._used[chunk.address] = chunk
        self._in_use += chunk.size
        self._peak, self._largest = max(self._peak, self._in_use), max(self._largest, chunk.size)
        return chunk.address

    def _cut(self, chunk: _Chunk, needed: int) -> None:
        """Leave what is not needed to others, where it is enough to be worth it."""
        spare = chunk.size - needed
        if chunk.size < 2 * needed and spare < self._rules.most_dead_bytes:
            return
        rest = _Chunk(chunk.region, chunk.address + needed, spare, stream=chunk.stream, before=chunk, after=chunk.after)
        if rest.after is not None:
            rest.after.before = rest
        chunk.after, chunk.size = rest, needed
        self._bins.add(rest)

    def _join_all(self, region: _ArenaRegion) -> None:
        chunk: _Chunk | None = region.first
        while chunk is not None:
            if not chunk.is_used:
                self._bins.remove(chunk)
                chunk = self._join(chunk)
                self._bins.add(chunk)
            chunk = chunk.after

    def _join(self, chunk: _Chunk) -> _Chunk:
        """One chunk of a free chunk and its free neighbours of the same stream; only the neighbours are in bins."""
        after = chunk.after
        if after is not None and not after.is_used and after.stream == chunk.stream:
            self._bins.remove(after)
            _absorb(chunk, after)
        before = chunk.before
        if before is not None and not before.is_used and before.stream == chunk.stream:
            self._bins.remove(before)
            _absorb(before, chunk)
            return before
        return chunk


def _absorb(chunk: _Chunk, after: _Chunk) -> None:
    chunk.size += after.size
    chunk.after = after.after
    if after.after is not None:
        after.after.before = chunk
