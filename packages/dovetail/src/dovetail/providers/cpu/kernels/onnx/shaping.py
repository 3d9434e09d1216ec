"""Moving whole tensors: new shapes, new axis orders, joining, splitting and repeating.

Nothing is computed here, so every element type is taken, and every result is a new array that shares no memory with
its input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import normalize_axes, normalize_axis, require, require_room
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "concat",
    "depth_to_space",
    "expand",
    "flatten",
    "reshape",
    "space_to_depth",
    "split",
    "split_attribute",
    "squeeze",
    "squeeze_attribute",
    "tile",
    "transpose",
    "unsqueeze",
    "unsqueeze_attribute",
]


def _reshape_into(data: Array, *shape_and_out: Array, **attributes: Any) -> None:
    """For all ops that give the same elements in another shape, which is the output's."""
    out = shape_and_out[-1]
    out[...] = data.reshape(out.shape)


@kernel("Reshape", since=5, into=_reshape_into)
def reshape(data: Array, shape: Array, *, allowzero: int = 0) -> Array:
    """The same elements in another shape; 0 keeps an axis and -1 takes what is left."""
    op = "Reshape"
    wanted = [int(n) for n in shape.reshape(-1)]
    if not allowzero:
        kept = [i for i, n in enumerate(wanted) if n == 0]
        require(all(i < data.ndim for i in kept), op, "0 stands for an axis the input lacks", got=wanted)
        wanted = [data.shape[i] if i in kept else n for i, n in enumerate(wanted)]
    require(wanted.count(-1) <= 1 and min(wanted, default=0) >= -1, op, "only one size may be -1", got=wanted)
    known = math.prod(n for n in wanted if n != -1)
    if -1 in wanted:
        require(
            known > 0 and data.size % known == 0, op, "sizes do not divide the input", expected=data.size, got=wanted
        )
        wanted[wanted.index(-1)] = data.size // known
    else:
        require(known == data.size, op, "the count of elements would change", expected=data.size, got=known)
    return data.reshape(wanted).copy()


@kernel("Flatten", since=1, into=_reshape_into)
def flatten(x: Array, *, axis: int = 1) -> Array:
    """A matrix: the axes before ``axis`` become its rows, the others its columns."""
    require(-x.ndim <= axis <= x.ndim, "Flatten", "axis is out of range", expected=f"{-x.ndim}..{x.ndim}", got=axis)
    first = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:first]), math.prod(x.shape[first:])).copy()


def _transpose_into(data: Array, out: Array, *, perm: Sequence[int] | None = None) -> None:
    out[...] = data.transpose(perm)


@kernel("Transpose", since=1, into=_transpose_into)
def transpose(data: Array, *, perm: Sequence[int] | None = None) -> Array:
    """The axes in another order, reversed unless one is given."""
    order = tuple(reversed(range(data.ndim))) if perm is None else tuple(perm)
    require(sorted(order) == list(range(data.ndim)), "Transpose", "'perm' is no order of the axes", got=order)
    return data.transpose(order).copy()


@kernel("Squeeze", since=1, until=12, into=_reshape_into)
def squeeze_attribute(data: Array, *, axes: Sequence[int] | None = None) -> Array:
    """Squeeze with the axes as an attribute."""
    return squeeze(data, None if axes is None else np.asarray(axes))


@kernel("Squeeze", since=13, into=_reshape_into)
def squeeze(data: Array, axes: Array | None = None) -> Array:
    """Remove axes of size one: those named, or all."""
    if axes is None:
        gone = tuple(i for i, n in enumerate(data.shape) if n == 1)
    else:
        gone = normalize_axes("Squeeze", axes.reshape(-1).tolist(), data.ndim)
    wide = [i for i in gone if data.shape[i] != 1]
    require(not wide, "Squeeze", f"axes {wide} are not of size one", got=data.shape)
    return np.squeeze(data, axis=gone).copy()


@kernel("Unsqueeze", since=1, until=12, into=_reshape_into)
def unsqueeze_attribute(data: Array, *, axes: Sequence[int]) -> Array:
    """Unsqueeze with the axes as an attribute."""
    return unsqueeze(data, np.asarray(axes))


@kernel("Unsqueeze", since=13, into=_reshape_into)
def unsqueeze(data: Array, axes: Array) -> Array:
    """Insert axes of size one, named by where they are in the result."""
    places = normalize_axes("Unsqueeze", axes.reshape(-1).tolist(), data.ndim + axes.size)
    return np.expand_dims(data, places).copy()


def _expand_into(x: Array, shape: Array, out: Array) -> None:
    out[...] = x


@kernel("Expand", since=8, into=_expand_into)
def expand(x: Array, shape: Array) -> Array:
    """Repeat along axes of size one until both shapes broadcast."""
    wanted = tuple(int(n) for n in shape.reshape(-1))
    require(min(wanted, default=0) >= 0, "Expand", "sizes must not be negative", got=wanted)
    for size, other in zip(reversed(x.shape), reversed(wanted), strict=False):
        require(1 in (size, other) or size == other, "Expand", "shapes do not broadcast", expected=x.shape, got=wanted)
    require_room("Expand", wanted, x.dtype)
    result = np.broadcast_shapes(x.shape, wanted)
    require_room("Expand", result, x.dtype)
    return np.broadcast_to(x, result).copy()


@kernel("Tile", since=6)
def tile(x: Array, repeats: Array) -> Array:
    """Repeat the whole tensor along each axis."""
    counts = tuple(int(n) for n in repeats.reshape(-1))
    require(len(counts) == x.ndim, "Tile", "'repeats' has the wrong length", expected=x.ndim, got=len(counts))
    require(min(counts, default=0) >= 0, "Tile", "'repeats' must not be negative", got=counts)
    # Each axis is repeated as the outer half of a pair, which a broadcast makes without a loop.
    paired = tuple(n for size in x.shape for n in (1, size))
    spread = tuple(n for count, size in zip(counts, x.shape, strict=True) for n in (count, size))
    shape = tuple(count * size for count, size in zip(counts, x.shape, strict=True))
    require_room("Tile", shape, x.dtype)
    if 0 in shape:
        return np.zeros(shape, dtype=x.dtype)
    return np.array(np.broadcast_to(x.reshape(paired), spread)).reshape(shape)


def _concat_into(*arrays: Array, axis: int) -> None:
    np.concatenate(arrays[:-1], axis=axis, out=arrays[-1])


@kernel("Concat", since=4, into=_concat_into)
def concat(*inputs: Array, axis: int) -> Array:
    """Join tensors along an axis."""
    first = inputs[0]
    where = normalize_axis("Concat", axis, first.ndim)
    for part in inputs[1:]:
        fits = part.ndim == first.ndim and all(
            a == b for i, (a, b) in enumerate(zip(part.shape, first.shape, strict=True)) if i != where
        )
        require(fits, "Concat", "inputs differ off the axis", expected=first.shape, got=part.shape)
    return np.concatenate(inputs, axis=where)


@kernel("Split", since=2, until=12)
def split_attribute(
    x: Array, *, axis: int = 0, split: Sequence[int] | None = None, num_outputs: int = 1
) -> tuple[Array, ...]:
    """Split with the sizes as an attribute."""
    sizes = None if split is None else np.asarray(split)
    return _split(x, sizes, axis=axis, num_outputs=num_outputs)


@kernel("Split", since=13)
def split(x: Array, split: Array | None = None, *, axis: int = 0, num_outputs: int = 1) -> tuple[Array, ...]:
    """Cut along an axis into parts of these sizes, or into equal ones of which the last may be smaller."""
    return _split(x, split, axis=axis, num_outputs=num_outputs)


def _split(x: Array, split: Array | None, *, axis: int, num_outputs: int) -> tuple[Array, ...]:
    where = normalize_axis("Split", axis, x.ndim)
    length = x.shape[where]
    if split is None:
        chunk = -(-length // num_outputs)
        sizes = [min(chunk, max(length - i * chunk, 0)) for i in range(num_outputs)]
    else:
        sizes = [int(n) for n in split.reshape(-1)]
        fits = min(sizes, default=0) >= 0 and sum(sizes) == length
        require(fits, "Split", "sizes do not add up to the axis", expected=length, got=sizes)
        require(len(sizes) == num_outputs, "Split", "sizes and outputs differ", expected=num_outputs, got=len(sizes))
    parts = np.split(x, np.cumsum(sizes)[:-1].tolist(), axis=where)
    return tuple(part.copy() for part in parts)


def _check_blocks(op: str, x: Array, blocksize: int) -> None:
    require(x.ndim == 4, op, "the input must have four axes", got=x.shape)
    require(blocksize > 0, op, "'blocksize' must be positive", got=blocksize)


@kernel("DepthToSpace", since=1)
def depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Move blocks of channels into height and width."""
    op, b = "DepthToSpace", blocksize
    _check_blocks(op, x, b)
    n, c, h, w = x.shape
    require(c % (b * b) == 0, op, f"{c} channels do not divide into blocks of {b * b}")
    require(mode in ("DCR", "CRD"), op, "'mode' is unknown", expected="DCR or CRD", got=mode)
    if mode == "DCR":
        blocks = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.copy().reshape(n, c // (b * b), h * b, w * b)


@kernel("SpaceToDepth", since=1)
def space_to_depth(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Move blocks of height and width into channels."""
    op, b = "SpaceToDepth", blocksize
    _check_blocks(op, x, b)
    n, c, h, w = x.shape
    require(h % b == 0 and w % b == 0, op, f"height and width do not divide into blocks of {b}", got=x.shape)
    require(mode in ("DCR", "CRD"), op, "'mode' is unknown", expected="DCR or CRD", got=mode)
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return blocks.transpose(order).copy().reshape(n, c * b * b, h // b, w // b)
