"""MultiHeadAttention and GroupQueryAttention of com.microsoft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dovetail_cuda.lower.attention import (
    Rule,
    add_to_scores,
    attend,
    cap_scores,
    hide_unless,
    split_heads,
)
from dovetail_cuda.lower.expr import Expr, apply, both, convert, literal, position, select, within
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import concat, move, reshape_to, transpose_to
from dovetail_cuda.lower.operators.gather import clamp_index
from dovetail_cuda.lower.operators.rotary import angles_at, rotate, rows_after
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, Tensor, make_constant, refuse

__all__: list[str] = []

_DOMAIN: Final = "com.microsoft"
_REAL: Final = ("float32", "float16", "bfloat16")
_FILTER: Final = -10000.0
"""What is added to a masked score when no attribute says otherwise."""
Coordinates = Sequence[Index]


@registry.register("MultiHeadAttention", domain=_DOMAIN, since=1, types={"T": _REAL, "M": ("int32",)})
def multi_head_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    *,
    mask_filter_value: float = _FILTER,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
    num_outputs: int = 1,
) -> tuple[Lowered, ...]:
    """Attention of what is projected already; also the caches."""
    if past_sequence_length is not None or cache_indirection is not None or num_outputs > 3:
        raise refuse("it has no shared caches and gives out no scores in MultiHeadAttention")
    q, k, v = _unpack(query, key, value, num_heads)
    if bias is not None:
        is_cache = key is not None and key.rank == 4
        q, k, v = _add_bias(q, k, v, bias, is_cache=is_cache)
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        k, v = concat(past_key, k, axis=2), concat(past_value, v, axis=2)
    shape = (*q.shape[:3], k.shape[2])
    rules: list[Rule] = []
    if key_padding_mask is not None:
        rules += _padding_rules(key_padding_mask, shape, mask_filter_value)
    if attention_bias is not None:
        rules.append(add_to_scores(attention_bias))
    made = attend(
        q,
        k,
        v,
        scale=scale or q.shape[3] ** -0.5,
        rules=rules,
        causal=past if unidirectional else None,
        is_joined=True,
    )
    return (made, k, v)[:num_outputs]


def _unpack(query: Tensor, key: Tensor | None, value: Tensor | None, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Heads of queries, keys and values: three tensors, keys and values in one, or all of them in one."""
    if query.rank == 5:
        q, k, v = (_take_part(query, number) for number in range(3))
        return q, k, v
    q = split_heads(query, heads)
    if key is None:
        raise refuse("MultiHeadAttention has no keys")
    if key.rank == 5:
        return q, _take_part(key, 0), _take_part(key, 1)
    if value is None:
        raise refuse("MultiHeadAttention has no values")
    k, v = (split_heads(each, heads) if each.rank == 3 else each for each in (key, value))
    return q, k, v


def _take_part(x: Tensor, number: int) -> Tensor:
    """One of what is packed as (batch, length, heads, parts, size)."""
    batch, length, heads, _, size = x.shape
    part = Index((), number)
    return move(x, (batch, heads, length, size), lambda at: (at[0], at[2], at[1], part, at[3]))


def _add_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *, is_cache: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values from a cache had theirs added when they went in."""
    made, start = [], 0
    for x in (q, k, v):
        made.append(_add_part(x, bias, start))
        start += x.shape[1] * x.shape[3]
    if bias.count != start:
        raise refuse(f"a bias of {bias.count} numbers does not fit {start} features")
    return (made[0], k, v) if is_cache else (made[0], made[1], made[2])


def _add_part(x: Tensor, bias: Tensor, start: int) -> Tensor:
    _, heads, _, size = x.shape
    part = move(bias, (1, heads, 1, size), lambda at: (at[1] * size + at[3] + start,))
    return map_elements(lambda a, b: apply("{0} + {1}", a, b, dtype=x.dtype), x, part, dtype=x.dtype)


def _padding_rules(mask: Tensor, shape: Sequence[int], filter_value: float) -> list[Rule]:
    """Lengths (batch,), ends and starts (2 * batch,), lengths and offsets (3 * batch + 2,), or which keys count."""
    batch, _, queries, keys = shape
    if mask.rank == 1 and mask.count in (batch, 2 * batch, 3 * batch + 2):
        is_seen = _by_length(mask, batch)
    elif mask.shape in ((batch, 1), (1, 1)) and keys != 1:
        return []  # a mask without a mask's shape says that there is none
    elif mask.shape in ((batch, keys), (batch, queries, keys)):

        def is_seen(at: Coordinates, guard: Expr | None) -> Expr:
            place = (at[0], at[3]) if mask.rank == 2 else (at[0], at[2], at[3])
            return apply("{0} > 0", mask.at(place, guard), dtype="bool")

    else:
        raise refuse(f"a mask of shape {mask.shape} is none for scores of shape {tuple(shape)}")

    def add(scores: Tensor) -> Tensor:
        def pull(at: Coordinates, guard: Expr | None) -> Expr:
            value = scores.at(at, guard)
            text = "tl.where({0}, {1}, {1} + {2})"
            return apply(text, is_seen(at, guard), value, literal(filter_value, value.dtype), dtype=value.dtype)

        return Tensor(shape=scores.shape, dtype=scores.dtype, pull=pull)

    return [add]


def _by_length(mask: Tensor, batch: int) -> Any:
    def is_seen(at: Coordinates, guard: Expr | None) -> Expr:
        key, end = position(at[3], "int32"), mask.at((at[0],), guard)
        if mask.count != 2 * batch:
            return apply("{0} < {1}", key, end, dtype="bool")
        return apply("({0} < {1}) & ({0} >= {2})", key, end, mask.at((at[0] + batch,), guard), dtype="bool")

    return is_seen


# keys that several heads share, with a cache


@registry.register(
    "GroupQueryAttention",
    domain=_DOMAIN,
    since=1,
    types={"T": _REAL, "T_CACHE": _REAL, "M": ("int32",)},
    host_inputs=(6,),
)
def group_query_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    seqlens_k: Tensor,
    total_sequence_length: Any,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None,
    head_sink: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
    num_outputs: int = 1,
) -> tuple[Lowered, ...]:
    """Attention to a cache and to the new keys, which go into it behind the past of each sample; also the cache."""
    given = (head_sink, k_scale, v_scale, q_norm_weight, k_norm_weight)
    is_plain = k_quant_type == v_quant_type == "NONE" and not sliding_window_cache and smooth_softmax <= 0
    if any(each is not None for each in given) or not is_plain or num_outputs > 3:
        raise refuse("it has no sinks, norms, windows or quantization of caches in GroupQueryAttention")
    q, k, v = _split_groups(query, key, value, num_heads, kv_num_heads)
    total, length = int(np.ravel(total_sequence_length)[0]), q.shape[2]
    past = _find_past(seqlens_k, length, is_first=total == length)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise refuse("GroupQueryAttention has no angles")
        q, k = (
            _rotate_heads(x, cos_cache, sin_cache, position_ids, past, is_interleaved=bool(rotary_interleaved))
            for x in (q, k)
        )
    capacity = 0 if past_key is None else past_key.shape[2]
    present = [
        _fill_cache(old, new, past, max(capacity, total), is_first=total == length)
        for old, new in ((past_key, k), (past_value, v))
    ]
    keys, values = (
        new if total == length else move(cache, (*cache.shape[:2], total, cache.shape[3]), lambda at: at)
        for new, cache in zip((k, v), present, strict=True)
    )
    made = attend(
        q,
        keys,
        values,
        scale=scale or q.shape[3] ** -0.5,
        rules=_group_rules(seqlens_k, past, attention_bias, bool(causal), local_window_size, softcap),
        is_joined=True,
    )
    results: tuple[Lowered, ...] = (made, *present)
    return results[:num_outputs]


def _split_groups(
    query: Tensor, key: Tensor | None, value: Tensor | None, heads: int, shared: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Three tensors, or one that holds all of them side by side."""
    if key is not None and value is not None:
        return split_heads(query, heads), split_heads(key, shared), split_heads(value, shared)
    packed = split_heads(query, heads + 2 * shared)

    def take(start: int, count: int) -> Tensor:
        shape = (packed.shape[0], count, *packed.shape[2:])
        return move(packed, shape, lambda at: (at[0], at[1] + start, at[2], at[3]))

    return take(0, heads), take(heads, shared), take(heads + shared, shared)


def _find_past(seqlens_k: Tensor, length: int, *, is_first: bool) -> Tensor:
    """How many keys each sample had: none where there are only new ones."""
    flat = reshape_to(seqlens_k, (seqlens_k.count,))
    if is_first:
        return make_constant(0, flat.shape, "int32")
    number = literal(1 - length, "int32")
    return map_elements(lambda a: apply("{0} + {1}", a, number, dtype="int32"), flat, dtype="int32")


def _rotate_heads(
    x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None, past: Tensor, *, is_interleaved: bool
) -> Tensor:
    batch, _, length, _ = x.shape
    angles = [
        rows_after(cache, past, length) if position_ids is None else angles_at(cache, position_ids, batch, length)
        for cache in (cos, sin)
    ]
    turned = rotate(transpose_to(x, (0, 2, 1, 3)), *angles, is_interleaved=is_interleaved)
    return transpose_to(turned, (0, 2, 1, 3))


def _fill_cache(old: Tensor | None, new: Tensor, past: Tensor, room: int, *, is_first: bool) -> Tensor:
    """What a cache holds with new rows behind the past of each sample; zeros where there never was anything."""
    batch, heads, length, size = new.shape

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        zero = literal(0, new.dtype)
        if old is None or not old.shape[2]:
            held: Expr = zero
        else:
            is_held = within(at[2], 0, old.shape[2])
            held = select(is_held, old.at(at, both(guard, is_held)), zero)
        if is_first:
            is_new = within(at[2], 0, length)
            return select(is_new, new.at(at, both(guard, is_new)), held)
        start = past.at((at[0],), guard)
        number = apply("{0} - {1}", position(at[2], "int32"), start, dtype="int32")
        place = clamp_index(convert(number, "int64"), length)
        fresh = new.at((at[0], at[1], place, at[3]), guard)
        is_inside = apply("({0} >= 0) & ({0} < {1})", number, literal(length, "int32"), dtype="bool")
        return select(is_inside, fresh, held)

    return Tensor(shape=(batch, heads, room, size), dtype=new.dtype, pull=pull)


def _group_rules(
    seqlens_k: Tensor, past: Tensor, bias: Tensor | None, is_causal: bool, window: int, softcap: float
) -> list[Rule]:
    """Bend scores to their bound, add a bias, and hide what is not there, comes later, or is out of the window."""
    rules: list[Rule] = [cap_scores(softcap)] if softcap > 0 else []
    rules += [] if bias is None else [add_to_scores(bias)]

    def is_seen(at: Coordinates, guard: Expr | None) -> Expr:
        key, last = position(at[3], "int32"), seqlens_k.at(_first(seqlens_k, at[0]), guard)
        seen = apply("{0} <= {1}", key, last, dtype="bool")
        if not is_causal:
            return seen
        start = past.at((at[0],), guard)
        own = apply("tl.minimum({0} + {1}, {2})", start, position(at[2], "int32"), last, dtype="int32")
        seen = apply("{0} & ({1} <= {2})", seen, key, own, dtype="bool")
        if window <= 0:
            return seen
        return apply("{0} & ({1} > {2} - {3})", seen, key, own, literal(window, "int32"), dtype="bool")

    return [*rules, hide_unless(is_seen)]


def _first(lengths: Tensor, sample: Index) -> Coordinates:
    return (sample, *(Index() for _ in range(lengths.rank - 1)))
