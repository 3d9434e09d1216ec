"""Operators that only move elements: each says from where an element of the result comes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np

from dovetail_cuda.lower.expr import Expr, apply, both, convert, literal, position, select, within
from dovetail_cuda.lower.index import Index, flatten, unflatten
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.sizes import as_size, is_fixed, least
from dovetail_cuda.lower.tensors import Tensor, broadcast_shapes, broadcast_to, make_constant, refuse
from dovetail_cuda.lower.types import TYPES

__all__ = ["concat", "find_axes", "find_axis", "move", "pad", "reshape_to", "transpose_to"]

Coordinates = Sequence[Index]
_FAR: Final = 2**31 - 1
"""Ends of slices from here on mean the end of the dimension, however long it is."""


def find_axis(axis: Any, rank: int) -> int:
    """An axis from 0 on."""
    number = int(axis)
    if not -rank <= number < max(rank, 1):
        raise refuse(f"a tensor of {rank} dimensions has no axis {number}")
    return number % max(rank, 1)


def find_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes from 0 on, in order; all of them where none are named."""
    if axes is None or np.size(axes) == 0:
        return tuple(range(rank))
    return tuple(sorted({find_axis(axis, rank) for axis in np.ravel(axes)}))


def move(x: Tensor, shape: Sequence[int], source: Callable[[Coordinates], Coordinates]) -> Tensor:
    """The elements of a tensor in another order or number: ``source`` says where each comes from."""

    def pull(coordinates: Coordinates, guard: Expr | None) -> Expr:
        return x.at(source(coordinates), guard)

    return Tensor(shape=tuple(as_size(size) for size in shape), dtype=x.dtype, pull=pull, is_mapped=True)


def reshape_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements under another shape."""
    shape = tuple(as_size(size) for size in shape)
    if math.prod(shape) != x.count:
        raise refuse(f"{x.count} elements do not make the shape {shape}")
    if shape == x.shape:
        return x

    def pull(coordinates: Coordinates, guard: Expr | None) -> Expr:
        return x.at(unflatten(flatten(coordinates, shape), x.shape), guard)

    return Tensor(shape=shape, dtype=x.dtype, pull=pull, buffer=x.buffer, is_mapped=x.is_mapped)


def transpose_to(x: Tensor, order: Sequence[int]) -> Tensor:
    """The dimensions in another order."""
    places = {axis: place for place, axis in enumerate(order)}
    return move(x, [x.shape[axis] for axis in order], lambda at: [at[places[axis]] for axis in range(x.rank)])


@registry.register("Transpose", since=1, types={"T": TYPES})
def transpose(x: Tensor, *, perm: Sequence[int] = ()) -> Tensor:
    """The dimensions in another order, by default turned round."""
    order = [find_axis(axis, x.rank) for axis in perm] or list(reversed(range(x.rank)))
    return transpose_to(x, order)


@registry.register("Reshape", since=5, types={"T": TYPES}, host_inputs=(1,))
def reshape(x: Tensor, shape: Any, *, allowzero: int = 0) -> Tensor:
    """The same elements under another shape, of which one size may be left open."""
    sizes = [as_size(size) for size in shape]
    if not allowzero:
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    if -1 in sizes:
        known = -math.prod(sizes)
        sizes[sizes.index(-1)] = x.count // known if known else 0
    return reshape_to(x, sizes)


@registry.register("Flatten", since=1, types={"T": TYPES})
def flatten_to_matrix(x: Tensor, *, axis: int = 1) -> Tensor:
    """The dimensions before an axis, and those from it on."""
    cut = axis + x.rank if axis < 0 else axis
    return reshape_to(x, (math.prod(x.shape[:cut]), math.prod(x.shape[cut:])))


@registry.register("Squeeze", since=13, types={"T": TYPES}, host_inputs=(1,))
def squeeze(x: Tensor, axes: Any = None) -> Tensor:
    """Without dimensions of size 1."""
    if axes is None:
        if any(not is_fixed(size) and least(size) <= 1 for size in x.shape):
            raise refuse("how many dimensions are left depends on sizes that vary")
        return reshape_to(x, [size for size in x.shape if size != 1])
    dropped = find_axes(axes, x.rank) if np.size(axes) else ()
    return reshape_to(x, [size for axis, size in enumerate(x.shape) if axis not in dropped])


@registry.register("Unsqueeze", since=13, types={"T": TYPES}, host_inputs=(1,))
def unsqueeze(x: Tensor, axes: Any) -> Tensor:
    """With further dimensions of size 1."""
    rank = x.rank + np.size(axes)
    added = {find_axis(axis, rank) for axis in np.ravel(axes)}
    sizes = iter(x.shape)
    return reshape_to(x, [1 if axis in added else next(sizes) for axis in range(rank)])


@registry.register("Slice", since=10, types={"T": TYPES}, host_inputs=(1, 2, 3, 4))
def slice_out(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    """Every so manyth element of a range along axes."""
    along = [find_axis(axis, x.rank) for axis in (range(len(starts)) if axes is None else axes)]
    strides = np.ones(len(along), np.int64) if steps is None else steps
    cuts = {
        axis: _find_cut(as_size(start), as_size(end), int(step), x.shape[axis])
        for axis, start, end, step in zip(along, starts, ends, strides, strict=True)
    }
    shape = [_count_cut(*cuts[axis]) if axis in cuts else size for axis, size in enumerate(x.shape)]

    def source(at: Coordinates) -> Coordinates:
        return [at[axis] * cuts[axis][2] + cuts[axis][0] if axis in cuts else at[axis] for axis in range(x.rank)]

    return move(x, shape, source)


def _find_cut(start: int, end: int, step: int, size: int) -> tuple[int, int, int]:
    """Where a slice begins and ends inside a dimension."""
    if is_fixed(start) and is_fixed(end) and is_fixed(size):
        return slice(start, end, step).indices(size)
    first, last = (0, size) if step > 0 else (-1, size - 1)
    return _clamp(start, size, first, last), _clamp(end, size, first, last), step


def _clamp(place: int, size: int, first: int, last: int) -> int:
    if is_fixed(place) and abs(place) >= _FAR:
        return last if place > 0 else first
    inside = place + size if place < 0 else place
    return max(min(inside, last), first)


def _count_cut(start: int, end: int, step: int) -> int:
    if is_fixed(start) and is_fixed(end):
        return len(range(start, end, step))
    distance = end - start if step > 0 else start - end
    return max(-(-distance // abs(step)), 0)


@registry.register("Split", since=13, types={"T": TYPES}, host_inputs=(1,))
def split(x: Tensor, sizes: Any = None, *, axis: int = 0, num_outputs: int = 1) -> tuple[Tensor, ...]:
    """Parts along an axis."""
    axis = find_axis(axis, x.rank)
    whole, part = x.shape[axis], -(-x.shape[axis] // num_outputs)
    given = [max(min(part, whole - part * n), 0) for n in range(num_outputs)] if sizes is None else sizes
    lengths = [as_size(size) for size in given]
    starts = [0, *accumulate(lengths)]
    return tuple(_part(x, axis, start, length) for start, length in zip(starts, lengths, strict=False))


def _part(x: Tensor, axis: int, start: int, length: int) -> Tensor:
    shape = [length if each == axis else size for each, size in enumerate(x.shape)]
    return move(x, shape, lambda at: [c + start if each == axis else c for each, c in enumerate(at)])


@registry.register("Concat", since=4, types={"T": TYPES})
def concat(*tensors: Tensor, axis: int) -> Tensor:
    """One after the other along an axis."""
    axis = find_axis(axis, tensors[0].rank)
    parts = [tensor for tensor in tensors if tensor.shape[axis]] or [tensors[0]]
    starts = [0, *accumulate(part.shape[axis] for part in parts)]
    shape = [starts[-1] if each == axis else size for each, size in enumerate(parts[0].shape)]

    def pull(coordinates: Coordinates, guard: Expr | None) -> Expr:
        result: Expr | None = None
        for part, start in zip(reversed(parts), reversed(starts[:-1]), strict=True):
            own = [c - start if each == axis else c for each, c in enumerate(coordinates)]
            inside = within(own[axis], 0, part.shape[axis])
            value = part.at(own, both(guard, inside))
            result = value if result is None else select(inside, value, result)
        assert result is not None  # noqa: S101 - there is a part
        return result

    return Tensor(shape=tuple(shape), dtype=tensors[0].dtype, pull=pull, is_mapped=True)


@registry.register("Expand", since=8, types={"T": TYPES}, host_inputs=(1,))
def expand(x: Tensor, shape: Any) -> Tensor:
    """Dimensions of size 1 repeated."""
    return broadcast_to(x, broadcast_shapes(x.shape, [as_size(size) for size in shape]))


@registry.register("Tile", since=6, types={"T": TYPES}, host_inputs=(1,))
def tile(x: Tensor, repeats: Any) -> Tensor:
    """The whole repeated along every axis."""
    shape = [size * as_size(count) for size, count in zip(x.shape, repeats, strict=True)]
    return move(x, shape, lambda at: [c % size for c, size in zip(at, x.shape, strict=True)])


@registry.register("DepthToSpace", since=1, types={"T": TYPES})
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels laid out as blocks of an image."""
    n, c, h, w = x.shape
    b, deep = blocksize, c // blocksize**2
    if mode == "DCR":
        parts = transpose_to(reshape_to(x, (n, b, b, deep, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        parts = transpose_to(reshape_to(x, (n, deep, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return reshape_to(parts, (n, deep, h * b, w * b))


@registry.register("SpaceToDepth", since=1, types={"T": TYPES})
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Blocks of an image laid out as channels."""
    n, c, h, w = x.shape
    b = blocksize
    parts = reshape_to(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return reshape_to(transpose_to(parts, order), (n, c * b * b, h // b, w // b))


# padding


@registry.register("Pad", since=11, types={"T": TYPES}, host_inputs=(1, 3))
def pad_edges(x: Tensor, pads: Any, value: Tensor | None = None, axes: Any = None, *, mode: str = "constant") -> Tensor:
    """More elements round the edges."""
    along = [find_axis(axis, x.rank) for axis in (range(x.rank) if axes is None else axes)]
    before, after = [0] * x.rank, [0] * x.rank
    for place, axis in enumerate(along):
        before[axis], after[axis] = int(pads[place]), int(pads[place + len(along)])
    if mode == "constant":
        filler = make_constant(0, (), x.dtype) if value is None else reshape_to(value, ())
        return pad(x, before, after, filler)
    x, before, after = _cut(x, before, after)
    if mode == "wrap":
        return _pad_by(x, before, after, lambda c, size: c % size)
    return _pad_by(x, before, after, _EDGES[mode])


def pad(x: Tensor, before: Sequence[int], after: Sequence[int], filler: Tensor) -> Tensor:
    """A tensor with one element round its edges; negative numbers cut it."""
    shape = [size + low + high for size, low, high in zip(x.shape, before, after, strict=True)]

    def pull(coordinates: Coordinates, guard: Expr | None) -> Expr:
        own = [c - low for c, low in zip(coordinates, before, strict=True)]
        inside: Expr | None = None
        for coordinate, size in zip(own, x.shape, strict=True):
            inside = both(inside, within(coordinate, 0, size))
        return select(inside, x.at(own, both(guard, inside)), filler.at((), guard))

    return Tensor(shape=tuple(shape), dtype=x.dtype, pull=pull, is_mapped=True)


def _cut(x: Tensor, before: Sequence[int], after: Sequence[int]) -> tuple[Tensor, list[int], list[int]]:
    """A tensor without what negative numbers cut, and what is to be added to it: it repeats what is left."""
    low, high = ([min(each, 0) for each in side] for side in (before, after))
    shape = [size + first + last for size, first, last in zip(x.shape, low, high, strict=True)]
    more, most = ([max(each, 0) for each in side] for side in (before, after))
    if any((*low, *high)):
        x = move(x, shape, lambda at: [c - first for c, first in zip(at, low, strict=True)])
    return x, more, most


def _pad_by(x: Tensor, before: Sequence[int], after: Sequence[int], find: Callable[[Index, int], Index]) -> Tensor:
    shape = [size + low + high for size, low, high in zip(x.shape, before, after, strict=True)]

    def source(at: Coordinates) -> Coordinates:
        return [
            find(c - low, size) if low or high else c
            for c, low, high, size in zip(at, before, after, x.shape, strict=True)
        ]

    return move(x, shape, source)


def _by_value(text: str) -> Callable[[Index, int], Index]:
    """An index that is computed: no sum of quotients says where it is."""

    def find(coordinate: Index, size: int) -> Index:
        last = literal(size - 1, "int64")
        return Index.gathered(apply(text, position(coordinate), last, dtype="int64"), size)

    return find


_EDGES = {
    "edge": _by_value("tl.minimum(tl.maximum({0}, 0), {1})"),
    "reflect": _by_value("({1} - tl.abs({1} - tl.abs({0})))"),
}


# elements by their places


@registry.register("Trilu", since=14, types={"T": TYPES})
def trilu(x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    """What is above or below a diagonal."""
    shift = make_constant(0, (), "int64") if k is None else reshape_to(k, ())
    text = "{1} - {0} >= {2}" if upper else "{1} - {0} <= {2}"
    zero = literal(0, x.dtype)

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        is_kept = apply(text, position(at[-2]), position(at[-1]), shift.at((), guard), dtype="bool")
        return select(is_kept, x.at(at, guard), zero)

    return Tensor(shape=x.shape, dtype=x.dtype, pull=pull)


@registry.register("EyeLike", since=9, types={"T1": TYPES, "T2": TYPES})
def eye_like(x: Tensor, *, dtype: int = 0, k: int = 0) -> Tensor:
    """Ones on a diagonal."""
    from dovetail_cuda.lower.pointwise import cast

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        shift = literal(k, "int64")
        return apply("{1} - {0} == {2}", position(at[0]), position(at[1]), shift, dtype="bool")

    diagonal = Tensor(shape=x.shape, dtype="bool", pull=pull)
    if dtype:
        return cast(diagonal, to=dtype)
    return map_elements(lambda a: convert(a, x.dtype), diagonal, dtype=x.dtype)


@registry.register("ConstantOfShape", since=9, types={"T2": TYPES}, host_inputs=(0,))
def constant_of_shape(shape: Any, *, value: Any = None) -> Tensor:
    """One number everywhere."""
    array = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return make_constant(array.reshape(-1)[0].item(), [as_size(size) for size in shape], array.dtype.name)


@registry.register(
    "Range", since=11, types={"T": ("int16", "int32", "int64", "float32", "float64")}, host_inputs=(0, 1, 2)
)
def make_range(start: Any, limit: Any, delta: Any) -> Tensor:
    """Numbers at even distances."""
    first, last, step = (np.ravel(each)[0] for each in (start, limit, delta))
    dtype = next(
        (np.asarray(each).dtype.name for each in (start, limit, delta) if is_fixed(np.ravel(each)[0])), "int64"
    )
    if all(is_fixed(each) for each in (first, last, step)):
        count = max(math.ceil((float(last) - float(first)) / float(step)), 0)
    else:
        count = _count_cut(as_size(first), as_size(last), int(step))

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        numbers = (literal(first, dtype), literal(step, dtype))
        return apply("{1} + {0} * {2}", convert(position(at[0]), dtype), *numbers, dtype=dtype)

    return Tensor(shape=(count,), dtype=dtype, pull=pull)
