"""Tensors made from shapes and attributes alone: Constant, ConstantOfShape, Range, EyeLike, Shape and Size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import fail, read_scalar, require, require_room
from dovetail.providers.cpu.kernels._conversion import dtype_of
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["constant", "constant_of_shape", "eye_like", "range_27", "range_of", "shape_1", "shape_of", "size_of"]


@kernel("Constant", since=1)
def constant(
    *,
    value: Array | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Array:
    """The tensor of whichever attribute is given; a sparse value is not taken."""
    choices: list[tuple[Any, type[Any]]] = [
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    ]
    given = [np.array(item, dtype=dtype) for item, dtype in choices if item is not None]
    if value is not None:
        given.append(value.copy())
    require(len(given) == 1, "Constant", "exactly one value must be given", expected=1, got=len(given))
    return given[0]


@kernel("ConstantOfShape", since=9)
def constant_of_shape(shape: Array, *, value: Array | None = None) -> Array:
    """A tensor of this shape filled with one value."""
    op = "ConstantOfShape"
    sizes = tuple(int(n) for n in shape.reshape(-1))
    require(min(sizes, default=0) >= 0, op, "sizes must not be negative", got=sizes)
    fill = np.zeros(1, dtype=np.float32) if value is None else value
    require(fill.size == 1, op, "'value' must hold one element", expected=1, got=fill.size)
    require_room(op, sizes, fill.dtype)
    return np.full(sizes, fill.reshape(()), dtype=fill.dtype)


@kernel("Shape", since=1, until=14)
def shape_1(data: Array) -> Array:
    """Shape before a part of it could be asked for."""
    return shape_of(data)


@kernel("Shape", since=15)
def shape_of(data: Array, *, start: int = 0, end: int | None = None) -> Array:
    """The sizes of the axes from ``start`` to ``end``."""
    return np.array(data.shape[start:end], dtype=np.int64)


@kernel("Size", since=1)
def size_of(data: Array) -> Array:
    """The count of elements."""
    return np.array(data.size, dtype=np.int64)


_STEPPED = ("float32", "float64", "int16", "int32", "int64")


@kernel("Range", since=11, until=26, types={"T": _STEPPED})
@float_reference
def range_of(start: Array, limit: Array, delta: Array) -> Array:
    """Numbers from start towards limit, which is left out."""
    op, dtype = "Range", start.dtype
    first, last, step = (read_scalar(op, name, x) for name, x in (("start", start), ("limit", limit), ("delta", delta)))
    require(step != 0, op, "'delta' must not be zero")
    if dtype.kind == "i":
        whole = range(int(first), int(last), int(step))
        require_room(op, [_count(whole)], np.dtype(np.int64))
        return (np.arange(len(whole), dtype=np.int64) * int(step) + int(first)).astype(dtype)
    exact = float(limit.reshape(()) - start.reshape(())) / step
    if not math.isfinite(exact):
        fail(op, "the count of elements is not finite", got=(first, last, step))
    count = max(math.ceil(exact), 0)
    require_room(op, [count], np.dtype(np.int64))
    steps = np.arange(count).astype(dtype)
    return np.asarray(start.reshape(()) + steps * delta.reshape(()))


def _count(numbers: range) -> int:
    """The length of a range, which ``len`` refuses to say past the largest index."""
    return max(-(-(numbers.stop - numbers.start) // numbers.step), 0)


@kernel("Range", since=27, types={"T": (*FLOATS, *_STEPPED)})
def range_27(start: Array, limit: Array, delta: Array, *, stash_type: int = 1) -> Array:
    """Range whose narrow floats are computed in another type; it is float32 here, whatever the model allows."""
    require(stash_type in (1, 10, 11, 16), "Range", "'stash_type' is no float type", got=stash_type)
    y: Array = range_of(start, limit, delta)
    return y


@kernel("EyeLike", since=9)
def eye_like(x: Array, *, dtype: int | None = None, k: int = 0) -> Array:
    """Ones on a diagonal, zeros elsewhere, in the shape of the input."""
    require(x.ndim == 2, "EyeLike", "the input must be a matrix", got=x.shape)
    rows, columns = x.shape
    return np.eye(rows, columns, k=k).astype(x.dtype if dtype is None else dtype_of(dtype))
