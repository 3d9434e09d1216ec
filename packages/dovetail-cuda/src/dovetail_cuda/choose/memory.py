"""Where the buffers of a partition lie: at its border, among its weights, or in the arena, by their lives."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

from dovetail.provider.memory.arena import Span, align, plan_offsets
from dovetail_cuda.choose.records import OpenBuffer
from dovetail_cuda.run.payload import BufferRecord

__all__ = ["BufferTable", "find_lives", "place_buffers"]

BufferT = TypeVar("BufferT", bound=Hashable)


class BufferTable:
    """Buffers that are placed, without those that nothing touches."""

    def __init__(self, records: Sequence[BufferRecord], numbers: dict[int, int], arena_bytes: int) -> None:
        self.records = list(records)
        self.arena_bytes = arena_bytes
        self._numbers = numbers

    def find(self, number: int) -> int:
        """The number of a buffer among those that are placed."""
        return self._numbers[number]


def place_buffers(buffers: Sequence[OpenBuffer], uses: Sequence[Sequence[int]]) -> BufferTable:
    """Place every buffer that is used.

    Args:
        buffers: All of them.
        uses: For each launch, in order, the numbers of those it touches.
    """
    lives = find_lives(uses)
    used = [number for number in range(len(buffers)) if number in lives]
    inside = [number for number in used if buffers[number].kind == "temporary"]
    offsets, arena_bytes = plan_offsets([Span(buffers[number].size_bytes, *lives[number]) for number in inside])
    places = dict(zip(inside, offsets, strict=True))
    records = [_describe(buffers[number], places.get(number)) for number in used]
    return BufferTable(records, {number: place for place, number in enumerate(used)}, align(arena_bytes))


def find_lives(uses: Sequence[Sequence[BufferT]]) -> dict[BufferT, tuple[int, int]]:
    """The first and the last launch that touches each buffer."""
    lives: dict[BufferT, tuple[int, int]] = {}
    for number, touched in enumerate(uses):
        for buffer in touched:
            lives[buffer] = (lives.get(buffer, (number, number))[0], number)
    return lives


def _describe(buffer: OpenBuffer, offset: int | None) -> BufferRecord:
    if offset is not None:
        return BufferRecord(kind="arena", size_bytes=buffer.size_bytes, offset=offset)
    return BufferRecord(kind=buffer.kind, size_bytes=buffer.size_bytes, number=buffer.number, name=buffer.name)
