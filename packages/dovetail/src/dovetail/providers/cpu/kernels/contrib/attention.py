"""Attention of com.microsoft with its projection, quantized or not, and MultiHeadAttention without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._attend import (
    Attended,
    attend,
    check_bias,
    hide_future,
    hide_masked,
    join_heads,
    split_heads,
)
from dovetail.providers.cpu.kernels._checks import fail, read_scalar, require
from dovetail.providers.cpu.kernels._support import reference
from dovetail.providers.cpu.kernels.contrib.qmatmul import matmul_integer_to_float
from dovetail.providers.cpu.registry import kernel

__all__ = ["attention", "multi_head_attention", "quantized_attention"]

_DOMAIN: Final = "com.microsoft"
_REAL: Final = ("float32", "float16", "bfloat16")
_FILTER: Final = -10000.0
"""What a masked score gets when no attribute says otherwise."""


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """How the scores of one node are made, and which of them count."""

    op: str
    mask_name: str
    mask: Array | None
    attention_bias: Array | None
    causal: bool
    filter_value: float
    scale: float | None

    def attend(self, query: Array, key: Array, value: Array, past: int) -> Attended:
        """Attention over keys of which the first ``past`` lie before the queries."""
        shape = (*query.shape[:3], key.shape[2])
        batch, _, queries, keys = shape
        bias: Array | None = None
        if self.causal:
            bias = hide_future(queries, keys, past)
        if self.mask is not None:
            hidden = hide_masked(self.op, self.mask_name, self.mask, batch, queries, keys, self.filter_value)
            bias = hidden if bias is None else bias + hidden
        if self.attention_bias is not None:
            added = check_bias(self.op, self.attention_bias, shape)
            bias = added if bias is None else bias + added
        factor = query.shape[3] ** -0.5 if not self.scale else self.scale
        return attend(query, key, value, scale=factor, bias=bias)


@kernel("Attention", domain=_DOMAIN, since=1, types={"T": _REAL, "M": ("int32",)})
@reference
def attention(
    x: Array,
    weights: Array,
    bias: Array | None = None,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = _FILTER,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Project the input to queries, keys and values and attend; also return the cache of keys and values."""
    op = "Attention"
    _refuse(op, do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    _refuse(op, rotary_embedding_dim=rotary_embedding_dim)
    require(past_sequence_length is None, op, "'past_sequence_length' needs a shared buffer, which is not supported")
    require(x.ndim == 3 and weights.ndim == 2, op, "the input has three axes, the weights two", got=x.shape)
    require(x.shape[2] == weights.shape[0], op, "inner sizes differ", expected=weights.shape[0], got=x.shape[2])
    projected = np.matmul(x.astype(np.float32), weights.astype(np.float32))
    if bias is not None:
        projected = projected + _vector(op, "bias", bias, weights.shape[1])
    sizes = _sizes(op, weights.shape[1], qkv_hidden_sizes)
    rules = _Rules(
        op=op,
        mask_name="mask_index",
        mask=mask_index,
        attention_bias=attention_bias,
        causal=bool(unidirectional),
        filter_value=mask_filter_value,
        scale=scale,
    )
    return _self_attention(rules, projected, sizes, past, num_heads, x.dtype, num_outputs)


def _refuse(op: str, **attributes: int) -> None:
    for name, value in attributes.items():
        require(not value, op, f"'{name}' is not supported", expected=0, got=value)


def _vector(op: str, name: str, x: Array, size: int) -> Array:
    require(x.shape == (size,), op, f"'{name}' has the wrong shape", expected=(size,), got=x.shape)
    return x.astype(np.float32)


def _sizes(op: str, width: int, given: Sequence[int] | None) -> tuple[int, int, int]:
    """The features of queries, keys and values; equal when nothing else is said."""
    if not given:
        require(width % 3 == 0, op, "the weights must hold queries, keys and values of one size", got=width)
        return width // 3, width // 3, width // 3
    fits = len(given) == 3 and min(given) > 0 and given[0] == given[1] and sum(given) == width
    require(fits, op, "'qkv_hidden_sizes' does not fit the weights", expected=f"a sum of {width}", got=list(given))
    return given[0], given[1], given[2]


def _self_attention(
    rules: _Rules,
    projected: Array,
    sizes: tuple[int, int, int],
    past: Array | None,
    heads: int,
    dtype: np.dtype[Any],
    num_outputs: int,
) -> tuple[Array, ...]:
    """Attention of one tensor to itself and to a past, (2, batch, head, length, size), of keys and values."""
    op = rules.op
    parts = np.split(projected, [sizes[0], sizes[0] + sizes[1]], axis=2)
    query, key, value = (split_heads(op, part, heads) for part in parts)
    length = 0
    if past is not None:
        require(sizes[1] == sizes[2], op, "a past needs keys and values of one size", got=sizes)
        fits = past.ndim == 5 and past.shape[:3] == (2, *key.shape[:2]) and past.shape[4] == key.shape[3]
        wanted = f"(2, {key.shape[0]}, {key.shape[1]}, length, {key.shape[3]})"
        require(fits, op, "'past' has the wrong shape", expected=wanted, got=past.shape)
        length = past.shape[3]
        key, value = (np.concatenate((past[i].astype(np.float32), new), axis=2) for i, new in enumerate((key, value)))
    y = join_heads(rules.attend(query, key, value, length).values).astype(dtype)
    if num_outputs == 1:
        return (y,)
    require(sizes[1] == sizes[2], op, "'present' needs keys and values of one size", got=sizes)
    return y, np.stack((key, value)).astype(dtype)


@kernel(
    "QAttention",
    domain=_DOMAIN,
    since=1,
    types={"T1": ("int8", "uint8"), "T2": ("int8", "uint8"), "T3": ("float32", "float16"), "T4": ("int32",)},
)
@reference
def quantized_attention(
    x: Array,
    weight: Array,
    bias: Array,
    input_scale: Array,
    weight_scale: Array,
    mask_index: Array | None = None,
    input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    past: Array | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = _FILTER,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Attention whose projection is a product of bytes."""
    op = "QAttention"
    _refuse(op, do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    require(x.ndim == 3 and weight.ndim == 2, op, "the input has three axes, the weights two", got=x.shape)
    _vector(op, "bias", bias, weight.shape[1])
    projected = matmul_integer_to_float(
        x, weight, input_scale, weight_scale.astype(np.float32), input_zero_point, weight_zero_point, bias
    )
    rules = _Rules(
        op=op,
        mask_name="mask_index",
        mask=mask_index,
        attention_bias=None,
        causal=bool(unidirectional),
        filter_value=mask_filter_value,
        scale=scale,
    )
    sizes = _sizes(op, weight.shape[1], None)
    return _self_attention(rules, np.asarray(projected), sizes, past, num_heads, bias.dtype, num_outputs)


@kernel("MultiHeadAttention", domain=_DOMAIN, since=1, types={"T": _REAL, "M": ("int32",), "QK": _REAL})
@reference
def multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    mask_filter_value: float = _FILTER,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Attend with queries, keys and values that are projected already; also return the caches and the scores.

    The scores are those before the softmax, with masks and biases added.
    """
    op = "MultiHeadAttention"
    require(cache_indirection is None, op, "'cache_indirection' is not supported")
    q, k, v = _unpack(op, query, key, value, bias, num_heads)
    past, caches = _extend(op, k, v, past_key, past_value, past_sequence_length)
    total = past + k.shape[2]
    rules = _Rules(
        op=op,
        mask_name="key_padding_mask",
        mask=key_padding_mask,
        attention_bias=attention_bias,
        causal=bool(unidirectional),
        filter_value=mask_filter_value,
        scale=scale,
    )
    _check_kv(op, q, k, v)
    result = rules.attend(q, caches[0][:, :, :total], caches[1][:, :, :total], past)
    kind = query.dtype
    y = join_heads(result.values).astype(kind)
    return (y, caches[0].astype(kind), caches[1].astype(kind), result.scores.astype(kind))[:num_outputs]


def _unpack(
    op: str, query: Array, key: Array | None, value: Array | None, bias: Array | None, heads: int
) -> tuple[Array, Array, Array]:
    """Heads of queries, keys and values from any of their forms, with the bias of the projection added.

    The forms: one tensor of all three (batch, length, head, 3, size); queries and one tensor of keys and values
    (batch, length, head, 2, size); three tensors; or queries with keys and values that are heads already.
    """
    if query.ndim == 5:
        require(key is None and value is None, op, "a packed 'query' comes alone")
        q, k, v = _unpack_heads(op, "query", query, heads, 3)
    else:
        q, (k, v) = split_heads(op, query, heads), _unpack_keys(op, key, value, heads)
    return (q, k, v) if bias is None else _add_bias(op, q, k, v, bias, is_cache=key is not None and key.ndim == 4)


def _unpack_keys(op: str, key: Array | None, value: Array | None, heads: int) -> tuple[Array, Array]:
    if key is None:
        fail(op, "'key' is missing")
    if key.ndim == 5:
        require(value is None, op, "a packed 'key' comes without 'value'")
        k, v = _unpack_heads(op, "key", key, heads, 2)
        return k, v
    if value is None:
        fail(op, "'value' is missing")
    require(value.ndim == key.ndim, op, "'key' and 'value' differ in rank", got=(key.shape, value.shape))
    return _as_heads(op, "key", key, heads), _as_heads(op, "value", value, heads)


def _unpack_heads(op: str, name: str, x: Array, heads: int, count: int) -> tuple[Array, ...]:
    require(x.shape[2:4] == (heads, count), op, f"'{name}' has the wrong shape", expected=(heads, count), got=x.shape)
    return tuple(x[:, :, :, i].swapaxes(1, 2).astype(np.float32) for i in range(count))


def _as_heads(op: str, name: str, x: Array, heads: int) -> Array:
    if x.ndim == 3:
        return split_heads(op, x, heads)
    fits = x.ndim == 4 and x.shape[1] == heads
    require(fits, op, f"'{name}' has the wrong shape", expected=f"(batch, {heads}, length, size)", got=x.shape)
    return x.astype(np.float32)


def _add_bias(op: str, q: Array, k: Array, v: Array, bias: Array, *, is_cache: bool) -> tuple[Array, Array, Array]:
    """Keys and values from a cache had theirs added when they went in."""
    widths = [x.shape[1] * x.shape[3] for x in (q, k, v)]
    parts = np.split(_vector(op, "bias", bias, sum(widths)), [widths[0], widths[0] + widths[1]])
    moved = [x + part.reshape(1, x.shape[1], 1, x.shape[3]) for x, part in zip((q, k, v), parts, strict=True)]
    return (moved[0], k, v) if is_cache else (moved[0], moved[1], moved[2])


def _check_kv(op: str, q: Array, k: Array, v: Array) -> None:
    fits = q.shape[0] == k.shape[0] == v.shape[0] and q.shape[3] == k.shape[3] and k.shape[2] == v.shape[2]
    require(fits, op, "queries, keys and values do not fit", got=(q.shape, k.shape, v.shape))


def _extend(
    op: str, k: Array, v: Array, past_key: Array | None, past_value: Array | None, past_length: Array | None
) -> tuple[int, tuple[Array, Array]]:
    """The caches with the new keys and values, and how many are past.

    A cache with a length given beside it is a buffer of more room than that, into which the new ones go.
    """
    require((past_key is None) == (past_value is None), op, "'past_key' and 'past_value' come together")
    if past_key is None or past_value is None:
        require(past_length is None, op, "'past_sequence_length' needs a past")
        return 0, (k.copy(), v.copy())
    for name, past, new in (("past_key", past_key, k), ("past_value", past_value, v)):
        wanted = (*new.shape[:2], past_key.shape[2] if past_key.ndim == 4 else -1, new.shape[3])
        require(past.shape == wanted, op, f"'{name}' has the wrong shape", expected=wanted, got=past.shape)
    pairs = ((past_key.astype(np.float32), k), (past_value.astype(np.float32), v))
    if past_length is None:
        key, value = (np.concatenate(pair, axis=2) for pair in pairs)
        return past_key.shape[2], (key, value)
    length = int(read_scalar(op, "past_sequence_length", past_length))
    room = past_key.shape[2] - k.shape[2]
    require(0 <= length <= room, op, "'past_sequence_length' leaves no room", expected=f"0..{room}", got=length)
    for buffer, new in pairs:
        buffer[:, :, length : length + new.shape[2]] = new
    return length, (pairs[0][0], pairs[1][0])
