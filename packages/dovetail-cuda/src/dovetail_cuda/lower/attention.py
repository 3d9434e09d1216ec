"""Attention: what it is, as one thing and in steps, and ONNX's operator with its masks, caches and shared heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dovetail_cuda.lower.expr import Expr, apply, convert, literal, position
from dovetail_cuda.lower.gemm import matmul
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import concat, move, pad, reshape_to, transpose_to
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.reduce import make_rows
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Anchor, Lowered, Rows, Tensor, broadcast_to, make_constant, refuse
from dovetail_cuda.lower.types import FLOATS

__all__ = [
    "AttentionTensor",
    "Rule",
    "add_to_scores",
    "attend",
    "hide_unless",
    "join_rules",
    "multiply_queries",
    "multiply_values",
    "repeat_heads",
    "split_heads",
    "weigh_scores",
]

Rule = Callable[[Tensor], Tensor]
"""From scores to scores."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionTensor(Anchor):
    """Values mixed by how well their keys match each query: the softmax of products of queries and keys, times values.

    Its shape is (..., queries, value features), and queries, keys and values have the same dimensions before those.
    """

    query: Tensor
    """(..., queries, features)"""
    key: Tensor
    """(..., keys, features)"""
    value: Tensor
    """(..., keys, value features)"""
    scale: float
    """What the products are multiplied with."""
    mask: Rule | None = None
    """From the scaled products, (..., queries, keys), to what the softmax is taken of."""
    causal: int | None = None
    """Query i sees the keys up to i and this many more; None where it sees all."""
    zeroes_blind: bool = False
    """Whether a query that sees no key gives zeros, and not NaN."""


# in steps


def multiply_queries(made: AttentionTensor) -> Lowered:
    """The scores."""
    order = (*range(made.key.rank - 2), made.key.rank - 1, made.key.rank - 2)
    return matmul(made.query, transpose_to(made.key, order))


def weigh_scores(made: AttentionTensor, scores: Tensor) -> Lowered:
    """The softmax of scores that are stored."""
    dtype = scores.dtype
    scaled = map_elements(lambda a: apply("{0} * {1}", a, literal(made.scale, dtype), dtype=dtype), scores, dtype=dtype)
    masked = scaled if made.mask is None else made.mask(scaled)
    if made.causal is not None:
        masked = hide_unless(_compare("{1} <= {0} + {2}", made.causal))(masked)

    def body(rows: Rows) -> Expr:
        value = rows.read(masked)
        # Of a row that sees nothing, nothing is taken out.
        text = "tl.where({0} == float('-inf'), 0.0, {0})"
        top = apply(text, rows.reduce("max", value), dtype=dtype)
        power = apply("tl.exp({0} - {1})", value, top, dtype=dtype)
        text = "tl.where({1} == 0, 0.0, {0} / {1})" if made.zeroes_blind else "{0} / {1}"
        return apply(text, power, rows.reduce("sum", power), dtype=dtype)

    return make_rows(masked, (scores.rank - 1,), body)


def multiply_values(made: AttentionTensor, weights: Tensor) -> Anchor:
    """The values mixed by weights that are stored."""
    product = matmul(weights, made.value)
    if not isinstance(product, Anchor):
        raise refuse(f"it mixes no values of {made.value.dtype}")
    return product


# heads


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    if heads <= 0 or x.shape[2] % heads:
        raise refuse(f"{x.shape[2]} features do not make {heads} heads")
    parts = reshape_to(x, (*x.shape[:2], heads, x.shape[2] // heads))
    return transpose_to(parts, (0, 2, 1, 3))


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Each head for all the queries of its group."""
    shared = x.shape[1]
    if shared == heads:
        return x
    if not shared or heads % shared:
        raise refuse(f"{heads} heads of queries do not share {shared} heads of keys")
    group = heads // shared
    return move(x, (x.shape[0], heads, *x.shape[2:]), lambda at: (at[0], at[1] // group, at[2], at[3]))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    rules: Sequence[Rule] = (),
    causal: int | None = None,
    zeroes_blind: bool = False,
    is_joined: bool = False,
) -> AttentionTensor:
    """Attention over heads, (batch, heads, length, size), of which keys and values may have fewer."""
    heads = query.shape[1]
    key, value = repeat_heads(key, heads), repeat_heads(value, heads)
    fits = query.shape[0] == key.shape[0] and query.shape[3] == key.shape[3] and key.shape[:3] == value.shape[:3]
    if not fits or not key.shape[2]:
        raise refuse(f"queries {query.shape}, keys {key.shape} and values {value.shape} do not fit")
    size = value.shape[3]
    return AttentionTensor(
        shape=(*query.shape[:3], size),
        dtype=query.dtype,
        query=query,
        key=key,
        value=value,
        scale=scale,
        mask=join_rules(rules) if rules else None,
        causal=causal,
        zeroes_blind=zeroes_blind,
        finish=_join_heads if is_joined else lambda result: result,
        spread=(lambda at: (at[0], at[2], at[1] * size + at[3])) if is_joined else lambda at: at,
    )


def _join_heads(x: Tensor) -> Tensor:
    """(batch, heads, length, size) as (batch, length, heads * size)."""
    batch, heads, length, size = x.shape
    return reshape_to(transpose_to(x, (0, 2, 1, 3)), (batch, length, heads * size))


def join_rules(rules: Sequence[Rule]) -> Rule:
    """One rule after the other."""

    def apply_all(scores: Tensor) -> Tensor:
        for rule in rules:
            scores = rule(scores)
        return scores

    return apply_all


# rules for scores


def add_to_scores(bias: Tensor) -> Rule:
    """A tensor that is stretched over the scores, added to them."""

    def add(scores: Tensor) -> Tensor:
        stretched = broadcast_to(bias, scores.shape)

        def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
            value = scores.at(at, guard)
            return apply("{0} + {1}", value, convert(stretched.at(at, guard), value.dtype), dtype=value.dtype)

        return Tensor(shape=scores.shape, dtype=scores.dtype, pull=pull)

    return add


def hide_unless(condition: Callable[[Sequence[Index], Expr | None], Expr], hidden: float = float("-inf")) -> Rule:
    """Another number in place of the scores for which a condition does not hold."""

    def hide(scores: Tensor) -> Tensor:
        def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
            value = scores.at(at, guard)
            other = literal(hidden, value.dtype)
            return apply("tl.where({0}, {1}, {2})", condition(at, guard), value, other, dtype=value.dtype)

        return Tensor(shape=scores.shape, dtype=scores.dtype, pull=pull)

    return hide


def cap_scores(bound: float) -> Rule:
    """Scores bent to a bound by the hyperbolic tangent."""

    def cap(scores: Tensor) -> Tensor:
        def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
            value = scores.at(at, guard)
            return apply("{1} * f.tanh({0} / {1})", value, literal(bound, value.dtype), dtype=value.dtype)

        return Tensor(shape=scores.shape, dtype=scores.dtype, pull=pull)

    return cap


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


def _compare(text: str, *numbers: int) -> Callable[[Sequence[Index], Expr | None], Expr]:
    """A condition on the places of a query and a key."""
    given = [literal(number, "int32") for number in numbers]

    def condition(at: Sequence[Index], guard: Expr | None) -> Expr:
        return apply(text, position(at[-2], "int32"), position(at[-1], "int32"), *given, dtype="bool")

    return condition


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
