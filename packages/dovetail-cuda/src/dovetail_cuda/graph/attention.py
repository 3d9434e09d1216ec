"""From attention to its region: operands as expressions of one element, constants taken out of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dovetail_cuda.graph.desk import Desk
from dovetail_cuda.graph.regions import ElementRegion, Region, Stored
from dovetail_cuda.lower.attention import AttentionTensor, multiply_queries, multiply_values, weigh_scores
from dovetail_cuda.lower.expr import Apply, Expr, Literal, Load, Reduced, load, walk
from dovetail_cuda.lower.index import Index, flatten, unflatten
from dovetail_cuda.lower.tensors import Tensor

__all__ = ["SCORE", "AttentionRegion", "make_attention_region", "strip_factor"]

SCORE: Final = ""
"""The buffer that the expression of a masked score reads the score from; it lies in no memory."""
_TYPES: Final = ("float16", "bfloat16", "float32")
_MOST_FEATURES: Final = 256
"""Heads beyond this do not fit the registers of a program."""
_FEW_QUERIES: Final = 16
"""Up to so many queries make one tile, so that keys and values are read once and may be computed where they are."""


@dataclass(frozen=True, kw_only=True)
class AttentionRegion(Region):
    """Attention in one pass: expressions of the variables b (all heads of all samples), i, j and d.

    These are the query, the key, and the feature of a head.
    """

    buffer: str
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
    order: tuple[int, ...]
    """The dimensions of the result, (*heads, queries, columns), as they lie in its buffer."""
    scale: float
    score: Expr | None = None
    """What the softmax is taken of, where it is not the score itself."""
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

    def find_place(self, b: Index, i: Index, d: Index) -> Index:
        """Where an element of the result goes."""
        at, shape = (*unflatten(b, self.heads), i, d), (*self.heads, self.queries, self.columns)
        return flatten([at[axis] for axis in self.order], [shape[axis] for axis in self.order])

    @property
    def operands(self) -> dict[str, str]:
        """The buffers that are read, and the result, with their types."""
        found: dict[str, str] = {}
        for expr in (self.query, self.key, self.value, self.score):
            if expr is not None:
                found.update({each.buffer: each.dtype for each in walk(expr) if isinstance(each, Load)})
        found.pop(SCORE, None)
        return {**found, self.buffer: self.dtype}


def _is_fusable(made: AttentionTensor) -> bool:
    """Whether there is a kernel for it."""
    sizes = made.query.shape[-1], made.value.shape[-1]
    is_one_type = made.dtype == made.key.dtype == made.value.dtype
    return is_one_type and made.dtype in _TYPES and max(sizes) <= _MOST_FEATURES


def make_attention_region(
    desk: Desk, name: str, made: AttentionTensor, layers: tuple[str, ...], ops: tuple[str, ...]
) -> Region:
    """The region of attention; where there is no kernel for it, the last of its steps.

    Keys and values that many queries would compute are stored first.
    """
    if not _is_fusable(made):
        return _make_steps(desk, name, made, layers, ops)
    query, key, value = (
        each if _may_compute(made, each) else desk.store_operand(f"{name}.{role}", each)
        for role, each in (("query", made.query), ("key", made.key), ("value", made.value))
    )
    settled = replace(made, query=query, key=key, value=value)
    before, last = desk.collect(lambda: _make_steps(desk, name, settled, layers, ops))
    batch, (queries, features), (keys, columns) = query.shape[:-2], query.shape[-2:], value.shape[-2:]
    query_element, query_factor = strip_factor(_element(query, "i", "d"))
    key_element, key_factor = strip_factor(_element(key, "j", "d"))
    return AttentionRegion(
        buffer=name,
        dtype=made.dtype,
        heads=batch,
        queries=queries,
        keys=keys,
        features=features,
        columns=columns,
        query=query_element,
        key=key_element,
        value=_element(value, "j", "d"),
        order=made.head_order,
        scale=made.scale * query_factor * key_factor,
        score=_find_score(made, (*batch, queries, keys)),
        causal=made.causal,
        zeroes_blind=made.zeroes_blind,
        steps=(*before, last),
        layers=layers,
        ops=ops,
    )


def _make_steps(
    desk: Desk, name: str, made: AttentionTensor, layers: tuple[str, ...], ops: tuple[str, ...]
) -> ElementRegion:
    """The last of two products, a softmax between them, and what puts the heads where they belong."""
    scores = desk.store_temporary(f"{name}.scores", multiply_queries(made), "MatMul")
    weights = desk.store_temporary(f"{name}.weights", weigh_scores(made, scores), "Softmax")
    mixed = desk.store_temporary(f"{name}.mixed", multiply_values(made, weights), "MatMul")
    at = unflatten(Index.variable("i", mixed.count), [mixed.shape[axis] for axis in made.head_order])
    places = dict(zip(made.head_order, at, strict=True))
    value = mixed.at([places[axis] for axis in range(mixed.rank)])
    stored = Stored(buffer=name, dtype=made.dtype, value=value, place=Index.variable("i", mixed.count))
    return ElementRegion(stored=(stored,), count=mixed.count, layers=layers, ops=ops)


def _may_compute(made: AttentionTensor, operand: Tensor) -> bool:
    """Whether an operand of attention may be what is computed, and need not lie in memory."""
    element, _ = strip_factor(_element(operand, "i", "d"))
    if any(isinstance(each, Reduced) for each in walk(element)):
        return False
    return isinstance(element, Load) or operand is made.query or made.query.shape[-2] <= _FEW_QUERIES


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


def _find_score(made: AttentionTensor, shape: tuple[int, ...]) -> Expr | None:
    if made.mask is None:
        return None

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        return load(SCORE, flatten(at, shape), guard, made.dtype)

    return _element(made.mask(Tensor(shape=shape, dtype=made.dtype, pull=pull)), "i", "j")
