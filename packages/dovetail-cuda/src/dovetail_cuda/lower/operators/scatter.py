"""Operators that write elements to places which are elements of a tensor.

Each element of the result looks for the updates that are meant for it, so that nothing is written twice and a result
is the same in every run: right for all indices, and not fast where there are many updates. Of several updates of one
element without a reduction the last counts. An index beyond the end changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from dovetail_cuda.lower.expr import Expr, apply, both, convert, literal, position, select, within
from dovetail_cuda.lower.index import Index, unflatten
from dovetail_cuda.lower.indexing import find_axis
from dovetail_cuda.lower.operators.gather import clamp_index
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, Rows, Tensor, Update, refuse
from dovetail_cuda.lower.types import TYPES, WIDE, is_float

__all__: list[str] = []

Coordinates = Sequence[Index]
FindUpdate = Callable[[Coordinates, Index, "Expr | None"], tuple[Expr, Expr]]
"""For an element of the result and the number of an update: whether it is meant for the element, and what it is."""
_KINDS: Final = {"add": ("sum", "{0} + {1}"), "mul": ("prod", "{0} * {1}"), "max": ("max", ""), "min": ("min", "")}
_OLD_TYPES: Final = [name for name in TYPES if name != "bfloat16"]
_NAN: Final = ", propagate_nan=tl.PropagateNan.ALL"


def _scatter(data: Tensor, count: int, find: FindUpdate, reduction: str) -> Lowered:
    """The elements of a tensor, each with the updates among so many that are meant for it."""
    if not count or not data.count:
        return data
    if reduction != "none" and (reduction not in _KINDS or data.dtype not in WIDE):
        raise refuse(f"it does not scatter {data.dtype} by '{reduction}'")
    pairs = Tensor(shape=(*data.shape, count), dtype=data.dtype, pull=lambda at, guard: find(at[:-1], at[-1], guard)[1])

    def body(rows: Rows) -> Expr:
        *own, number = rows.coordinates
        return _take_last(rows, own, number) if reduction == "none" else _combine(rows, own, number)

    def _take_last(rows: Rows, own: Coordinates, number: Index) -> Expr:
        is_meant, _ = find(own, number, None)
        last = rows.reduce("max", select(is_meant, position(number), literal(-1, "int64")))
        has_any = apply("{0} >= 0", last, dtype="bool")
        _, update = find(own, clamp_index(last, count), has_any)
        return select(has_any, update, data.at(own))

    def _combine(rows: Rows, own: Coordinates, number: Index) -> Expr:
        is_meant, update = find(own, number, None)
        kind, text = _KINDS[reduction]
        nan = _NAN if is_float(data.dtype) else ""
        both_of = text or f"tl.{'maximum' if kind == 'max' else 'minimum'}({{0}}, {{1}}{nan})"
        neutral = literal(_find_neutral(kind, data.dtype), data.dtype)
        found = rows.reduce(kind, select(is_meant, update, neutral))
        return apply(both_of, data.at(own), found, dtype=data.dtype)

    return make_reduced(pairs, (data.rank,), body, keep=False)


def _find_neutral(kind: str, dtype: str) -> float:
    """What changes nothing."""
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    if is_float(dtype):
        return -np.inf if kind == "max" else np.inf
    limits = np.iinfo(dtype)
    return int(limits.min if kind == "max" else limits.max)


def _from_the_end(value: Expr, size: int) -> Expr:
    """An index of which negative numbers count from the end."""
    wide = convert(value, "int64")
    return apply("tl.where({0} < 0, {0} + {1}, {0})", wide, literal(size, "int64"), dtype="int64")


@registry.register("ScatterElements", since=11, until=15, types={"T": TYPES, "Tind": ("int32", "int64")})
@registry.register("Scatter", since=9, until=10, types={"T": _OLD_TYPES, "Tind": ("int32", "int64")})
def scatter_elements_plain(data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0) -> Lowered:
    """Elements along an axis, each at a place of its own."""
    return scatter_elements(data, indices, updates, axis=axis)


@registry.register("ScatterElements", since=16, types={"T": TYPES, "Tind": ("int32", "int64")})
def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Lowered:
    """The same, with what is there combined with what comes."""
    axis = find_axis(axis, data.rank)

    def find(at: Coordinates, number: Index, guard: Expr | None) -> tuple[Expr, Expr]:
        source = [number if each == axis else coordinate for each, coordinate in enumerate(at)]
        inside: Expr | None = None
        for each, coordinate in enumerate(source):
            if each != axis:
                inside = both(inside, within(coordinate, 0, indices.shape[each]))
        index = _from_the_end(indices.at(source, both(guard, inside)), data.shape[axis])
        is_meant = both(inside, apply("{0} == {1}", index, position(at[axis]), dtype="bool"))
        return _always(is_meant), updates.at(source, both(guard, inside))

    return _scatter(data, indices.shape[axis], find, reduction)


def _always(condition: Expr | None) -> Expr:
    return literal(value=True, dtype="bool") if condition is None else condition


@registry.register("ScatterND", since=11, until=15, types={"T": TYPES})
def scatter_nd_plain(data: Tensor, indices: Tensor, updates: Tensor) -> Lowered:
    """Slices at places that are several numbers."""
    return scatter_nd(data, indices, updates)


@registry.register("ScatterND", since=16, types={"T": TYPES})
def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Lowered:
    """The same, with what is there combined with what comes."""
    outer, depth = indices.shape[:-1], indices.shape[-1]
    if depth > data.rank:
        raise refuse(f"a tensor of {data.rank} dimensions has no places of {depth} numbers")

    def find(at: Coordinates, number: Index, guard: Expr | None) -> tuple[Expr, Expr]:
        place, is_meant = unflatten(number, outer), None
        for axis in range(depth):
            index = _from_the_end(indices.at((*place, Index((), axis)), guard), data.shape[axis])
            is_meant = both(is_meant, apply("{0} == {1}", index, position(at[axis]), dtype="bool"))
        return _always(is_meant), updates.at((*place, *at[depth:]), guard)

    return _scatter(data, int(np.prod(outer)), find, reduction)


def _wrap(number: Expr, length: Any) -> Expr:
    """A position counted round a length; the remainder of a negative number may be negative."""
    rest = apply("{0} % {1}", number, literal(length, "int64"), dtype="int64")
    return apply("tl.where({0} < 0, {0} + {1}, {0})", rest, literal(length, "int64"), dtype="int64")


@registry.register("TensorScatter", since=24, types={"T": TYPES})
def tensor_scatter(
    past: Tensor, update: Tensor, write_indices: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """A cache with new entries written behind a number of old ones, for each sample its own; round its end or not."""
    axis = find_axis(axis, past.rank)
    length, added = past.shape[axis], update.shape[axis]

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        start: Any = literal(0, "int64") if write_indices is None else write_indices.at((at[0],), guard)
        moved = apply("{0} - {1}", position(at[axis]), convert(start, "int64"), dtype="int64")
        if mode == "circular":
            moved = _wrap(moved, length)
        is_new = apply("({0} >= 0) & ({0} < {1})", moved, literal(added, "int64"), dtype="bool")
        source = [clamp_index(moved, added) if each == axis else c for each, c in enumerate(at)]
        return select(is_new, update.at(source, both(guard, is_new)), past.at(at, guard))

    def place(at: Coordinates) -> Coordinates:
        start: Any = literal(0, "int64") if write_indices is None else write_indices.at((at[0],), None)
        number = convert(start, "int64")
        if mode == "circular":
            moved = (clamp_index(_wrap(number, length), length) + at[axis]) % length
        else:
            moved = clamp_index(number, length - added + 1) + at[axis]
        return [moved if each == axis else c for each, c in enumerate(at)]

    return Tensor(shape=past.shape, dtype=past.dtype, pull=pull, update=Update(base=past, source=update, place=place))
