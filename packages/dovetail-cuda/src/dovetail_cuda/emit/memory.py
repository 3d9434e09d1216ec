"""Where the buffers of a partition lie: at its border, among its weights, or in the arena, by their lives."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.provider.memory.arena import Span, align, plan_offsets
from dovetail_cuda.graph.plan import Buffer, PartitionPlan
from dovetail_cuda.run.payload import BufferRecord

__all__ = ["BufferTable", "find_lives", "place_buffers"]


class BufferTable:
    """Buffers by number."""

    def __init__(self, records: Sequence[BufferRecord], numbers: dict[str, int], arena_bytes: int) -> None:
        self.records = list(records)
        self.arena_bytes = arena_bytes
        self._numbers = numbers

    def find(self, names: Sequence[str]) -> list[int]:
        """The numbers of buffers."""
        return [self._numbers[name] for name in names]


def place_buffers(plan: PartitionPlan, uses: Sequence[Sequence[str]]) -> BufferTable:
    """Place every buffer.

    Args:
        plan: Has the buffers.
        uses: For each launch, in order, the names of those it touches.
    """
    lives = find_lives(uses)
    names = [name for name in plan.buffers if name in lives]
    temporary = [name for name in names if plan.buffers[name].kind == "temporary"]
    offsets, arena_bytes = plan_offsets([Span(plan.buffers[name].size_bytes, *lives[name]) for name in temporary])
    places = dict(zip(temporary, offsets, strict=True))
    records = [_describe(name, plan.buffers[name], plan, places) for name in names]
    return BufferTable(records, {name: number for number, name in enumerate(names)}, align(arena_bytes))


def find_lives(uses: Sequence[Sequence[str]]) -> dict[str, tuple[int, int]]:
    """The first and the last launch that touches each buffer."""
    lives: dict[str, tuple[int, int]] = {}
    for number, names in enumerate(uses):
        for name in names:
            lives[name] = (lives.get(name, (number, number))[0], number)
    return lives


def _describe(name: str, buffer: Buffer, plan: PartitionPlan, places: dict[str, int]) -> BufferRecord:
    size = buffer.size_bytes
    match buffer.kind:
        case "input":
            return BufferRecord(kind="input", size_bytes=size, number=plan.inputs.index(name))
        case "output":
            return BufferRecord(kind="output", size_bytes=size, number=plan.outputs.index(name))
        case "weight":
            return BufferRecord(kind="weight", size_bytes=size, name=name)
        case "zeroed":
            return BufferRecord(kind="zeroed", size_bytes=size)
        case _:
            return BufferRecord(kind="arena", size_bytes=size, offset=places[name])
