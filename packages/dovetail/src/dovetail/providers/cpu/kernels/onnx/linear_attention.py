"""Ops of recurrent sequence models: LinearAttention and CausalConvWithState, which carry a state between calls."""

from __future__ import annotations

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import require
from dovetail.providers.cpu.kernels._support import SINGLE_FLOATS, float_reference, reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["causal_conv_with_state", "linear_attention"]

_RULES = ("linear", "gated", "delta", "gated_delta")


@kernel("LinearAttention", since=27, types={"T": SINGLE_FLOATS, "S": SINGLE_FLOATS})
@reference
def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """Step through the sequence, updating a matrix a head and reading it with the query.

    ``chunk_size`` is a hint for other implementations; it changes no result.
    """
    op = "LinearAttention"
    del chunk_size
    require(update_rule in _RULES, op, "'update_rule' is unknown", expected=", ".join(_RULES), got=update_rule)
    gated, corrected = update_rule.startswith("gated"), update_rule.endswith("delta")
    require((decay is not None) == gated, op, f"rule '{update_rule}' and the input 'decay' do not fit")
    require((beta is not None) == corrected, op, f"rule '{update_rule}' and the input 'beta' do not fit")
    positive = kv_num_heads > 0 and q_num_heads > 0
    require(positive and q_num_heads % kv_num_heads == 0, op, "query heads do not divide among key heads")
    q, k, v = (_split(op, x, h) for x, h in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads)))
    require(q.shape[3] == k.shape[3], op, "head sizes differ", expected=q.shape[3], got=k.shape[3])
    shape = (query.shape[0], kv_num_heads, k.shape[3], v.shape[3])
    state = np.zeros(shape, dtype=np.float32) if past_state is None else past_state.astype(np.float32)
    require(state.shape == shape, op, "'past_state' has the wrong shape", expected=shape, got=state.shape)
    gates = None if decay is None else np.exp(_split(op, decay, kv_num_heads))
    rates = None if beta is None else _split(op, beta, beta.shape[2])
    y = np.zeros((*q.shape[:3], v.shape[3]), dtype=np.float32)
    for t in range(q.shape[2]):
        state = _update(state, k[:, :, t], v[:, :, t], _at(gates, t), _at(rates, t))
        grouped = q[:, :, t].reshape(q.shape[0], kv_num_heads, q_num_heads // kv_num_heads, q.shape[3])
        y[:, :, t] = np.matmul(grouped, state).reshape(*q.shape[:2], v.shape[3])
    y *= np.float32(scale or q.shape[3] ** -0.5)
    packed = y.swapaxes(1, 2).reshape(*query.shape[:2], q_num_heads * v.shape[3])
    return packed.astype(query.dtype), state.astype(query.dtype if past_state is None else past_state.dtype)


def _split(op: str, x: Array, heads: int) -> Array:
    """(batch, length, heads * size) to (batch, heads, length, size) in float32."""
    require(x.ndim == 3 and heads > 0 and x.shape[2] % heads == 0, op, f"{heads} heads do not divide", got=x.shape)
    return x.astype(np.float32).reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def _at(x: Array | None, t: int) -> Array | None:
    return None if x is None else x[:, :, t]


def _update(state: Array, key: Array, value: Array, gate: Array | None, rate: Array | None) -> Array:
    if gate is not None:
        state = state * gate[..., None]
    if rate is not None:
        recalled = np.matmul(key[:, :, None, :], state)[:, :, 0]
        value = rate * (value - recalled)
    return np.asarray(state + key[..., :, None] * value[..., None, :])


@kernel("CausalConvWithState", since=27, types={"T": SINGLE_FLOATS})
@float_reference
def causal_conv_with_state(
    x: Array, weight: Array, bias: Array | None = None, past_state: Array | None = None, *, activation: str = "none"
) -> tuple[Array, Array]:
    """Convolve each channel with its own taps over current and past positions; return the positions to carry on."""
    op = "CausalConvWithState"
    require(activation in ("none", "silu", "swish"), op, "'activation' is unknown", got=activation)
    require(x.ndim == 3 and weight.ndim == 3, op, "input and weight must have three axes", got=(x.shape, weight.shape))
    batch, channels, length = x.shape
    taps = weight.shape[2]
    require(weight.shape[:2] == (channels, 1), op, "'weight' must be (channels, 1, taps)", got=weight.shape)
    shape = (batch, channels, taps - 1)
    past = np.zeros(shape, dtype=x.dtype) if past_state is None else past_state
    require(past.shape == shape, op, "'past_state' has the wrong shape", expected=shape, got=past.shape)
    padded = np.concatenate((past, x), axis=2)
    y = np.zeros_like(x)
    for tap in range(taps):
        y += padded[:, :, tap : tap + length] * weight[:, :, tap]
    if bias is not None:
        y += bias[:, None]
    if activation != "none":
        y = y / (1 + np.exp(-y))
    return y, padded[:, :, length:].copy()
