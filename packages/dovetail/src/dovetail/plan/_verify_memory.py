"""The rules for the arena of a program with a profile: every value fits its place, and no two live ones share bytes.

Two values on the same bytes would not crash, for both lie inside the arena, but each would overwrite the other: such a
plan gives wrong results, so it counts as damaged.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from dovetail.expr import decode_expr, interval, symbols_of
from dovetail.formats import packed_shape
from dovetail.plan._rules import MAX_BYTES, check_range, dtype_from_name, require
from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import Manifest, ProfileRecord, ProgramRecord, ValueRecord
from dovetail.provider.arena import ALIGNMENT_BYTES, align
from dovetail.types import TensorFormat

__all__ = ["verify_arena", "verify_unplaced"]

Ranges = Mapping[str, tuple[int, int]]


def verify_unplaced(program: ProgramRecord, where: str) -> None:
    """An open program and a body have no arena before they run."""
    has_arena = program.arena_bytes != 0 or bool(program.arenas)
    require(not has_arena, where, "has an arena, which only programs with a profile have")
    for index, value in enumerate(program.values):
        require(value.offset is None, f"{where}, value {index}", "has a place in an arena that does not exist")


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
    # Nobody may be made to reserve memory that no value uses.
    for memory, size in arenas.items():
        check_range(size, MAX_BYTES, where, "arena size out of range")
        require(size <= largest[memory], where, "the arena is larger than the values in it", size)
        _verify_disjoint(program, memory, where)


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
        fixed = tensor.dims[symbol.index] if symbol.source == "dim" and tensor.dims is not None else None
        if isinstance(fixed, int):
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
        is_plain = all(type(dim) is int or type(dim) is str for dim in dims)
        key = (value.dtype, value.format, *dims) if is_plain else None
        if key is None or key not in self._known:
            needed = self._work_out(value, dims, where)
            if key is None:
                return needed
            self._known[key] = needed
        return self._known[key]

    def _work_out(self, value: ValueRecord, dims: Sequence[Any], where: str) -> int:
        bound = []
        for dim in dims:
            expr = decode_expr(dim)
            unbounded = symbols_of(expr) - self._ranges.keys()
            require(not unbounded, where, "is planned and the profile does not bound its shape", sorted(unbounded)[:3])
            bound.append(max(interval(expr, self._ranges)[1], 0))
        return math.prod(packed_shape(bound, TensorFormat[value.format])) * dtype_from_name(value.dtype).itemsize


def _verify_disjoint(program: ProgramRecord, memory: str, where: str) -> None:
    """Walk the steps in order with the places in use at each, which never overlap, sorted."""
    spans = value_lifetimes(program)
    places = []
    for index, value in enumerate(program.values):
        is_here = value.kind == "planned" and value.memory == memory
        if is_here and value.alias is None and value.size_bytes and index in spans:
            places.append((*spans[index], value.offset or 0, (value.offset or 0) + value.size_bytes, index))
    used: list[tuple[int, int]] = []
    ends: list[tuple[int, tuple[int, int]]] = []
    for first, last, start, stop, index in sorted(places):
        while ends and ends[0][0] < first:
            used.pop(bisect_left(used, heappop(ends)[1]))
        position = bisect_left(used, (start, stop))
        before, after = used[max(position - 1, 0) : position], used[position : position + 1]
        is_free = all(other[1] <= start for other in before) and all(stop <= other[0] for other in after)
        require(is_free, f"{where}, value {index}", "lies on the bytes of another value that is still needed", start)
        used.insert(position, (start, stop))
        heappush(ends, (last, (start, stop)))
