"""Convolutions: over one or two spatial dimensions for kernels of their own, else as sums over windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dovetail_cuda.lower.expr import Expr, apply
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import reshape_to
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.pooling import slide
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.sliding import Sliding, plan_sliding
from dovetail_cuda.lower.tensors import ConvTensor, Lowered, Rows, RowTensor, Tensor, refuse
from dovetail_cuda.lower.types import FLOATS

__all__: list[str] = []

Ints = Sequence[int]
_FEW_PIXELS: Final = 8
"""Up to so many results a filter, a convolution reads its weights and little else: sums over rows do that best."""
_SMALL: Final = 1 << 16
"""Of fewer multiplications than this nothing is gained by tiles."""


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
    return ConvTensor(
        shape=shape,
        dtype=x.dtype,
        image=x,
        weight=weight,
        sliding=sliding,
        group=group,
        finish=lambda sums: _add_bias(sums, bias),
    )


def _add_bias(sums: Tensor, bias: Tensor | None) -> Tensor:
    """With one number for each filter."""
    if bias is None:
        return sums
    given = reshape_to(bias, (1, bias.count, *(1,) * (sums.rank - 2)))
    return map_elements(lambda a, b: apply("{0} + {1}", a, b, dtype=sums.dtype), sums, given, dtype=sums.dtype)


def _is_small(x: Tensor, weight: Tensor, sliding: Sliding) -> bool:
    pixels = x.shape[0] * math.prod(sliding.outputs)
    return pixels <= _FEW_PIXELS or weight.shape[0] == 1 or pixels * weight.count < _SMALL


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
