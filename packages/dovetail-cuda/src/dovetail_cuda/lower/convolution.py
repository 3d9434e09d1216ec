"""Convolutions: over one or two spatial dimensions for kernels of their own, else as sums over windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dovetail_cuda.lower.expr import Expr, apply
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import move, pad, reshape_to
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.pooling import slide
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.sizes import greatest, may_exceed
from dovetail_cuda.lower.sliding import Sliding, plan_sliding
from dovetail_cuda.lower.tensors import ConvTensor, Lowered, Rows, RowTensor, Tensor, make_constant, refuse
from dovetail_cuda.lower.types import FLOATS
from dovetail_cuda.run.packing import FILTERS, LINES, PIXEL_CHANNELS, TAPS

__all__ = ["join_pixels"]

Ints = Sequence[int]
_FEW_PIXELS: Final = 8
"""Up to so many results a filter, a convolution reads its weights and little else: sums over rows do that best."""
_SMALL: Final = 1 << 16
"""Of fewer multiplications than this nothing is gained by tiles."""
_LONG_LINE: Final = 16
_MANY_PIXELS: Final = 1 << 10


@registry.register("Conv", since=1, types={"T": FLOATS})
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_shape: Ints = (),
    strides: Ints = (),
    dilations: Ints = (),
    pads: Ints = (),
    auto_pad: str = "NOTSET",
    group: int = 1,
) -> Lowered:
    """Sums over windows of products with a kernel."""
    kernel = tuple(kernel_shape) or weight.shape[2:]
    sliding = plan_sliding(x.shape[2:], kernel, strides, dilations, pads, auto_pad, 0)
    if weight.shape[0] % group or x.shape[1] != weight.shape[1] * group:
        raise refuse("the channels do not fit the groups")
    if x.dtype == "float64" or len(kernel) not in (1, 2) or _is_small(x, weight, sliding):
        return _sum_windows(x, weight, bias, sliding, group)
    shape = (x.shape[0], weight.shape[0], *sliding.outputs)
    if len(kernel) == 1:
        x, weight, sliding = _widen(x), _widen(weight), _widen_sliding(sliding)
    made = ConvTensor(
        shape=shape,
        dtype=x.dtype,
        image=x,
        weight=weight,
        sliding=sliding,
        group=group,
        recipe=FILTERS if group == 1 or weight.shape[1] > 1 else TAPS,
        source=weight.buffer,
        finish=lambda sums: _add_bias(sums, bias),
    )
    return _take_lines(made) if _has_long_lines(made) else made


def _add_bias(sums: Tensor, bias: Tensor | None) -> Tensor:
    """With one number for each filter."""
    if bias is None:
        return sums
    given = reshape_to(bias, (1, bias.count, *(1,) * (sums.rank - 2)))
    return map_elements(lambda a, b: apply("{0} + {1}", a, b, dtype=sums.dtype), sums, given, dtype=sums.dtype)


def _has_long_lines(made: ConvTensor) -> bool:
    """Whether there are few channels, and the pixels of a line of the window worth taking for channels."""
    long, pixels = made.sliding.kernel[1] * PIXEL_CHANNELS > _LONG_LINE, math.prod(made.sliding.outputs)
    is_thin = made.group == 1 and made.image.shape[1] <= PIXEL_CHANNELS and made.sliding.dilations[1] == 1
    return is_thin and long and greatest(pixels) >= _MANY_PIXELS


def _take_lines(made: ConvTensor) -> ConvTensor:
    """The same with a line of each window for one pixel of many channels.

    The image is stored with a few channels more and a margin around it; then such a line lies together in memory, and
    none reaches over the edge.
    """
    x, weight, sliding = made.image, made.weight, made.sliding
    taps = 1 << (sliding.kernel[1] - 1).bit_length()
    reach = [(n - 1) * step + 1 for n, step in zip(sliding.outputs, sliding.strides, strict=True)]
    high = max(reach[0] + (sliding.kernel[0] - 1) * sliding.dilations[0], x.shape[2] + sliding.before[0])
    wide = max(reach[1] + taps - 1, x.shape[3] + sliding.before[1])
    after = [high - x.shape[2] - sliding.before[0], wide + wide % 2 - x.shape[3] - sliding.before[1]]
    zero = make_constant(0, (), x.dtype)
    padded = pad(x, (0, 0, *sliding.before), (0, PIXEL_CHANNELS - x.shape[1], *after), zero)
    wider = pad(weight, (0, 0, 0, 0), (0, PIXEL_CHANNELS - weight.shape[1], 0, taps - weight.shape[3]), zero)
    lines = Sliding(
        kernel=(sliding.kernel[0], 1),
        strides=sliding.strides,
        dilations=sliding.dilations,
        before=(0, 0),
        after=(0, 0),
        outputs=sliding.outputs,
    )
    return replace(
        made,
        image=join_pixels(padded, taps),
        padded=padded,
        weight=join_pixels(wider, taps),
        sliding=lines,
        recipe=f"{LINES} {taps}",
    )


def join_pixels(x: Tensor, taps: int) -> Tensor:
    """(N, taps * C, H, W - taps + 1): pixels with those to the right of them, as one pixel of more channels."""
    channels = x.shape[1]

    def source(at: Sequence[Index]) -> Sequence[Index]:
        return at[0], at[1] % channels, at[2], at[3] + at[1] // channels

    return move(x, (x.shape[0], taps * channels, x.shape[2], x.shape[3] - taps + 1), source)


def _is_small(x: Tensor, weight: Tensor, sliding: Sliding) -> bool:
    pixels = x.shape[0] * math.prod(sliding.outputs)
    return not may_exceed(pixels, _FEW_PIXELS) or weight.shape[0] == 1 or greatest(pixels * weight.count) < _SMALL


def _widen(x: Tensor) -> Tensor:
    """With a spatial dimension of size 1 before the one it has."""
    return reshape_to(x, (*x.shape[:2], 1, x.shape[2]))


def _widen_sliding(sliding: Sliding) -> Sliding:
    return replace(
        sliding,
        kernel=(1, *sliding.kernel),
        strides=(1, *sliding.strides),
        dilations=(1, *sliding.dilations),
        before=(0, *sliding.before),
        after=(0, *sliding.after),
        outputs=(1, *sliding.outputs),
    )


def _sum_windows(x: Tensor, weight: Tensor, bias: Tensor | None, sliding: Sliding, group: int) -> RowTensor:
    """A sum for each element of the result: right for every shape and type."""
    windows = slide(x, sliding, 0.0)
    filters, deep = weight.shape[:2]
    shape = (x.shape[0], filters, *sliding.outputs, deep, *sliding.kernel)
    num_outer = 2 + len(sliding.kernel)

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        channel = at[1] // (filters // group) * deep + at[num_outer]
        pixel = windows.at((at[0], channel, *at[2:num_outer], *at[num_outer + 1 :]), guard)
        return apply("{0} * {1}", pixel, weight.at((at[1], *at[num_outer:]), guard), dtype=x.dtype)

    products = Tensor(shape=shape, dtype=x.dtype, pull=pull)

    def body(rows: Rows) -> Expr:
        return rows.reduce("sum", rows.read(products))

    made = make_reduced(products, range(num_outer, len(shape)), body, keep=False)
    return replace(made, finish=lambda sums: _add_bias(sums, bias))
