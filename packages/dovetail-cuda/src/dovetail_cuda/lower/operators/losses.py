"""Losses: elements chosen by a target, summed up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail_cuda.lower.expr import Expr, apply, convert, literal, select
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.operators.gather import clamp_index
from dovetail_cuda.lower.reduce import log_softmax, make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.stages import Store, make_staged
from dovetail_cuda.lower.tensors import Lowered, Rows, Tensor, make_constant

__all__: list[str] = []


@registry.register("NegativeLogLikelihoodLoss", since=12, types={"T": ("float16", "float32", "float64")})
def negative_log_likelihood(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Lowered:
    """What the input has at the class of each target, negated and weighted."""
    classes, weights = x.shape[1], weight or make_constant(1, (x.shape[1],), x.dtype)

    def parts(at: Sequence[Index], guard: Expr | None) -> tuple[Expr, Expr]:
        """The loss of a target, and its weight; nothing for one that is ignored."""
        raw = convert(target.at(at, guard), "int64")
        kept = None
        if ignore_index is not None:
            kept = apply("{0} != {1}", raw, literal(ignore_index, "int64"), dtype="bool")
        chosen = clamp_index(select(kept, raw, literal(0, "int64")), classes)
        zero = literal(0, x.dtype)
        factor = select(kept, weights.at((chosen,), guard), zero)
        value = x.at((at[0], chosen, *at[1:]), guard)
        return apply("-{0} * {1}", value, factor, dtype=x.dtype), factor

    loss = Tensor(shape=target.shape, dtype=x.dtype, pull=lambda at, guard: parts(at, guard)[0])
    if reduction == "none":
        return loss

    def body(rows: Rows) -> Expr:
        values: Any = parts(rows.coordinates, None)
        total = rows.reduce("sum", values[0])
        return total if reduction == "sum" else apply("{0} / {1}", total, rows.reduce("sum", values[1]), dtype=x.dtype)

    return make_reduced(loss, range(target.rank), body, keep=False)


@registry.register("SoftmaxCrossEntropyLoss", since=12, types={"T": ("float16", "float32", "float64")})
def softmax_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    num_outputs: int = 1,
) -> tuple[Lowered, ...]:
    """The loss of the logarithms of a softmax over classes, and these logarithms."""

    def steps(store: Store) -> Sequence[Tensor]:
        logarithms = store("logarithms", log_softmax(scores, axis=1))
        loss = negative_log_likelihood(logarithms, labels, weights, ignore_index=ignore_index, reduction=reduction)
        return store("loss", loss), logarithms

    shape = labels.shape if reduction == "none" else ()
    return make_staged([(shape, scores.dtype), (scores.shape, scores.dtype)], steps)[:num_outputs]
