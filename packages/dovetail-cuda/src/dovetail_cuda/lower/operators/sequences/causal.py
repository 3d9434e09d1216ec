"""Convolutions over what came before, with the last positions carried on: CausalConvWithState."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_cuda.lower.expr import Expr, apply, convert
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import concat, move
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, Rows, Tensor, make_constant, refuse

__all__: list[str] = []

_ACTIVATIONS = {"none": "{0}", "silu": "{0} / (1 + tl.exp(-{0}))", "swish": "{0} / (1 + tl.exp(-{0}))"}


@registry.register("CausalConvWithState", since=27, types={"T": ("float32", "float16", "bfloat16")})
def causal_conv_with_state(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    past_state: Tensor | None = None,
    *,
    activation: str = "none",
    num_outputs: int = 2,
) -> tuple[Lowered, ...]:
    """Each channel with filters of its own over this position and those before; and the positions to carry on."""
    if activation not in _ACTIVATIONS or x.rank != 3 or weight.shape[:2] != (x.shape[1], 1):
        raise refuse(f"it does not convolve {x.shape} with {weight.shape} and '{activation}'")
    batch, channels, length = x.shape
    taps = weight.shape[2]
    past = past_state or make_constant(0, (batch, channels, taps - 1), x.dtype)
    padded = concat(past, x, axis=2) if taps > 1 else x
    shifts = bias or make_constant(0, (channels,), x.dtype)

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        sample, channel, position, tap = at
        factor = convert(weight.at((channel, Index(), tap), guard), "float32")
        value = convert(padded.at((sample, channel, position + tap), guard), "float32")
        return apply("{0} * {1}", value, factor, dtype="float32")

    windows = Tensor(shape=(batch, channels, length, taps), dtype="float32", pull=pull)

    def body(rows: Rows) -> Expr:
        shift = convert(shifts.at((rows.coordinates[1],)), "float32")
        total = apply("{0} + {1}", rows.reduce("sum", rows.read(windows)), shift, dtype="float32")
        return convert(apply(_ACTIVATIONS[activation], total, dtype="float32"), x.dtype)

    state = move(padded, (batch, channels, taps - 1), lambda at: (*at[:2], at[2] + length))
    return (make_reduced(windows, (3,), body, keep=False, dtype=x.dtype), state)[:num_outputs]
