"""Attention: what it is, as one thing and in steps, and the rules that mask its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail_cuda.lower.expr import Expr, apply, convert, literal, position
from dovetail_cuda.lower.gemm import matmul
from dovetail_cuda.lower.index import Index, flatten, unflatten
from dovetail_cuda.lower.indexing import move, reshape_to, transpose_to
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.reduce import make_rows
from dovetail_cuda.lower.sizes import may_exceed
from dovetail_cuda.lower.tensors import (
    Anchor,
    Lowered,
    Rows,
    Tensor,
    broadcast_shapes,
    broadcast_to,
    refuse,
)

__all__ = [
    "AttentionTensor",
    "Rule",
    "add_to_scores",
    "attend",
    "attend_written",
    "cap_scores",
    "compare_places",
    "hide_later",
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
_MOST_PACKED: Final = 64
"""Queries of heads that share keys are taken together up to this many."""


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
    return matmul(made.query, _swap_last(made.key))


def weigh_scores(made: AttentionTensor, scores: Tensor) -> Lowered:
    """The softmax of scores that are stored."""
    dtype = scores.dtype
    scaled = map_elements(lambda a: apply("{0} * {1}", a, literal(made.scale, dtype), dtype=dtype), scores, dtype=dtype)
    masked = scaled if made.mask is None else made.mask(scaled)
    if made.causal is not None:
        masked = hide_later(made.causal)(masked)

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
    batch, heads, length, size = query.shape
    shared, keys, columns = key.shape[1], key.shape[2], value.shape[3]
    fits = key.shape == (batch, shared, keys, size) and value.shape[:3] == key.shape[:3]
    if not fits or not keys or not shared or heads % shared:
        raise refuse(f"queries {query.shape}, keys {key.shape} and values {value.shape} do not fit")
    group, rules = heads // shared, list(rules)
    if group > 1 and not may_exceed(length * group, _MOST_PACKED):  # queries that share keys are rows of one tile
        if causal is not None and causal < keys - 1:
            rules.append(hide_later(causal))
        query, causal = reshape_to(query, (batch, shared, group * length, size)), None
    else:
        key, value = repeat_heads(key, heads), repeat_heads(value, heads)
    shape = (batch, heads, length, columns)

    def finish(result: Tensor) -> Tensor:
        parted = reshape_to(result, shape)
        return _join_heads(parted) if is_joined else parted

    def spread(at: Sequence[Index]) -> Sequence[Index]:
        b, h, i, d = unflatten(flatten(at, (*query.shape[:3], columns)), shape)
        return (b, i, h * columns + d) if is_joined else (b, h, i, d)

    return AttentionTensor(
        shape=(*query.shape[:3], columns),
        dtype=query.dtype,
        query=query,
        key=key,
        value=value,
        scale=scale,
        mask=_over(join_rules(rules), (batch, heads, length, keys)) if rules else None,
        causal=causal,
        zeroes_blind=zeroes_blind,
        finish=finish,
        spread=spread,
    )


def _over(rule: Rule, shape: Sequence[int]) -> Rule:
    """A rule for scores of a shape, which may be packed otherwise."""
    return lambda scores: reshape_to(rule(reshape_to(scores, shape)), scores.shape)


def attend_written(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Rule | None, zeroes_blind: bool
) -> AttentionTensor:
    """Attention of (..., queries, features), (..., features, keys) and (..., keys, value features)."""
    batch = broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    query, key, value = (broadcast_to(each, (*batch, *each.shape[-2:])) for each in (query, key, value))
    return AttentionTensor(
        shape=(*batch, query.shape[-2], value.shape[-1]),
        dtype=value.dtype,
        query=query,
        key=_swap_last(key),
        value=value,
        scale=1.0,
        mask=mask,
        zeroes_blind=zeroes_blind,
    )


def _swap_last(x: Tensor) -> Tensor:
    return transpose_to(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


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


def hide_later(reach: int) -> Rule:
    """A query sees the keys up to its own number and so many more."""
    return hide_unless(compare_places("{1} <= {0} + {2}", reach))


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


def compare_places(text: str, *numbers: int) -> Callable[[Sequence[Index], Expr | None], Expr]:
    """A condition on the numbers of a query and a key."""
    given = [literal(number, "int32") for number in numbers]

    def condition(at: Sequence[Index], guard: Expr | None) -> Expr:
        return apply(text, position(at[-2], "int32"), position(at[-1], "int32"), *given, dtype="bool")

    return condition
