"""Sums and products over everything before an element: each is a row of its own, right and not fast for long axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_cuda.lower.expr import Expr, apply, literal, position, select
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import find_axis
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, Rows, Tensor
from dovetail_cuda.lower.types import WIDE

__all__: list[str] = []


def _scan(kind: str, neutral: int, x: Tensor, axis: Any, exclusive: int, reverse: int) -> Lowered:
    along = find_axis(np.ravel(axis)[0], x.rank)
    compared = {(0, 0): "{0} <= {1}", (1, 0): "{0} < {1}", (0, 1): "{0} >= {1}", (1, 1): "{0} > {1}"}
    text, nothing = compared[exclusive, reverse], literal(neutral, x.dtype)

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        *own, other = at
        counts = apply(text, position(other), position(own[along]), dtype="bool")
        value = x.at((*own[:along], other, *own[along + 1 :]), guard)
        return select(counts, value, nothing)

    pairs = Tensor(shape=(*x.shape, x.shape[along]), dtype=x.dtype, pull=pull)

    def body(rows: Rows) -> Expr:
        return rows.reduce(kind, rows.read(pairs))

    return make_reduced(pairs, (x.rank,), body, keep=False)


@registry.register("CumSum", since=11, types={"T": WIDE}, host_inputs=(1,))
def cumulative_sum(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Lowered:
    """Sums of what comes before."""
    return _scan("sum", 0, x, axis, exclusive, reverse)


@registry.register("CumProd", since=26, types={"T": WIDE}, host_inputs=(1,))
def cumulative_product(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Lowered:
    """Products of what comes before."""
    return _scan("prod", 1, x, axis, exclusive, reverse)
