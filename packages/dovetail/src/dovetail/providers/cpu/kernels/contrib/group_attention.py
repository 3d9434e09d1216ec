"""GroupQueryAttention of com.microsoft: query heads that share keys, with a cache, rotation, windows and sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._attend import LOWEST, attend, check_bias, join_heads, rotate, split_heads
from dovetail.providers.cpu.kernels._checks import fail, read_scalar, require
from dovetail.providers.cpu.kernels._kv_cache import Rows, Storage, make_storage, slide_rows, stage_rows
from dovetail.providers.cpu.kernels._support import reference
from dovetail.providers.cpu.kernels.contrib.rotary import rows_at
from dovetail.providers.cpu.registry import kernel

__all__ = ["group_query_attention"]

_OP: Final = "GroupQueryAttention"
_REAL: Final = ("float32", "float16", "bfloat16")
_TYPES: Final = {"T": _REAL, "T_CACHE": (*_REAL, "int8", "uint8"), "T_KV_SCALE": ("float32",), "M": ("int32",)}


@kernel("GroupQueryAttention", domain="com.microsoft", since=1, types=_TYPES)
@reference
def group_query_attention(
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    seqlens_k: Array,
    total_sequence_length: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int | None = None,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Attend to a cache and to the new keys, which go into it; also return the cache and the scores or weights.

    ``seqlens_k`` is the index of each sample's last key; a sample may be shorter than the longest, whose length is
    ``total_sequence_length``. When that is the length of the queries there is no past, whatever the cache holds.
    """
    _check_attributes(causal, local_window_size, qk_output, sliding_window_cache)
    heads = _Heads.read(query, key, value, num_heads, kv_num_heads)
    heads.normalize(q_norm_weight, k_norm_weight, qk_norm_epsilon)
    total = int(read_scalar(_OP, "total_sequence_length", total_sequence_length))
    past, totals = _lengths(seqlens_k, total, heads.query.shape[0], heads.query.shape[2])
    if do_rotary:
        heads.rotate(cos_cache, sin_cache, position_ids, past, interleaved=bool(rotary_interleaved))
    width = heads.key.shape[3]
    storages = (
        make_storage(_OP, "k", k_quant_type, k_scale, kv_cache_bit_width, kv_num_heads, width),
        make_storage(_OP, "v", v_quant_type, v_scale, kv_cache_bit_width, kv_num_heads, width),
    )
    window = local_window_size if sliding_window_cache else 0
    caches = _Caches.fill(heads, (past_key, past_value), storages, past, totals, total, window)
    visible = _visible(caches.rows, heads.query.shape[2], caches.keys.shape[2], bool(causal), local_window_size)
    bias = _make_bias(attention_bias, visible, caches.rows, num_heads, total)
    result = attend(
        heads.query,
        caches.keys,
        caches.values,
        scale=scale or width**-0.5,
        bias=bias,
        softcap=softcap,
        sink=_sink(head_sink, smooth_softmax, num_heads),
    )
    y = join_heads(result.values).astype(query.dtype)
    if num_outputs <= 3:
        return (y, *caches.present)[:num_outputs]
    shown = np.where(visible, result.weights if qk_output == 2 else result.scores, 0)
    return (y, *caches.present, shown.astype(query.dtype))


def _check_attributes(causal: int, window: int, qk_output: int, sliding: int) -> None:
    require(causal in (0, 1), _OP, "'causal' is unknown", expected="0 or 1", got=causal)
    require(window == -1 or window > 0, _OP, "'local_window_size' must be positive or -1", got=window)
    require(causal == 1 or window == -1, _OP, "'local_window_size' needs 'causal'", expected=-1, got=window)
    require(qk_output in (0, 1, 2), _OP, "'qk_output' is unknown", expected="0, 1 or 2", got=qk_output)
    require(sliding in (0, 1), _OP, "'sliding_window_cache' is unknown", expected="0 or 1", got=sliding)
    require(not sliding or window > 0, _OP, "'sliding_window_cache' needs 'local_window_size'", got=window)
    require(not sliding or not qk_output, _OP, "'qk_output' of a sliding cache is not supported", got=qk_output)


@dataclass(kw_only=True)
class _Heads:
    """Queries, and new keys and values, in float32: (batch, head, length, size)."""

    query: Array
    key: Array
    value: Array
    dtype: np.dtype[Any]
    """What they were before."""

    @staticmethod
    def read(query: Array, key: Array | None, value: Array | None, heads: int, shared: int) -> _Heads:
        """Three tensors, or one that holds all of them side by side."""
        fits = shared > 0 and heads > 0 and heads % shared == 0
        require(fits, _OP, "'num_heads' must be a multiple of 'kv_num_heads'", expected=shared, got=heads)
        require((key is None) == (value is None), _OP, "'key' and 'value' come together")
        if key is None or value is None:
            packed = split_heads(_OP, query, heads + 2 * shared)
            q, k, v = np.split(packed, [heads, heads + shared], axis=1)
        else:
            q = split_heads(_OP, query, heads)
            k, v = (split_heads(_OP, x, shared, name="kv_num_heads") for x in (key, value))
        fits = k.shape == v.shape == (q.shape[0], shared, *q.shape[2:])
        require(fits, _OP, "queries, keys and values do not fit", got=(q.shape, k.shape, v.shape))
        return _Heads(query=q, key=k, value=v, dtype=query.dtype)

    def normalize(self, q_weight: Array | None, k_weight: Array | None, epsilon: float) -> None:
        """Divide each query and key by the root of its mean square, when both have weights."""
        require((q_weight is None) == (k_weight is None), _OP, "'q_norm_weight' and 'k_norm_weight' come together")
        if q_weight is not None and k_weight is not None:
            self.query = _divide_by_root("q_norm_weight", self.query, q_weight, epsilon)
            self.key = _divide_by_root("k_norm_weight", self.key, k_weight, epsilon)

    def rotate(
        self, cos: Array | None, sin: Array | None, position_ids: Array | None, past: Array, *, interleaved: bool
    ) -> None:
        """Rotate queries and keys by their positions, which count from the past unless they are given."""
        if cos is None or sin is None:
            fail(_OP, "'do_rotary' needs 'cos_cache' and 'sin_cache'")
        batch, _, length, size = self.query.shape
        positions = past[:, None] + np.arange(length) if position_ids is None else position_ids
        half = cos.shape[1] if cos.ndim == 2 else 0
        require(0 < 2 * half <= size, _OP, "'cos_cache' is too wide", expected=f"<= {size // 2}", got=cos.shape)
        lead = (batch, length)
        angles = [
            rows_at(_OP, name, cache, positions, lead, half)[:, None].astype(np.float32)
            for name, cache in (("cos_cache", cos), ("sin_cache", sin))
        ]
        self.query = rotate(self.query, *angles, interleaved=interleaved)
        self.key = rotate(self.key, *angles, interleaved=interleaved)


def _divide_by_root(name: str, x: Array, weight: Array, epsilon: float) -> Array:
    require(weight.shape == x.shape[3:], _OP, f"'{name}' has the wrong shape", expected=x.shape[3:], got=weight.shape)
    root = np.sqrt(np.mean(np.square(x), axis=3, keepdims=True) + np.float32(epsilon))
    return np.asarray(x / root * weight.astype(np.float32))


def _lengths(seqlens_k: Array, total: int, batch: int, length: int) -> tuple[Array, Array]:
    """How many keys each sample had, and has now."""
    require(seqlens_k.size == batch, _OP, "'seqlens_k' has one value a sample", expected=batch, got=seqlens_k.shape)
    require(total >= length, _OP, "'total_sequence_length' is too small", expected=f">= {length}", got=total)
    totals = seqlens_k.reshape(-1).astype(np.int64) + 1
    fits = batch == 0 or (totals.min() > 0 and totals.max() <= total)
    require(fits, _OP, "'seqlens_k' is out of range", expected=f"0..{total - 1}", got=(totals - 1).tolist())
    if total == length:
        return np.zeros_like(totals), totals
    past = totals - length
    fits = batch == 0 or past.min() >= 0
    require(fits, _OP, "'seqlens_k' is less than the new keys", expected=f">= {length - 1}", got=(totals - 1).tolist())
    return past, totals


@dataclass(frozen=True, kw_only=True)
class _Caches:
    """The keys and values to attend to, and what is returned of them."""

    keys: Array
    values: Array
    present: tuple[Array, Array]
    rows: Rows

    @staticmethod
    def fill(
        heads: _Heads,
        pasts: tuple[Array | None, Array | None],
        storages: tuple[Storage, Storage],
        past: Array,
        totals: Array,
        total: int,
        window: int,
    ) -> _Caches:
        """Put the new keys and values behind the past ones; ``window`` is that of a sliding cache, or 0."""
        stored = tuple(
            storage.encode(new, _cache_dtype(name, old, storage, heads.dtype))
            for name, old, storage, new in zip(
                ("past_key", "past_value"), pasts, storages, (heads.key, heads.value), strict=True
            )
        )
        capacity = _capacity(pasts, stored)
        length = heads.key.shape[2]
        if window:
            require(capacity >= window, _OP, "the cache is shorter than its window", expected=window, got=capacity)
            held = _held(past, capacity, window)
            rows = Rows(past=past, total=totals, first=past - held)
            room = int(held.max(initial=0)) + length
        else:
            require(past.max(initial=0) <= capacity, _OP, "'seqlens_k' counts more than the past holds", got=capacity)
            rows = Rows(past=past, total=totals, first=np.zeros_like(past))
            room = max(capacity, total)
        staged = [stage_rows(old, new, rows, room) for old, new in zip(pasts, stored, strict=True)]
        if window:
            kept = _held(totals, capacity, window)
            present = tuple(slide_rows(x, rows, kept, capacity) for x in staged)
        else:
            present, staged = tuple(staged), [x[:, :, :total] for x in staged]
        keys, values = (storage.decode(x) for storage, x in zip(storages, staged, strict=True))
        return _Caches(keys=keys, values=values, present=(present[0], present[1]), rows=rows)


def _cache_dtype(name: str, past: Array | None, storage: Storage, real: np.dtype[Any]) -> np.dtype[Any]:
    """The type of the cache; without a past, that of the storage."""
    if past is None:
        return {0: real, 8: np.dtype(np.int8), 4: np.dtype(np.uint8)}[storage.bits]
    kinds = {0: "f", 8: "i", 4: "u"}
    kind = "f" if past.dtype.name in _REAL else past.dtype.kind
    require(kind == kinds[storage.bits], _OP, f"'{name}' does not have the type of its storage", got=past.dtype)
    return past.dtype


def _capacity(pasts: tuple[Array | None, Array | None], stored: tuple[Array, ...]) -> int:
    key, value = pasts
    require((key is None) == (value is None), _OP, "'past_key' and 'past_value' come together")
    if key is None or value is None:
        return 0
    for name, past, new in (("past_key", key, stored[0]), ("past_value", value, stored[1])):
        fits = past.ndim == 4 and past.shape[:2] == new.shape[:2] and past.shape[3] == new.shape[3]
        fits = fits and past.shape[2] == key.shape[2]
        wanted = f"({new.shape[0]}, {new.shape[1]}, length, {new.shape[3]})"
        require(fits, _OP, f"'{name}' has the wrong shape", expected=wanted, got=past.shape)
    return int(key.shape[2])


def _held(totals: Array, capacity: int, window: int) -> Array:
    """How many positions a sliding cache holds after so many: it evicts ``capacity - window + 1`` at a time."""
    step = capacity - window + 1
    over = np.maximum(totals - capacity, 0)
    return np.asarray(totals - step * -(-over // step))


def _visible(rows: Rows, queries: int, keys: int, causal: bool, window: int) -> Array:
    """Which keys each query may see: (batch, 1, queries, keys). Padding queries see what the last real one sees."""
    key = rows.positions(keys)[:, None, :]
    seen = key < rows.total[:, None, None]
    if not causal:
        return np.broadcast_to(seen, (seen.shape[0], queries, keys))[:, None]
    last = (rows.total - 1)[:, None]
    query = np.minimum(rows.past[:, None] + np.arange(queries), last)[:, :, None]
    seen = seen & (key <= query)
    if window > 0:
        seen = seen & (key > query - window)
    return np.asarray(seen)[:, None]


def _make_bias(bias: Array | None, visible: Array, rows: Rows, heads: int, total: int) -> Array:
    """The numbers to add to the scores; a bias counts its columns by position."""
    if bias is None:
        return np.where(visible, np.float32(0), LOWEST)
    batch, _, queries, keys = visible.shape
    whole = check_bias(_OP, bias, (batch, heads, queries, total))
    columns = np.clip(rows.positions(keys), 0, max(total - 1, 0))
    spread = np.broadcast_to(whole, (batch, *whole.shape[1:]))
    return np.where(visible, np.take_along_axis(spread, columns[:, None, None, :], axis=3), LOWEST)


def _sink(head_sink: Array | None, smooth_softmax: int, heads: int) -> Array | None:
    """One more score a head: the given one, or zero when the softmax shall be smooth."""
    if head_sink is not None:
        require(
            head_sink.shape == (heads,), _OP, "'head_sink' has one value a head", expected=heads, got=head_sink.shape
        )
        return head_sink
    return np.zeros(heads, dtype=np.float32) if smooth_softmax > 0 else None
