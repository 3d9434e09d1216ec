"""From attention to its region: operands as expressions of one element, constants taken out of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dovetail_cuda.graph.desk import Desk
from dovetail_cuda.graph.followers import Follower, write_follower
from dovetail_cuda.graph.masks import simplify_score
from dovetail_cuda.graph.regions import Region, Stored
from dovetail_cuda.lower.attention import AttentionTensor, multiply_queries, multiply_values, weigh_scores
from dovetail_cuda.lower.expr import (
    BATCH,
    COLUMN,
    ROW,
    Accumulator,
    Apply,
    Expr,
    Literal,
    Load,
    Reduced,
    accumulator,
    convert,
    list_loads,
    walk,
)
from dovetail_cuda.lower.index import Index, unflatten
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.sizes import greatest, is_fixed, may_exceed
from dovetail_cuda.lower.tensors import Anchor, Tensor, refuse

__all__ = ["AttentionRegion", "make_attention_region", "strip_factor"]

_TYPES: Final = ("float16", "bfloat16", "float32")
_MOST_FEATURES: Final = 256
"""Heads beyond this do not fit the registers of a program."""
FEW_MULTIPLICATIONS = 1 << 17
"""Attention with fewer is two small products and a softmax: one pass gains nothing, and rounds otherwise."""
_FEW_QUERIES: Final = 16
"""Up to so many queries make one tile, so that keys and values are read once and may be computed where they are."""


@dataclass(frozen=True, kw_only=True)
class AttentionRegion(Region):
    """Attention in one pass: expressions of the variables b (all heads of all samples), i, j and d.

    These are the query, the key, and the feature of a head.
    """

    dtype: str
    heads: tuple[int, ...]
    """What the batch, variable b, is made of."""
    queries: int
    keys: int
    features: int
    columns: int
    """Features of a value."""
    query: Expr
    key: Expr
    value: Expr
    follower: Follower
    buffer: str
    """Where what follows is stored."""
    scale: float
    score: Expr | None = None
    """What the softmax is taken of, as an expression of the score, the accumulator; None where it is just that."""
    whole_score: Expr | None = None
    """The same with all masks that steps compute, where the kernel leaves some out."""
    causal: int | None = None
    """Query i sees the keys up to i and this many more; None where it sees all."""
    zeroes_blind: bool = False
    steps: tuple[Region, ...] = ()
    """The same as two products and a softmax between them."""

    @property
    def buffers(self) -> Sequence[str]:
        """What is read, and the result; what lies between steps is theirs."""
        return list(self.operands)

    @property
    def batch(self) -> int:
        """How many heads there are in all."""
        return math.prod(self.heads)

    @property
    def stored(self) -> Stored:
        """What is stored of the mixed values at a query (row) and a feature (column)."""
        sizes = ((BATCH, self.batch), (ROW, self.queries), (COLUMN, self.columns))
        b, i, d = (Index.variable(name, size) for name, size in sizes)
        return self.store(b, i, d, accumulator(self.dtype))

    def store(self, b: Index, i: Index, d: Index, mixed: Expr) -> Stored:
        """What is stored of a mixed value."""
        return write_follower(self.follower, self.buffer, (*unflatten(b, self.heads), i, d), mixed)

    @property
    def inner_loads(self) -> list[Load]:
        """Everything that is read before values are mixed."""
        exprs = (self.query, self.key, self.value, self.score)
        return [each for expr in exprs if expr is not None for each in list_loads(expr)]

    @property
    def loads(self) -> list[Load]:
        """Everything that is read."""
        return [*self.inner_loads, *list_loads(self.stored.value)]

    @property
    def operands(self) -> dict[str, str]:
        """The buffers that are read by any way, and the result, with their types."""
        masks = [] if self.whole_score is None else list_loads(self.whole_score)
        return {**{each.buffer: each.dtype for each in (*self.loads, *masks)}, self.buffer: self.stored.dtype}


def make_attention_region(
    desk: Desk, follower: Follower, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]
) -> Region:
    """The region of attention; where there is no kernel for it, the last of its steps.

    Keys and values that many queries would compute are stored first.
    """
    made = _check(follower.anchor)
    if not _is_fusable(made):
        return _make_steps(desk, follower, _widen_little(made), buffer, layers, ops)
    query, key, value = (
        each if _may_compute(made, each) else desk.store_operand(f"{buffer}.{role}", each)
        for role, each in (("query", made.query), ("key", made.key), ("value", made.value))
    )
    settled = replace(made, query=query, key=key, value=value)
    score, whole_score, score_factor, causal = _find_score(desk, settled)
    if score is None:  # then steps need no mask either
        settled = replace(settled, mask=None, scale=made.scale * score_factor, causal=causal)
    before, last = desk.collect(lambda: _make_steps(desk, follower, settled, buffer, layers, ops))
    query_element, query_factor = strip_factor(_element(query, "i", "d"))
    key_element, key_factor = strip_factor(_element(key, "j", "d"))
    return AttentionRegion(
        dtype=made.dtype,
        heads=query.shape[:-2],
        queries=query.shape[-2],
        keys=key.shape[-2],
        features=query.shape[-1],
        columns=value.shape[-1],
        query=query_element,
        key=key_element,
        value=_element(value, "j", "d"),
        follower=follower,
        buffer=buffer,
        scale=made.scale * query_factor * key_factor * score_factor,
        score=score,
        whole_score=whole_score,
        causal=causal,
        zeroes_blind=made.zeroes_blind,
        steps=(*before, last),
        layers=layers,
        ops=ops,
    )


def _check(anchor: Anchor) -> AttentionTensor:
    if not isinstance(anchor, AttentionTensor):
        raise refuse("no attention")
    return anchor


def _is_fusable(made: AttentionTensor) -> bool:
    """Whether there is a kernel for it, and enough to do."""
    sizes = made.query.shape[-1], made.value.shape[-1]
    is_one_type = made.dtype == made.key.dtype == made.value.dtype
    pairs = math.prod(made.query.shape[:-1]) * made.key.shape[-2]
    is_worth_it = greatest(pairs * sum(sizes)) >= FEW_MULTIPLICATIONS
    return is_one_type and is_worth_it and made.dtype in _TYPES and max(sizes) <= _MOST_FEATURES


def _widen_little(made: AttentionTensor) -> AttentionTensor:
    """Little attention in half precision as single precision, so that nothing is rounded between steps."""
    work = math.prod(made.query.shape[:-1]) * made.key.shape[-2] * max(made.query.shape[-1], made.value.shape[-1])
    if made.dtype not in ("float16", "bfloat16") or greatest(work) >= FEW_MULTIPLICATIONS:
        return made
    query, key, value = (
        map_elements(lambda a: convert(a, "float32"), each, dtype="float32")
        for each in (made.query, made.key, made.value)
    )
    return replace(made, query=query, key=key, value=value, dtype="float32")


def _make_steps(
    desk: Desk, follower: Follower, made: AttentionTensor, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]
) -> Region:
    """The last of two products with a softmax between them; what follows attention follows it."""
    scores = desk.store_temporary(f"{buffer}.scores", multiply_queries(made), "MatMul")
    weights = desk.store_temporary(f"{buffer}.weights", weigh_scores(made, scores), "Softmax")
    last = replace(follower, anchor=multiply_values(made, weights))
    return desk.make_region(last, buffer, layers, ops)


def _may_compute(made: AttentionTensor, operand: Tensor) -> bool:
    """Whether an operand of attention may be what is computed, and need not lie in memory."""
    element, _ = strip_factor(_element(operand, "i", "d"))
    if any(isinstance(each, Reduced) for each in walk(element)):
        return False
    return isinstance(element, Load) or operand is made.query or not may_exceed(made.query.shape[-2], _FEW_QUERIES)


def strip_factor(expr: Expr) -> tuple[Expr, float]:
    """An expression without the numbers that it is multiplied with or divided by, and their product."""
    factor = 1.0
    while isinstance(expr, Apply) and expr.text in ("{0} * {1}", "{0} / {1}"):
        first, second = expr.args
        if isinstance(second, Literal) and second.value:
            factor = factor * second.value if "*" in expr.text else factor / second.value
            expr = first
        elif isinstance(first, Literal) and first.value and "*" in expr.text:
            factor, expr = factor * first.value, second
        else:
            break
    return expr, factor


def _coordinates(shape: Sequence[int], row: str, column: str) -> list[Index]:
    """The place of an element: the first dimensions are one variable, b."""
    outer = unflatten(Index.variable("b", math.prod(shape[:-2])), shape[:-2])
    return [*outer, Index.variable(row, shape[-2]), Index.variable(column, shape[-1])]


def _element(tensor: Tensor, row: str, column: str) -> Expr:
    return tensor.at(_coordinates(tensor.shape, row, column))


def _find_score(desk: Desk, made: AttentionTensor) -> tuple[Expr | None, Expr | None, float, int | None]:
    """What the softmax is taken of, simplified and whole, where it is not the score; a factor; how far queries see."""
    queries, keys = made.query.shape[-2], made.key.shape[-2]
    if made.mask is None:
        return None, None, 1.0, made.causal
    shape, score_of = (*made.query.shape[:-1], keys), accumulator(made.dtype)
    scores = Tensor(shape=shape, dtype=made.dtype, pull=lambda at, guard: score_of)
    whole = _element(made.mask(scores), "i", "j")
    if is_fixed(queries) and is_fixed(keys):
        score, causal = simplify_score(whole, queries, keys, desk.find_constant)
        reach = min(keys if each is None else each for each in (causal, made.causal))
        seen = None if reach >= keys else reach
    else:  # what a mask hides cannot be looked up for all shapes
        score, seen = whole, made.causal
    inner, factor = strip_factor(score)
    is_plain = isinstance(inner, Accumulator) and factor > 0
    return (None, None, factor, seen) if is_plain else (score, whole, 1.0, seen)
