"""ONNX's Attention, with its masks, caches and shared heads."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_cuda.lower.attention import Rule, add_to_scores, attend, cap_scores, hide_unless, split_heads
from dovetail_cuda.lower.expr import Expr, apply, convert, literal, position
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import concat, pad
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, Tensor, broadcast_to, make_constant, refuse
from dovetail_cuda.lower.types import FLOATS

__all__: list[str] = []


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


def _length_rules(lengths: Tensor, queries: int, is_causal: bool) -> list[Rule]:
    """Keys beyond the length of a sample are hidden; the last query is at the last of its keys."""

    def is_inside(at: Sequence[Index], guard: Expr | None) -> Expr:
        length = convert(lengths.at((at[0],), guard), "int32")
        return apply("{0} < {1}", position(at[-1], "int32"), length, dtype="bool")

    def is_earlier(at: Sequence[Index], guard: Expr | None) -> Expr:
        length = convert(lengths.at((at[0],), guard), "int32")
        places = position(at[-2], "int32"), position(at[-1], "int32")
        return apply("{1} <= {0} + {2} - {3}", *places, length, literal(queries, "int32"), dtype="bool")

    return [hide_unless(is_inside), *([hide_unless(is_earlier)] if is_causal else [])]


@registry.register("Attention", since=23, until=24, types={"T1": FLOATS, "T2": FLOATS, "U": (*FLOATS, "bool")})
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
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 1,
    num_outputs: int = 1,
) -> tuple[Lowered, ...]:
    """Attention before it had windows."""
    if num_outputs > 3:
        raise refuse("it does not give out the scores of attention")
    is_joined = q.rank == 3
    query, key, value = (
        split_heads(x, heads) if is_joined else x
        for x, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
    )
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        key, value = concat(past_key, key, axis=2), concat(past_value, value, axis=2)
    shape = (*query.shape[:3], key.shape[2])
    rules: list[Rule] = [cap_scores(softcap)] if softcap > 0 else []
    rules += [] if attn_mask is None else [_mask_rule(attn_mask, shape)]
    if nonpad_kv_seqlen is not None:
        rules += _length_rules(nonpad_kv_seqlen, query.shape[2], bool(is_causal))
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
    return (made, key, value)[:num_outputs]
