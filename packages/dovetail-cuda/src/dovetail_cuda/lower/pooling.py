"""Windows that slide over images: pooling, and transposed convolutions as sums over windows."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Final

from dovetail_cuda.lower.expr import Expr, apply, both, literal, select, within
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import pad
from dovetail_cuda.lower.pointwise import MAXIMUM, map_elements
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.sizes import is_fixed
from dovetail_cuda.lower.sliding import Sliding, plan_sliding
from dovetail_cuda.lower.tensors import Lowered, Rows, Tensor, make_constant, refuse
from dovetail_cuda.lower.types import FLOATS

__all__ = ["slide"]

Ints = Sequence[int]
_MOST_TAPS: Final = 9
"""Windows up to this many elements are put together one by one."""


def slide(x: Tensor, sliding: Sliding, filler: float, *, is_counting: bool = False) -> Tensor:
    """(N, C, *windows, *kernel): every window of every image, with a number where it reaches over the edge.

    With ``is_counting`` the elements are 1 where the image and its padding are, and 0 beyond.
    """
    rank = len(sliding.kernel)
    if is_counting:
        sizes = [size + low + high for size, low, high in zip(x.shape[2:], sliding.before, sliding.after, strict=True)]
        source, before = make_constant(1, (*x.shape[:2], *sizes), x.dtype), [0] * rank
    else:
        source, before = x, list(sliding.before)
    reach = [
        (sliding.outputs[a] - 1) * sliding.strides[a] + sliding.dilations[a] * (sliding.kernel[a] - 1) + 1
        for a in range(rank)
    ]
    missing = [reach[a] - before[a] - source.shape[2 + a] for a in range(rank)]
    # Where it varies whether windows reach over the edge, the tensor ends where they do.
    after = [max(size, 0) if is_fixed(size) else size for size in missing]
    padded = pad(source, (0, 0, *before), (0, 0, *after), make_constant(filler, (), x.dtype))

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        windows, inner = at[2 : 2 + rank], at[2 + rank :]
        places = [
            window * stride + offset * dilation
            for window, stride, offset, dilation in zip(windows, sliding.strides, inner, sliding.dilations, strict=True)
        ]
        return padded.at((*at[:2], *places), guard)

    shape = (*x.shape[:2], *sliding.outputs, *sliding.kernel)
    return Tensor(shape=tuple(shape), dtype=x.dtype, pull=pull, is_mapped=True)


def _unroll(windows: Tensor, sliding: Sliding, text: str) -> Tensor | None:
    """The elements of each window put together one by one, where they are few; None where they are not.

    One element a lane then reads along memory, whatever the window is.
    """
    if math.prod(sliding.kernel) > _MOST_TAPS:
        return None
    taps = list(itertools.product(*(range(size) for size in sliding.kernel)))

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        parts = [windows.at((*at, *(Index((), offset) for offset in tap)), guard) for tap in taps]
        return functools.reduce(lambda a, b: apply(text, a, b, dtype=windows.dtype), parts)

    return Tensor(shape=windows.shape[: -len(sliding.kernel)], dtype=windows.dtype, pull=pull)


def _window_axes(windows: Tensor, sliding: Sliding) -> range:
    return range(windows.rank - len(sliding.kernel), windows.rank)


@registry.register("MaxPool", since=8, types={"T": FLOATS})
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    strides: Ints = (),
    dilations: Ints = (),
    pads: Ints = (),
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
    num_outputs: int = 1,
) -> Lowered:
    """The largest of each window."""
    if num_outputs > 1:
        raise refuse("it does not tell where the largest was")
    sliding = plan_sliding(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    windows = slide(x, sliding, float("-inf"))
    few = _unroll(windows, sliding, MAXIMUM)
    if few is not None:
        return few
    axes = _window_axes(windows, sliding)
    return make_reduced(windows, axes, lambda rows: rows.reduce("max", rows.read(windows)), keep=False)


@registry.register("AveragePool", since=7, types={"T": FLOATS})
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    strides: Ints = (),
    dilations: Ints = (),
    pads: Ints = (),
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Lowered:
    """The mean of each window, with or without what is padding."""
    sliding = plan_sliding(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    windows = slide(x, sliding, 0.0)
    few = None if any(sliding.before) or any(sliding.after) or ceil_mode else _unroll(windows, sliding, "{0} + {1}")
    if few is not None:
        size = literal(math.prod(sliding.kernel), x.dtype)
        return map_elements(lambda a: apply("{0} / {1}", a, size, dtype=x.dtype), few, dtype=x.dtype)
    ones = make_constant(1, x.shape, x.dtype)
    counted = slide(x, sliding, 0.0, is_counting=True) if count_include_pad else slide(ones, sliding, 0.0)

    def body(rows: Rows) -> Expr:
        total, count = rows.reduce("sum", rows.read(windows)), rows.reduce("sum", rows.read(counted))
        return apply("{0} / {1}", total, count, dtype=x.dtype)

    return make_reduced(windows, _window_axes(windows, sliding), body, keep=False)


@registry.register("LpPool", since=18, types={"T": FLOATS})
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    strides: Ints = (),
    dilations: Ints = (),
    pads: Ints = (),
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    p: int = 2,
) -> Lowered:
    """The length of each window."""
    sliding = plan_sliding(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    windows, power = slide(x, sliding, 0.0), literal(p, x.dtype)

    def body(rows: Rows) -> Expr:
        raised = apply("f.pow(tl.abs({0}), {1})", rows.read(windows), power, dtype=x.dtype)
        return apply("f.pow({0}, 1 / {1})", rows.reduce("sum", raised), power, dtype=x.dtype)

    return make_reduced(windows, _window_axes(windows, sliding), body, keep=False)


@registry.register("GlobalAveragePool", since=1, types={"T": FLOATS})
def global_average_pool(x: Tensor) -> Lowered:
    """The mean of every channel."""

    def body(rows: Rows) -> Expr:
        count = literal(rows.num_columns, x.dtype)
        return apply("{0} / {1}", rows.reduce("sum", rows.read(x)), count, dtype=x.dtype)

    return make_reduced(x, range(2, x.rank), body, keep=True)


@registry.register("GlobalMaxPool", since=1, types={"T": FLOATS})
def global_max_pool(x: Tensor) -> Lowered:
    """The largest of every channel."""
    return make_reduced(x, range(2, x.rank), lambda rows: rows.reduce("max", rows.read(x)), keep=True)


@registry.register("ConvTranspose", since=1, types={"T": FLOATS})
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_shape: Ints = (),
    strides: Ints = (),
    dilations: Ints = (),
    pads: Ints = (),
    output_padding: Ints = (),
    output_shape: Ints = (),
    auto_pad: str = "NOTSET",
    group: int = 1,
) -> Lowered:
    """Every pixel spread over a window: each result gathers the pixels whose windows it is in."""
    rank = x.rank - 2
    kernel, steps = tuple(kernel_shape) or weight.shape[2:], tuple(strides) or (1,) * rank
    spread, extra = tuple(dilations) or (1,) * rank, tuple(output_padding) or (0,) * rank
    whole = [(x.shape[2 + a] - 1) * steps[a] + extra[a] + spread[a] * (kernel[a] - 1) + 1 for a in range(rank)]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER") and not output_shape:
        output_shape = [x.shape[2 + a] * steps[a] for a in range(rank)]
    if output_shape:
        total = [whole[a] - output_shape[a] for a in range(rank)]
        is_upper = auto_pad == "SAME_UPPER"
        before = [size // 2 if is_upper else size - size // 2 for size in total]
        outputs = [int(size) for size in output_shape]
    else:
        given = list(pads) if pads and auto_pad == "NOTSET" else [0] * 2 * rank
        before = given[:rank]
        outputs = [whole[a] - given[a] - given[rank + a] for a in range(rank)]
    deep, filters = x.shape[1] // group, weight.shape[1] * group
    shape = (x.shape[0], filters, *outputs, deep, *kernel)

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        image, filter_, inner = at[0], at[1], at[2 + rank]
        channel = filter_ // weight.shape[1] * deep + inner
        places, inside = [], guard
        for a in range(rank):
            place = at[2 + a] + before[a] - at[3 + rank + a] * spread[a]
            inside = both(inside, within(place, 0, (x.shape[2 + a] - 1) * steps[a] + 1))
            inside = both(inside, within(place % steps[a], 0, 1))
            places.append(place // steps[a])
        pixel = select(inside, x.at((image, channel, *places), inside), literal(0, x.dtype))
        factor = weight.at((channel, filter_ % weight.shape[1], *at[3 + rank :]), guard)
        return apply("{0} * {1}", pixel, factor, dtype=x.dtype)

    products = Tensor(shape=shape, dtype=x.dtype, pull=pull)

    def body(rows: Rows) -> Expr:
        sums = rows.reduce("sum", rows.read(products))
        return sums if bias is None else apply("{0} + {1}", sums, bias.at((rows.coordinates[1],)), dtype=x.dtype)

    return make_reduced(products, range(2 + rank, len(shape)), body, keep=False)
