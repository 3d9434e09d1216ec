"""Reductions over axes, positions of extremes, and running sums and products.

Every Reduce op has two forms: axes as an attribute in older opsets, axes as an input in newer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from dovetail.providers.cpu._numeric import BOOL, FLOATS, INTEGERS, NUMBERS, Array
from dovetail.providers.cpu.kernels._checks import normalize_axes, normalize_axis, read_scalar, require
from dovetail.providers.cpu.kernels._support import IEEE_FLOATS, WORDS, float_reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["Reduction", "accumulate", "cumulative_product", "cumulative_sum", "log_sum_exp"]

Axes = tuple[int, ...]
Reduction = Callable[[Array, Axes], Array]
"""Reduces the axes and keeps them with length one."""


def _sum(x: Array, axes: Axes) -> Array:
    return np.sum(x, axis=axes, keepdims=True, dtype=x.dtype)


def _product(x: Array, axes: Axes) -> Array:
    return np.asarray(np.prod(x, axis=axes, keepdims=True, dtype=x.dtype))


def _maximum(x: Array, axes: Axes) -> Array:
    return np.asarray(np.max(x, axis=axes, keepdims=True, initial=_limit(x.dtype, "min")))


def _minimum(x: Array, axes: Axes) -> Array:
    return np.asarray(np.min(x, axis=axes, keepdims=True, initial=_limit(x.dtype, "max")))


def _limit(dtype: np.dtype[Any], end: str) -> Any:
    """What the extreme of nothing is: an infinity, or the end of the range of a type that has none."""
    if dtype.kind == "f":
        return np.inf if end == "max" else -np.inf
    if dtype.kind == "b":
        return end == "max"
    return getattr(np.iinfo(dtype), end)


def _mean(x: Array, axes: Axes) -> Array:
    count = np.prod([x.shape[axis] for axis in axes], dtype=np.int64)
    if x.dtype.kind == "f":
        return np.asarray(_sum(x, axes) / x.dtype.type(count))
    total = np.sum(x, axis=axes, keepdims=True, dtype=np.uint64 if x.dtype.kind == "u" else np.int64)
    quotient = np.abs(total) // total.dtype.type(count)
    return np.where(total < 0, -quotient.astype(np.int64), quotient).astype(x.dtype)


def _l1(x: Array, axes: Axes) -> Array:
    return _sum(np.abs(x), axes)


def _l2(x: Array, axes: Axes) -> Array:
    return np.sqrt(_sum_square(x, axes))


def _sum_square(x: Array, axes: Axes) -> Array:
    return _sum(np.square(x), axes)


def _log_sum(x: Array, axes: Axes) -> Array:
    return np.log(_sum(x, axes))


def log_sum_exp(x: Array, axes: Axes) -> Array:
    """The logarithm of the sum of exponentials, shifted by the largest element so that nothing overflows."""
    largest = _maximum(x, axes)
    shift = np.where(np.isfinite(largest), largest, 0).astype(x.dtype)
    return np.asarray(np.log(_sum(np.exp(x - shift), axes)) + shift)


def _in_float64(reduce: Reduction) -> Reduction:
    """Integers are reduced in float64 and truncated, for reductions that leave the integers on the way."""

    def compute(x: Array, axes: Axes) -> Array:
        return reduce(x, axes) if x.dtype.kind == "f" else reduce(x.astype(np.float64), axes).astype(x.dtype)

    return compute


_AXES_INPUT_SINCE: Final = {"ReduceSum": 13}
"""All others take axes as an input since opset 18."""

_REDUCTIONS: Final[dict[str, Reduction]] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": _maximum,
    "ReduceMin": _minimum,
    "ReduceProd": _product,
    "ReduceL1": _l1,
    "ReduceL2": _in_float64(_l2),
    "ReduceSumSquare": _sum_square,
    "ReduceLogSum": _in_float64(_log_sum),
    "ReduceLogSumExp": _in_float64(log_sum_exp),
}


def _register(op: str, reduce: Reduction) -> None:
    def run(x: Array, axes: Sequence[int] | None, keepdims: int) -> Array:
        chosen = normalize_axes(op, axes, x.ndim)
        reduced = np.asarray(reduce(x, chosen))
        return reduced if keepdims else reduced.reshape([n for axis, n in enumerate(x.shape) if axis not in chosen])

    def axes_attribute(x: Array, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Array:
        return run(x, axes or None, keepdims)

    def axes_input(x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
        named = () if axes is None else tuple(axes.reshape(-1).tolist())
        return run(x, named if named or noop_with_empty_axes else None, keepdims)

    since = _AXES_INPUT_SINCE.get(op, 18)
    is_order = op in ("ReduceMax", "ReduceMin")
    integers = WORDS + (("int8", "uint8") if is_order else ())
    old_floats = FLOATS if since > 13 else IEEE_FLOATS  # bfloat16 came in opset 13
    kernel(op, since=1, until=since - 1, types={"T": old_floats + integers})(float_reference(axes_attribute))
    new_types = FLOATS + integers + (BOOL if is_order else ())
    kernel(op, since=since, types={"T": new_types})(float_reference(axes_input))


for _op, _reduce in _REDUCTIONS.items():
    _register(_op, _reduce)


def _register_position(op: str, find: Callable[..., Array]) -> None:
    def locate(x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
        along = normalize_axis(op, axis, x.ndim)
        require(x.shape[along] > 0, op, "the axis has no elements", got=x.shape)
        values = np.flip(x, along) if select_last_index else x
        found = find(values, axis=along, keepdims=bool(keepdims))
        return np.asarray(x.shape[along] - 1 - found if select_last_index else found, dtype=np.int64)

    def locate_first(x: Array, *, axis: int = 0, keepdims: int = 1) -> Array:
        return locate(x, axis=axis, keepdims=keepdims)

    kernel(op, since=1, until=11, types={"T": IEEE_FLOATS + INTEGERS})(float_reference(locate_first))
    kernel(op, since=12, types={"T": NUMBERS})(float_reference(locate))


_register_position("ArgMax", np.argmax)
_register_position("ArgMin", np.argmin)


def accumulate(x: Array, axis: int, running: np.ufunc, *, start: int, exclusive: bool, reverse: bool) -> Array:
    """Running totals along an axis; an exclusive one is shifted by one, with ``start`` in front."""
    moved = np.moveaxis(x, axis, 0)
    values = moved[::-1] if reverse else moved
    if exclusive:
        first = np.full_like(values[:1], start)
        values = np.concatenate([first, values[:-1]])
    total = running.accumulate(values, axis=0, dtype=x.dtype)
    return np.ascontiguousarray(np.moveaxis(total[::-1] if reverse else total, 0, axis))


@kernel("CumSum", since=11, types={"T": FLOATS + WORDS, "T2": ("int32", "int64")})
@float_reference
def cumulative_sum(x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """Running sums along an axis."""
    along = normalize_axis("CumSum", int(read_scalar("CumSum", "axis", axis)), x.ndim)
    return accumulate(x, along, np.add, start=0, exclusive=bool(exclusive), reverse=bool(reverse))


@kernel("CumProd", since=26, types={"T": FLOATS + WORDS, "T2": ("int32", "int64")})
@float_reference
def cumulative_product(x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """Running products along an axis."""
    along = normalize_axis("CumProd", int(read_scalar("CumProd", "axis", axis)), x.ndim)
    return accumulate(x, along, np.multiply, start=1, exclusive=bool(exclusive), reverse=bool(reverse))
