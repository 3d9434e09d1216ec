"""Normalizations: rows with their mean and variance taken out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dovetail_cuda.lower.expr import Expr, apply, both, convert, literal, within
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import find_axis, reshape_to
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.reduce import make_reduced, make_rows
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, Rows, Tensor, broadcast_to, refuse
from dovetail_cuda.lower.types import FLOATS

__all__ = ["divide_by_root", "normalize_last"]


def _moments(rows: Rows, value: Expr, epsilon: float) -> tuple[Expr, Expr, Expr]:
    """What is left of an element without the mean, the mean, and one over the deviation, all in single precision."""
    dtype = "float64" if value.dtype == "float64" else "float32"
    value, count = convert(value, dtype), literal(rows.num_columns, dtype)
    mean = apply("{0} / {1}", rows.reduce("sum", value), count, dtype=dtype)
    centered = apply("{0} - {1}", value, mean, dtype=dtype)
    squares = rows.reduce("sum", apply("{0} * {0}", centered, dtype=dtype))
    text = "1 / tl.sqrt_rn({0} / {1} + {2})"
    return centered, mean, apply(text, squares, count, literal(epsilon, dtype), dtype=dtype)


def _scale(value: Expr, dtype: str, scale: Expr | None, bias: Expr | None) -> Expr:
    if scale is not None:
        value = apply("{0} * {1}", value, convert(scale, value.dtype), dtype=value.dtype)
    if bias is not None:
        value = apply("{0} + {1}", value, convert(bias, value.dtype), dtype=value.dtype)
    return convert(value, dtype)


@registry.register("LayerNormalization", since=17, types={"T": FLOATS, "U": ("float32",)})
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    num_outputs: int = 1,
) -> tuple[Lowered, ...]:
    """The last dimensions normalized, then scaled and shifted."""
    return normalize_last(x, scale, bias, axis=axis, epsilon=epsilon, num_outputs=num_outputs, dtype=x.dtype)


def normalize_last(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    *,
    axis: int = -1,
    epsilon: float,
    num_outputs: int = 1,
    dtype: str,
) -> tuple[Lowered, ...]:
    """The last dimensions normalized, then scaled and shifted, in a type; also the mean and one over the deviation."""
    axes = range(find_axis(axis, x.rank), x.rank)

    def body(rows: Rows) -> Expr:
        centered, _, inverse = _moments(rows, rows.read(x), epsilon)
        normal = apply("{0} * {1}", centered, inverse, dtype=centered.dtype)
        return _scale(normal, dtype, rows.read(scale), None if bias is None else rows.read(bias))

    def moment(number: int) -> Lowered:
        def find(rows: Rows) -> Expr:
            return convert(_moments(rows, rows.read(x), epsilon)[number], "float32")

        return make_reduced(x, axes, find, keep=True, dtype="float32")

    return (make_rows(x, axes, body, dtype), *(moment(number) for number in range(1, num_outputs)))


@registry.register("RMSNormalization", since=23, types={"T": FLOATS, "V": FLOATS})
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Lowered:
    """The last dimensions divided by the root of their mean square, then scaled."""
    return divide_by_root(x, scale, axis=axis, epsilon=epsilon, dtype=x.dtype)[0]


def divide_by_root(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float, dtype: str) -> tuple[Lowered, Lowered]:
    """The last dimensions divided by the root of their mean square, then scaled, in a type; and one over the root."""
    axes = range(find_axis(axis, x.rank), x.rank)

    def invert(rows: Rows) -> tuple[Expr, Expr]:
        wide = "float64" if x.dtype == "float64" else "float32"
        value = convert(rows.read(x), wide)
        squares = rows.reduce("sum", apply("{0} * {0}", value, dtype=wide))
        numbers = literal(rows.num_columns, wide), literal(epsilon, wide)
        return value, apply("1 / tl.sqrt_rn({0} / {1} + {2})", squares, *numbers, dtype=wide)

    def body(rows: Rows) -> Expr:
        value, inverse = invert(rows)
        return _scale(apply("{0} * {1}", value, inverse, dtype=value.dtype), dtype, rows.read(scale), None)

    def find(rows: Rows) -> Expr:
        return convert(invert(rows)[1], "float32")

    return make_rows(x, axes, body, dtype), make_reduced(x, axes, find, keep=True, dtype="float32")


def _along_channels(tensor: Tensor, rank: int) -> Tensor:
    """One number a channel, so that it can be stretched over images."""
    return reshape_to(tensor, (1, tensor.shape[0], *(1,) * (rank - 2)))


@registry.register("InstanceNormalization", since=6, types={"T": FLOATS})
def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Lowered:
    """Every channel of every image normalized by itself."""

    def body(rows: Rows) -> Expr:
        centered, _, inverse = _moments(rows, rows.read(x), epsilon)
        normal = apply("{0} * {1}", centered, inverse, dtype=centered.dtype)
        factor, shift = (rows.read(_along_channels(tensor, x.rank)) for tensor in (scale, bias))
        return _scale(normal, x.dtype, factor, shift)

    return make_rows(x, range(2, x.rank), body)


@registry.register("GroupNormalization", since=21, types={"T": FLOATS})
def group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Lowered:
    """Groups of channels normalized together."""
    channels = x.shape[1]
    if channels % num_groups:
        raise refuse(f"{channels} channels do not make {num_groups} groups")
    shape = (x.shape[0], num_groups, channels // num_groups, math.prod(x.shape[2:]))
    grouped = reshape_to(x, shape)

    def body(rows: Rows) -> Expr:
        centered, _, inverse = _moments(rows, rows.read(grouped), epsilon)
        normal = apply("{0} * {1}", centered, inverse, dtype=centered.dtype)
        parts = [reshape_to(tensor, (1, num_groups, shape[2], 1)) for tensor in (scale, bias)]
        return _scale(normal, x.dtype, rows.read(parts[0]), rows.read(parts[1]))

    from dataclasses import replace

    return replace(make_rows(grouped, (2, 3), body), shape=x.shape)


@registry.register("BatchNormalization", since=15, types={"T": FLOATS, "T1": FLOATS, "T2": FLOATS})
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    num_outputs: int = 1,
) -> Tensor:
    """Channels normalized by numbers that are known."""
    if training_mode or num_outputs > 1:
        raise refuse("it has no training")
    given = [_stretch_channels(tensor, x.shape) for tensor in (scale, bias, mean, variance)]

    def normalize(a: Expr, *numbers: Expr) -> Expr:
        factor, shift, center, spread = (convert(number, "float32") for number in numbers)
        text = "({0} - {3}) * ({1} / tl.sqrt_rn({4} + {5})) + {2}"
        value = convert(a, "float32")
        eps = literal(epsilon, "float32")
        return convert(apply(text, value, factor, shift, center, spread, eps, dtype="float32"), x.dtype)

    return map_elements(normalize, x, *given, dtype=x.dtype)


def _stretch_channels(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    return broadcast_to(_along_channels(tensor, max(len(shape), 2)), shape)


@registry.register("LRN", since=1, until=12, types={"T": ("float16", "float32", "float64")})
@registry.register("LRN", since=13, types={"T": FLOATS})
def local_response_normalization(
    x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Lowered:
    """Elements divided by a power of the squares of the channels round theirs."""
    channels, before = x.shape[1], (size - 1) // 2
    wide = "float64" if x.dtype == "float64" else "float32"

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        channel = at[1] + at[-1] - before
        inside = within(channel, 0, channels)
        value = convert(x.at((at[0], channel, *at[2:-1]), both(guard, inside)), wide)
        return apply("{0} * {0}", value, dtype=wide)

    squares = Tensor(shape=(*x.shape, size), dtype=wide, pull=pull)

    def body(rows: Rows) -> Expr:
        numbers = [literal(number, wide) for number in (bias, alpha / size, beta)]
        total, value = rows.reduce("sum", rows.read(squares)), convert(x.at(rows.coordinates[:-1]), wide)
        return convert(apply("{0} / f.pow({2} + {3} * {1}, {4})", value, total, *numbers, dtype=wide), x.dtype)

    return make_reduced(squares, (x.rank,), body, keep=False, dtype=x.dtype)
