"""Scaled dot-product Attention with all its masks and caches, and RotaryEmbedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import fail, require, wrap_indices
from dovetail.providers.cpu.kernels._conversion import dtype_of
from dovetail.providers.cpu.kernels._support import SINGLE_FLOATS, float_reference, reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["attention", "attention_23", "rotary_embedding"]

_OP = "Attention"


@dataclass(frozen=True, kw_only=True)
class _WindowSpan:
    """Which keys a query may see by position alone."""

    queries: int
    keys: int
    offset: Array
    """The absolute position of the first query of each sample, or one for all: (batch or 1,)."""
    causal: bool
    left: int
    right: int
    lengths: Array | None
    """How many keys of each sample are not padding."""

    def allowed(self) -> Array | None:
        """True where a query may look: (batch or 1, 1, queries, keys), or None when every key is visible."""
        position = (self.offset[:, None] + np.arange(self.queries))[:, None, :, None]
        key = np.arange(self.keys)
        rules = []
        if self.causal:
            rules.append(key <= position)
        if self.left >= 0:
            rules.append(key >= position - self.left)
        if self.right >= 0:
            rules.append(key <= position + self.right)
        if self.lengths is not None:
            rules.append(key < self.lengths.reshape(-1, 1, 1, 1))
        if not rules:
            return None
        visible = rules[0]
        for rule in rules[1:]:
            visible = visible & rule
        return visible


@kernel("Attention", since=23, until=24, types={"T1": FLOATS, "T2": FLOATS})
def attention_23(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Array, ...]:
    """Attention before it had sliding windows."""
    outputs: tuple[Array, ...] = attention(
        q,
        k,
        v,
        attn_mask,
        past_key,
        past_value,
        nonpad_kv_seqlen,
        is_causal=is_causal,
        kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads,
        qk_matmul_output_mode=qk_matmul_output_mode,
        scale=scale,
        softcap=softcap,
        softmax_precision=softmax_precision,
    )
    return outputs


@kernel("Attention", since=25, types={"T1": FLOATS, "T2": FLOATS})
@reference
def attention(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Mix the values by how well their keys match each query; also return the caches and the scores."""
    _check_inputs(q, k, v, past_key, past_value, nonpad_kv_seqlen)
    require(qk_matmul_output_mode in range(4), _OP, "'qk_matmul_output_mode' is unknown", got=qk_matmul_output_mode)
    query, key, value = _split_heads(q, q_num_heads), _split_heads(k, kv_num_heads), _split_heads(v, kv_num_heads)
    present_key = key.copy() if past_key is None else np.concatenate((past_key, key), axis=2)
    present_value = value.copy() if past_value is None else np.concatenate((past_value, value), axis=2)
    wide: np.dtype[Any] = np.dtype(np.float64 if np.float64 in (q.dtype, v.dtype) else np.float32)
    _check_heads(query, present_key, present_value)
    factor = query.shape[3] ** -0.5 if scale is None else scale
    raw = _match(query.astype(wide) * wide.type(factor), present_key.astype(wide))
    capped = raw if softcap <= 0 else softcap * np.tanh(raw / softcap)
    span = _WindowSpan(
        queries=query.shape[2],
        keys=present_key.shape[2],
        offset=_first_positions(query.shape[2], past_key, nonpad_kv_seqlen),
        causal=bool(is_causal),
        left=left_window_size,
        right=right_window_size,
        lengths=nonpad_kv_seqlen,
    )
    bias = _make_bias(span, attn_mask, raw.shape, wide)
    biased = capped if bias is None else capped + bias
    weights = _softmax(biased, bias, softmax_precision)
    mixed = _mix(weights, present_value.astype(wide)).astype(q.dtype)
    scores = (raw, capped, biased, weights)[qk_matmul_output_mode].astype(q.dtype)
    return _join_heads(mixed) if q.ndim == 3 else mixed, present_key, present_value, scores


def _check_inputs(
    q: Array, k: Array, v: Array, past_key: Array | None, past_value: Array | None, lengths: Array | None
) -> None:
    require(q.ndim == k.ndim == v.ndim, _OP, "Q, K and V differ in rank", got=(q.ndim, k.ndim, v.ndim))
    require(q.ndim in (3, 4), _OP, "Q, K and V must have three or four axes", got=q.ndim)
    require(q.shape[0] == k.shape[0] == v.shape[0], _OP, "batches differ", got=(q.shape[0], k.shape[0], v.shape[0]))
    paired = (past_key is None) == (past_value is None)
    require(paired, _OP, "'past_key' and 'past_value' must come together")
    alone = lengths is None or past_key is None
    require(alone, _OP, "'nonpad_kv_seqlen' cannot be combined with a past")
    if lengths is not None:
        require(lengths.shape == (q.shape[0],), _OP, "'nonpad_kv_seqlen' has the wrong shape", got=lengths.shape)


def _check_heads(q: Array, k: Array, v: Array) -> None:
    heads, shared = q.shape[1], k.shape[1]
    require(shared > 0 and heads % shared == 0, _OP, f"{heads} query heads do not divide among {shared} key heads")
    require(k.shape[1:3] == v.shape[1:3], _OP, "K and V differ in shape", expected=k.shape[1:3], got=v.shape[1:3])
    require(q.shape[3] == k.shape[3], _OP, "head sizes differ", expected=q.shape[3], got=k.shape[3])


def _split_heads(x: Array, heads: int | None) -> Array:
    """(batch, length, heads * size) to (batch, heads, length, size)."""
    if x.ndim == 4:
        return x
    if heads is None or heads <= 0 or x.shape[2] % heads:
        fail(_OP, "inputs of three axes need a count of heads that divides them", expected=x.shape[2], got=heads)
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def _join_heads(x: Array) -> Array:
    batch, heads, length, size = x.shape
    return x.swapaxes(1, 2).reshape(batch, length, heads * size)


def _group(x: Array, shared: int) -> Array:
    """Query heads beside the key head they share: (batch, shared, queries a head, length, size)."""
    return x.reshape(x.shape[0], shared, x.shape[1] // shared, *x.shape[2:])


def _match(query: Array, key: Array) -> Array:
    scores: Array = np.matmul(_group(query, key.shape[1]), key[:, :, None].swapaxes(-1, -2))
    return scores.reshape(*query.shape[:3], key.shape[2])


def _mix(weights: Array, value: Array) -> Array:
    mixed: Array = np.matmul(_group(weights, value.shape[1]).astype(value.dtype), value[:, :, None])
    return mixed.reshape(*weights.shape[:3], value.shape[3])


def _first_positions(queries: int, past_key: Array | None, lengths: Array | None) -> Array:
    if past_key is not None:
        return np.array([past_key.shape[2]])
    return np.zeros(1, dtype=np.int64) if lengths is None else lengths - queries


def _make_bias(span: _WindowSpan, mask: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """What is added to the scores: -inf where a query may not look, and the values of a float mask."""
    visible = span.allowed()
    bias = None if visible is None else np.where(visible, dtype.type(0), dtype.type(-np.inf))
    if mask is None:
        return bias
    added = np.where(mask, dtype.type(0), dtype.type(-np.inf)) if mask.dtype == np.bool_ else mask.astype(dtype)
    missing = span.keys - added.shape[-1]
    if missing > 0:
        added = np.pad(added, [(0, 0)] * (added.ndim - 1) + [(0, missing)], constant_values=-np.inf)
    try:
        fits = np.broadcast_shapes(added.shape, shape) == shape
    except ValueError:
        fits = False
    require(fits, _OP, "'attn_mask' does not broadcast to the scores", expected=shape, got=mask.shape)
    return added if bias is None else bias + added


def _softmax(scores: Array, bias: Array | None, precision: int | None) -> Array:
    """Softmax over the keys; a query that may look nowhere gets zeros."""
    narrow = scores if precision is None else scores.astype(dtype_of(precision))
    wide = narrow if narrow.dtype in (np.float32, np.float64) else narrow.astype(np.float32)
    if wide.shape[-1] == 0:
        return wide
    top = wide.max(axis=-1, keepdims=True)
    powers = np.exp(wide - np.where(np.isneginf(top), 0, top))
    total = powers.sum(axis=-1, keepdims=True)
    weights: Array = powers / np.where(total == 0, 1, total)
    if bias is not None:
        blind = np.isneginf(bias.max(axis=-1, keepdims=True))
        weights = np.where(blind, weights.dtype.type(0), weights)
    return weights.astype(narrow.dtype)


@kernel("RotaryEmbedding", since=23, types={"T": SINGLE_FLOATS})
@float_reference
def rotary_embedding(
    x: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Array:
    """Rotate pairs of features by angles that grow with the position."""
    op = "RotaryEmbedding"
    if x.ndim == 3:
        require(
            num_heads > 0 and x.shape[2] % num_heads == 0, op, "'num_heads' must divide the features", got=num_heads
        )
        heads = x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads)
    else:
        require(x.ndim == 4, op, "the input must have three or four axes", got=x.shape)
        heads = x.swapaxes(1, 2)
    rotated = rotary_embedding_dim or heads.shape[3]
    fits = 0 < rotated <= heads.shape[3] and rotated % 2 == 0
    require(fits, op, "'rotary_embedding_dim' does not fit", expected=f"even, <= {heads.shape[3]}", got=rotated)
    cos = _angles(op, cos_cache, position_ids, heads.shape[:2], rotated // 2)
    sin = _angles(op, sin_cache, position_ids, heads.shape[:2], rotated // 2)
    first = slice(0, rotated, 2) if interleaved else slice(0, rotated // 2)
    second = slice(1, rotated, 2) if interleaved else slice(rotated // 2, rotated)
    y = heads.copy()
    y[..., first] = cos * heads[..., first] - sin * heads[..., second]
    y[..., second] = sin * heads[..., first] + cos * heads[..., second]
    return y.reshape(x.shape) if x.ndim == 3 else np.ascontiguousarray(y.swapaxes(1, 2))


def _angles(op: str, cache: Array, positions: Array | None, lead: tuple[int, ...], half: int) -> Array:
    """The cached values of each position, shaped to broadcast over the heads."""
    rows = cache if positions is None else cache[wrap_indices(op, positions, cache.shape[0], lowest=0)]
    wanted = (*lead, half)
    require(rows.shape == wanted, op, "a cache has the wrong shape", expected=wanted, got=rows.shape)
    return rows[:, :, None, :]
