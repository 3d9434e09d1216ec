"""ONNX's Attention, with its masks, caches and shared heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from dovetail_cuda.lower.attention import (
    AttentionTensor,
    Rule,
    add_to_scores,
    attend,
    cap_scores,
    hide_later,
    hide_unless,
    join_rules,
    multiply_queries,
    repeat_heads,
    split_heads,
    weigh_scores,
)
from dovetail_cuda.lower.expr import Expr, apply, convert, literal, position
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import concat, pad
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.stages import Store, make_staged
from dovetail_cuda.lower.tensors import Lowered, Tensor, broadcast_to, make_constant
from dovetail_cuda.lower.types import FLOATS

__all__: list[str] = []

_SCORES: Final = 3
"""The output that the scores are."""
_CAPPED, _MASKED, _WEIGHTS = 1, 2, 3
_TYPES: Final = {"T1": FLOATS, "T2": FLOATS, "U": (*FLOATS, "bool")}
Find = Callable[[Sequence[Index], Expr | None], Expr]
"""From the coordinates of a score to a number."""


def _mask_rule(mask: Tensor, shape: Sequence[int]) -> Rule:
    """A mask of truths or of numbers to add; keys that it does not reach are hidden."""
    missing = shape[-1] - mask.shape[-1] if mask.rank and mask.shape[-1] != 1 else 0
    if missing > 0:
        filler = make_constant(False if mask.dtype == "bool" else float("-inf"), (), mask.dtype)
        mask = pad(mask, (0,) * mask.rank, (*(0,) * (mask.rank - 1), missing), filler)
    if mask.dtype != "bool":
        return add_to_scores(mask)
    stretched = broadcast_to(mask, shape)
    return hide_unless(stretched.at)


def _inside_rule(lengths: Tensor) -> Rule:
    """Keys beyond the length of a sample are hidden."""

    def is_inside(at: Sequence[Index], guard: Expr | None) -> Expr:
        length = convert(lengths.at((at[0],), guard), "int32")
        return apply("{0} < {1}", position(at[-1], "int32"), length, dtype="bool")

    return hide_unless(is_inside)


def _find_first(lengths: Tensor | None, queries: int, past: int) -> Find:
    """The position of the first query: behind the past, or so that the last one is at the last key of its sample."""

    def find(at: Sequence[Index], guard: Expr | None) -> Expr:
        if lengths is None:
            return literal(past, "int32")
        length = convert(lengths.at((at[0],), guard), "int32")
        return apply("{0} - {1}", length, literal(queries, "int32"), dtype="int32")

    return find


def _place_rule(text: str, first: Find, number: int = 0) -> Rule:
    """Keys are hidden unless a condition holds of the position of the query, that of the key, and a number."""

    def is_seen(at: Sequence[Index], guard: Expr | None) -> Expr:
        own = apply("{0} + {1}", first(at, guard), position(at[-2], "int32"), dtype="int32")
        return apply(text, own, position(at[-1], "int32"), literal(number, "int32"), dtype="bool")

    return hide_unless(is_seen)


@registry.register("Attention", since=23, until=24, types=_TYPES)
def attention_without_windows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 1,
    num_outputs: int = 1,
) -> tuple[Lowered, ...]:
    """Attention before it had windows."""
    return attention(
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
        num_outputs=num_outputs,
    )


@registry.register("Attention", since=25, types=_TYPES)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 1,
    num_outputs: int = 1,
) -> tuple[Lowered, ...]:
    """Mix the values by how well their keys match each query; also the caches."""
    is_joined = q.rank == 3
    query, key, value = (
        split_heads(x, heads) if is_joined else x
        for x, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
    )
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        key, value = concat(past_key, key, axis=2), concat(past_value, value, axis=2)
    shape = (*query.shape[:3], key.shape[2])
    first = _find_first(nonpad_kv_seqlen, query.shape[2], past)
    rules: list[Rule] = [cap_scores(softcap)] if softcap > 0 else []
    rules += [] if attn_mask is None else [_mask_rule(attn_mask, shape)]
    rules += [] if nonpad_kv_seqlen is None else [_inside_rule(nonpad_kv_seqlen)]
    rules += [_place_rule("{1} <= {0}", first)] if is_causal and nonpad_kv_seqlen is not None else []
    rules += [_place_rule("{1} >= {0} - {2}", first, left_window_size)] if left_window_size >= 0 else []
    rules += [_place_rule("{1} <= {0} + {2}", first, right_window_size)] if right_window_size >= 0 else []
    made = attend(
        query,
        key,
        value,
        scale=query.shape[3] ** -0.5 if scale is None else scale,
        rules=rules,
        causal=past if is_causal and nonpad_kv_seqlen is None else None,
        zeroes_blind=True,
        is_joined=is_joined,
    )
    if num_outputs <= _SCORES:
        return (made, key, value)[:num_outputs]
    whole = AttentionTensor(
        shape=(*shape[:3], value.shape[3]),
        dtype="float64" if q.dtype == "float64" else "float32",
        query=query,
        key=repeat_heads(key, shape[1]),
        value=value,
        scale=made.scale,
        mask=join_rules(rules) if rules else None,
        causal=past if is_causal and nonpad_kv_seqlen is None else None,
        zeroes_blind=True,
    )
    return (made, key, value, _give_scores(whole, softcap, qk_matmul_output_mode, q.dtype))


def _give_scores(whole: AttentionTensor, softcap: float, mode: int, dtype: str) -> Lowered:
    """The scores themselves, as products (0), bent to a bound (1), masked (2) or as weights (3)."""
    wide = whole.dtype
    shape = (*whole.shape[:3], whole.key.shape[2])

    def steps(store: Store) -> Sequence[Tensor]:
        query, key = (_cast(each, wide) for each in (whole.query, whole.key))
        single = replace(whole, query=query, key=key)
        products = store("products", multiply_queries(single))
        if mode == _WEIGHTS:
            return (_cast(store("weights", weigh_scores(single, products)), dtype),)
        factor = literal(whole.scale, wide)
        scores = map_elements(lambda a: apply("{0} * {1}", a, factor, dtype=wide), products, dtype=wide)
        if mode == _CAPPED and softcap > 0:
            scores = cap_scores(softcap)(scores)
        if mode == _MASKED:
            scores = scores if whole.mask is None else whole.mask(scores)
            scores = scores if whole.causal is None else hide_later(whole.causal)(scores)
        return (_cast(scores, dtype),)

    return make_staged([(shape, dtype)], steps)[0]


def _cast(x: Tensor, dtype: str) -> Tensor:
    """A tensor in another type."""
    return map_elements(lambda a: convert(a, dtype), x, dtype=dtype)
