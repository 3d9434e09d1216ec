"""Operators that read elements by indices which are themselves elements of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_cuda.lower.expr import Expr, Literal, apply, convert, literal, position, select
from dovetail_cuda.lower.index import Index, Var
from dovetail_cuda.lower.indexing import find_axis
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Tensor
from dovetail_cuda.lower.types import TYPES

__all__ = ["clamp_index"]

Coordinates = Sequence[Index]


def clamp_index(value: Expr, size: int) -> Index:
    """A value as an index; one beyond the end reads the last element, for a kernel can tell nobody."""
    last = literal(Var("", size).bounds[1], "int64")
    return Index.gathered(apply("tl.minimum(tl.maximum({0}, 0), {1})", value, last, dtype="int64"), size)


def _find_index(indices: Tensor, at: Coordinates, guard: Expr | None, size: int) -> Index:
    """An element of a tensor of indices, those from the end included, as an index."""
    found, end = indices.at(at, guard), literal(size, "int64")
    if isinstance(found, Literal):
        number = int(found.value)
        return Index((), min(max(number + size if number < 0 else number, 0), max(size - 1, 0)))
    value = convert(found, "int64")
    return clamp_index(apply("tl.where({0} < 0, {0} + {1}, {0})", value, end, dtype="int64"), size)


@registry.register("Gather", since=1, types={"T": TYPES, "Tind": ("int32", "int64")})
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Slices along an axis, by number."""
    axis = find_axis(axis, x.rank)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        inner = at[axis : axis + indices.rank]
        index = _find_index(indices, inner, guard, x.shape[axis])
        return x.at((*at[:axis], index, *at[axis + indices.rank :]), guard)

    return Tensor(shape=shape, dtype=x.dtype, pull=pull, is_mapped=True)


@registry.register("GatherElements", since=11, types={"T": TYPES, "Tind": ("int32", "int64")})
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Elements along an axis, each by a number of its own."""
    axis = find_axis(axis, x.rank)

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        index = _find_index(indices, at, guard, x.shape[axis])
        return x.at((*at[:axis], index, *at[axis + 1 :]), guard)

    return Tensor(shape=indices.shape, dtype=x.dtype, pull=pull, is_mapped=True)


@registry.register("GatherND", since=11, types={"T": TYPES})
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Slices by several numbers at once."""
    depth = indices.shape[-1]
    shape = (*indices.shape[:-1], *x.shape[batch_dims + depth :])

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        outer, inner = at[: indices.rank - 1], at[indices.rank - 1 :]
        found = [
            _find_index(indices, (*outer, Index((), place)), guard, x.shape[batch_dims + place])
            for place in range(depth)
        ]
        return x.at((*at[:batch_dims], *found, *inner), guard)

    return Tensor(shape=shape, dtype=x.dtype, pull=pull, is_mapped=True)


@registry.register("OneHot", since=9, types={"T1": ("int32", "int64", "float32"), "T3": TYPES}, host_inputs=(1,))
def one_hot(indices: Tensor, depth: Any, values: Tensor, *, axis: int = -1) -> Tensor:
    """One of two values: where the coordinate is the index, and elsewhere."""
    size = int(np.ravel(depth)[0])
    axis = find_axis(axis, indices.rank + 1)
    shape = (*indices.shape[:axis], size, *indices.shape[axis:])

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        value = convert(indices.at((*at[:axis], *at[axis + 1 :]), guard), "int64")
        index = apply("tl.where({0} < 0, {0} + {1}, {0})", value, literal(size, "int64"), dtype="int64")
        is_hot = apply("{0} == {1}", index, position(at[axis]), dtype="bool")
        return select(is_hot, values.at((Index((), 1),), guard), values.at((Index(),), guard))

    return Tensor(shape=shape, dtype=values.dtype, pull=pull)
