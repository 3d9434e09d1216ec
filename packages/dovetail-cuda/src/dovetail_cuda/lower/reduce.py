"""Sums and the like over axes: every one is a row of a few lines over the same template."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from dovetail_cuda.lower.expr import Expr, apply, convert, literal, position
from dovetail_cuda.lower.indexing import find_axes, find_axis
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, Rows, RowTensor, Tensor
from dovetail_cuda.lower.types import FLOATS, NUMBERS, WIDE

__all__ = ["log_softmax", "make_reduced", "make_rows"]

_EXTREME: Final = (*WIDE, "int8", "uint8")
_TEXTS: Final = {
    # op: (kind, text before, text after, types)
    "ReduceL1": ("sum", "tl.abs({0})", "{0}", WIDE),
    "ReduceL2": ("sum", "{0} * {0}", "tl.sqrt({0})", FLOATS),
    "ReduceLogSum": ("sum", "{0}", "tl.log({0})", FLOATS),
    "ReduceMax": ("max", "{0}", "{0}", _EXTREME),
    "ReduceMean": ("sum", "{0}", "{0} / {1}", FLOATS),
    "ReduceMin": ("min", "{0}", "{0}", _EXTREME),
    "ReduceProd": ("prod", "{0}", "{0}", WIDE),
    "ReduceSum": ("sum", "{0}", "{0}", WIDE),
    "ReduceSumSquare": ("sum", "{0} * {0}", "{0}", WIDE),
}


def make_rows(x: Tensor, axes: Sequence[int], body: Callable[[Rows], Expr], dtype: str | None = None) -> RowTensor:
    """A tensor of the same shape, of which each element depends on its whole row."""
    rows = Rows(x.shape, axes)
    return RowTensor(shape=x.shape, dtype=dtype or x.dtype, rows=rows, value=body(rows), is_reduced=False)


def make_reduced(
    x: Tensor, axes: Sequence[int], body: Callable[[Rows], Expr], *, keep: bool, dtype: str | None = None
) -> RowTensor:
    """A tensor with one element for each row."""
    rows = Rows(x.shape, axes)
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
    return RowTensor(shape=tuple(shape), dtype=dtype or x.dtype, rows=rows, value=body(rows), is_reduced=True)


def _reduce(op: str, x: Tensor, axes: Any, keepdims: int, noop_with_empty_axes: int) -> Lowered:
    kind, before, after, _ = _TEXTS[op]
    along = _find_reduced(x, axes, noop_with_empty_axes)
    count = literal(math.prod(x.shape[axis] for axis in along), x.dtype)

    def body(rows: Rows) -> Expr:
        total = rows.reduce(kind, apply(before, rows.read(x), dtype=x.dtype))
        if kind in ("max", "min") and x.dtype in FLOATS:
            total = apply("{0} + {1}", total, _find_nan(rows, x), dtype=x.dtype)
        return apply(after, total, count, dtype=x.dtype)

    return make_reduced(x, along, body, keep=bool(keepdims))


def _find_reduced(x: Tensor, axes: Any, noop_with_empty_axes: int) -> Sequence[int]:
    """The axes that a sum is over: where it is to be over none, each element is a row."""
    is_empty = axes is None or len(axes) == 0
    return () if is_empty and noop_with_empty_axes else find_axes(axes, x.rank)


def _find_nan(rows: Rows, x: Tensor) -> Expr:
    """Zero, or no number where some element of the row is none: the largest of a tile passes over those."""
    return rows.reduce("sum", apply("tl.where({0} == {0}, 0.0, {0})", rows.read(x), dtype=x.dtype))


def _register_reduction(op: str, attribute_until: int) -> None:
    """Axes were an attribute once, and are an input now."""
    types = {"T": _TEXTS[op][3]}
    first = {"T": [name for name in types["T"] if name != "bfloat16"]} if op == "ReduceSum" else types

    @registry.register(op, since=11, until=attribute_until, types=first)
    def with_attribute(x: Tensor, *, axes: Any = None, keepdims: int = 1) -> Lowered:
        return _reduce(op, x, axes, keepdims, 0)

    @registry.register(op, since=attribute_until + 1, types=types, host_inputs=(1,))
    def with_input(x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Lowered:
        return _reduce(op, x, axes, keepdims, noop_with_empty_axes)


for _op in _TEXTS:
    _register_reduction(_op, 12 if _op == "ReduceSum" else 17)


def _log_sum_exp(x: Tensor, axes: Any, keepdims: int, noop_with_empty_axes: int) -> Lowered:
    def body(rows: Rows) -> Expr:
        value = rows.read(x)
        # The largest is taken out, so that nothing overflows; of nothing but infinities nothing is taken out.
        top = apply("tl.where(tl.abs({0}) == float('inf'), 0.0, {0})", rows.reduce("max", value), dtype=x.dtype)
        total = rows.reduce("sum", apply("tl.exp({0} - {1})", value, top, dtype=x.dtype))
        return apply("tl.log({0}) + {1}", total, top, dtype=x.dtype)

    return make_reduced(x, _find_reduced(x, axes, noop_with_empty_axes), body, keep=bool(keepdims))


@registry.register("ReduceLogSumExp", since=11, until=17, types={"T": FLOATS})
def log_sum_exp_by_attribute(x: Tensor, *, axes: Any = None, keepdims: int = 1) -> Lowered:
    """The logarithm of a sum of exponentials."""
    return _log_sum_exp(x, axes, keepdims, 0)


@registry.register("ReduceLogSumExp", since=18, types={"T": FLOATS}, host_inputs=(1,))
def log_sum_exp(x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Lowered:
    """The same, with axes as an input."""
    return _log_sum_exp(x, axes, keepdims, noop_with_empty_axes)


def _register_arg(op: str, kind: str) -> None:
    @registry.register(op, since=11, types={"T": NUMBERS})
    def lower(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Lowered:
        along, last = find_axis(axis, x.rank), literal(x.shape[axis] - 1, "int64")

        def body(rows: Rows) -> Expr:
            coordinates = list(rows.coordinates)
            if select_last_index:
                coordinates[along] = coordinates[along] * -1 + (x.shape[along] - 1)
            found = convert(rows.reduce(kind, x.at(coordinates), "int32"), "int64")
            return apply("{1} - {0}", found, last, dtype="int64") if select_last_index else found

        return make_reduced(x, (along,), body, keep=bool(keepdims), dtype="int64")


_register_arg("ArgMax", "argmax")
_register_arg("ArgMin", "argmin")


# rows that stay rows


def _softmax_parts(rows: Rows, x: Tensor) -> tuple[Expr, Expr]:
    """Each element less the largest of its row, and the sum of the exponentials of these."""
    value = rows.read(x)
    shifted = apply("{0} - {1}", value, rows.reduce("max", value), dtype=x.dtype)
    return shifted, rows.reduce("sum", apply("tl.exp({0})", shifted, dtype=x.dtype))


@registry.register("Softmax", since=13, types={"T": FLOATS})
def softmax(x: Tensor, *, axis: int = -1) -> Lowered:
    """Exponentials that add up to one."""

    def body(rows: Rows) -> Expr:
        shifted, total = _softmax_parts(rows, x)
        return apply("tl.exp({0}) / {1}", shifted, total, dtype=x.dtype)

    return make_rows(x, (find_axis(axis, x.rank),), body)


@registry.register("LogSoftmax", since=13, types={"T": FLOATS})
def log_softmax(x: Tensor, *, axis: int = -1) -> Lowered:
    """Their logarithms."""

    def body(rows: Rows) -> Expr:
        shifted, total = _softmax_parts(rows, x)
        return apply("{0} - tl.log({1})", shifted, total, dtype=x.dtype)

    return make_rows(x, (find_axis(axis, x.rank),), body)


@registry.register("Hardmax", since=13, types={"T": FLOATS})
def hardmax(x: Tensor, *, axis: int = -1) -> Lowered:
    """One at the first of the largest, zero elsewhere."""

    def body(rows: Rows) -> Expr:
        first = convert(rows.reduce("argmax", rows.read(x), "int32"), "int64")
        return convert(apply("{0} == {1}", position(rows.column), first, dtype="bool"), x.dtype)

    return make_rows(x, (find_axis(axis, x.rank),), body)


@registry.register("LpNormalization", since=1, types={"T": FLOATS})
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Lowered:
    """Rows of length one."""

    def body(rows: Rows) -> Expr:
        value = rows.read(x)
        total = rows.reduce("sum", apply("{0} * {0}" if p == 2 else "tl.abs({0})", value, dtype=x.dtype))
        length = apply("tl.sqrt({0})", total, dtype=x.dtype) if p == 2 else total
        return apply("tl.where({1} == 0, 0.0, {0} / {1})", value, length, dtype=x.dtype)

    return make_rows(x, (find_axis(axis, x.rank),), body)
