"""The rules for the arena of a program with a profile: values and workspaces fit their places and share no bytes.

Two values on the same bytes would not crash, for both lie inside the arena, but each would overwrite the other: such a
plan gives wrong results, so it counts as damaged.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from dovetail.expr import Dim, interval, symbols_of
from dovetail.formats import packed_shape, stored_size_bytes
from dovetail.plan._header import show
from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import Manifest, ProfileRecord, ProgramRecord, StepRecord, ValueRecord
from dovetail.plan.verify.rules import MAX_BYTES, check_range, dtype_from_name, require
from dovetail.plan.workspaces import is_planned_workspace, memory_of_step, walk_steps
from dovetail.provider.memory.arena import ALIGNMENT_BYTES, align
from dovetail.types import TensorFormat

__all__ = ["verify_arena", "verify_no_workspaces", "verify_unplaced"]

Ranges = Mapping[str, tuple[int, int]]


def verify_unplaced(program: ProgramRecord, where: str) -> None:
    """An open program and a body have no arena before they run."""
    has_arena = program.arena_bytes != 0 or bool(program.arenas)
    require(not has_arena, where, "has an arena, which only programs with a profile have")
    for index, value in enumerate(program.values):
        require(value.offset is None, f"{where}, value {index}", "has a place in an arena that does not exist")


def verify_no_workspaces(program: ProgramRecord, where: str) -> None:
    """An open program plans its workspaces, those of bodies too, when shapes are known."""
    for _, _, step in walk_steps(program):
        is_free = step.workspace_offset is None
        require(is_free, f"{where}, step {show(step.name)}", "has a workspace in an arena that does not exist")


def verify_arena(program: ProgramRecord, manifest: Manifest, profile: int, where: str) -> None:
    """Check every place in the arena of the program of a profile."""
    needs = _Needs(_symbol_ranges(program, manifest, manifest.profiles[profile] if manifest.profiles else None))
    arenas = {"": program.arena_bytes, **program.arenas}
    require("" not in program.arenas, where, "has two arenas on the host")
    largest = dict.fromkeys(arenas, 0)
    for index, value in enumerate(program.values):
        place = f"{where}, value {index}"
        if value.kind == "planned" and value.alias is None:
            offset, size = _verify_place(value, needs, place)
            is_inside = offset + size <= arenas.get(value.memory, -1)
            require(is_inside, place, "lies outside the arena", (offset, size))
            largest[value.memory] = max(largest[value.memory], offset + max(align(size), ALIGNMENT_BYTES))
        else:
            # What the builder found no use for is dynamic and keeps an empty place at the start.
            require(not value.offset, place, "has a place in the arena and is not planned")
    workspaces = _find_workspaces(program, arenas, where)
    for space in workspaces:
        largest[space.memory] = max(largest[space.memory], space.start + max(align(space.size), ALIGNMENT_BYTES))
    # Nobody may be made to reserve memory that no value uses.
    for memory, size in arenas.items():
        check_range(size, MAX_BYTES, where, "arena size out of range")
        require(size <= largest[memory], where, "the arena is larger than the values in it", size)
        _verify_disjoint(program, memory, [space for space in workspaces if space.memory == memory], where)


class _PlacedWorkspace(NamedTuple):
    """The bytes that one step, or the bodies of one, use while it runs."""

    memory: str
    position: int
    start: int
    size: int


def _find_workspaces(program: ProgramRecord, arenas: Mapping[str, int], where: str) -> list[_PlacedWorkspace]:
    """Check the place of every workspace; the bodies of a step share one, which no value of the program may touch."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for position, owner, step in walk_steps(program):
        place = f"{where}, step {show(step.name)}"
        if not is_planned_workspace(step):
            require(step.workspace_offset is None, place, "has a place for a workspace that it does not have")
            continue
        memory = memory_of_step(owner, step)
        start, stop = _verify_workspace(step, arenas.get(memory, -1), place)
        low, high = found.get((memory, position), (start, stop))
        found[memory, position] = (min(low, start), max(high, stop))
    return [_PlacedWorkspace(memory, at, start, stop - start) for (memory, at), (start, stop) in found.items()]


def _verify_workspace(step: StepRecord, arena_bytes: int, where: str) -> tuple[int, int]:
    require(step.workspace_offset is not None, where, "has a workspace without a place in the arena")
    offset = step.workspace_offset or 0
    check_range(offset, MAX_BYTES, where, "its workspace lies outside the arena")
    require(offset % ALIGNMENT_BYTES == 0, where, f"its workspace does not start at a multiple of {ALIGNMENT_BYTES}")
    stop = offset + step.workspace_bytes
    require(stop <= arena_bytes, where, "its workspace lies outside the arena", (offset, step.workspace_bytes))
    return offset, stop


def _symbol_ranges(program: ProgramRecord, manifest: Manifest, profile: ProfileRecord | None) -> Ranges:
    """The smallest and largest value of each symbol that inputs decide and the profile bounds."""
    tensors = dict(zip(program.inputs, manifest.inputs, strict=True))
    ranges = {}
    for symbol in program.symbols:
        tensor = tensors.get(symbol.value)
        if tensor is None:
            continue
        entries = {} if profile is None else profile.shapes if symbol.source == "dim" else profile.values
        bounds = entries.get(tensor.name)
        fixed = tensor.sizes[symbol.index] if symbol.source == "dim" and tensor.sizes is not None else None
        if fixed is not None:
            ranges[symbol.name] = (fixed, fixed)
        elif bounds is not None and symbol.index < len(bounds[0]):
            ranges[symbol.name] = (bounds[0][symbol.index], bounds[2][symbol.index])
    return ranges


def _verify_place(value: ValueRecord, needs: _Needs, where: str) -> tuple[int, int]:
    """Check the place of one value and return its offset and size."""
    require(value.offset is not None, where, "is planned but has no place in the arena")
    require(value.size_bytes is not None, where, "is planned but has no size")
    offset, size = value.offset or 0, value.size_bytes or 0
    check_range(size, MAX_BYTES, where, "has a size out of range")
    check_range(offset, MAX_BYTES, where, "lies outside the arena")
    require(offset % ALIGNMENT_BYTES == 0, where, f"does not start at a multiple of {ALIGNMENT_BYTES}", offset)
    needed = needs.find(value, where)
    require(needed <= size, where, "has less room in the arena than its shape can need", (size, needed))
    return offset, size


class _Needs:
    """How many bytes values can need at most; few shapes occur, so each is worked out once."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._known: dict[tuple[Any, ...], int] = {}

    def find(self, value: ValueRecord, where: str) -> int:
        dims = value.dims or ()
        key = (value.dtype, value.format, bool(value.memory), *dims)
        if key not in self._known:
            self._known[key] = self._work_out(value, dims, where)
        return self._known[key]

    def _work_out(self, value: ValueRecord, dims: Sequence[Dim], where: str) -> int:
        bound = []
        # Every dimension of what is planned is known: that was checked with the program.
        for dim in [dim for dim in dims if dim is not None]:
            unbounded = symbols_of(dim) - self._ranges.keys()
            require(not unbounded, where, "is planned and the profile does not bound its shape", sorted(unbounded)[:3])
            bound.append(max(interval(dim, self._ranges)[1], 0))
        physical = packed_shape(bound, TensorFormat[value.format])
        if value.memory:  # two four-bit elements share a byte there
            return stored_size_bytes(value.dtype, physical)
        return math.prod(physical) * dtype_from_name(value.dtype).itemsize


def _verify_disjoint(program: ProgramRecord, memory: str, workspaces: Sequence[_PlacedWorkspace], where: str) -> None:
    """Walk the steps in order with the places in use at each, which never overlap, sorted."""
    spans = value_lifetimes(program)
    places = [
        (w.position, w.position, w.start, w.start + w.size, f"the workspace of step {w.position}") for w in workspaces
    ]
    for index, value in enumerate(program.values):
        is_here = value.kind == "planned" and value.memory == memory
        if is_here and value.alias is None and value.size_bytes and index in spans:
            start = value.offset or 0
            places.append((*spans[index], start, start + value.size_bytes, f"value {index}"))
    used: list[tuple[int, int]] = []
    ends: list[tuple[int, tuple[int, int]]] = []
    for first, last, start, stop, what in sorted(places):
        while ends and ends[0][0] < first:
            used.pop(bisect_left(used, heappop(ends)[1]))
        position = bisect_left(used, (start, stop))
        before, after = used[max(position - 1, 0) : position], used[position : position + 1]
        is_free = all(other[1] <= start for other in before) and all(stop <= other[0] for other in after)
        require(is_free, f"{where}, {what}", "lies on the bytes of another value that is still needed", start)
        used.insert(position, (start, stop))
        heappush(ends, (last, (start, stop)))
