"""Regions of what is no expression: a product, and whatever else must be a kernel or a library's call of its own.

A kind of anchor is a class of ``lower.tensors.Anchor`` and an entry of ``_MAKERS``, which makes its region; operands
that do not lie in memory as they are needed are stored first, through the desk of the planner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from dovetail_cuda.graph.attention import make_attention_region
from dovetail_cuda.graph.desk import Desk
from dovetail_cuda.graph.followers import Follower, write_follower
from dovetail_cuda.graph.regions import ElementRegion, ProductRegion, Region
from dovetail_cuda.lower.attention import AttentionTensor
from dovetail_cuda.lower.expr import BATCH, COLUMN, ROW, accumulator
from dovetail_cuda.lower.index import Index, unflatten
from dovetail_cuda.lower.matrices import Matrix, find_matrix
from dovetail_cuda.lower.tensors import Anchor, ProductTensor, Tensor, broadcast_to, refuse

__all__ = ["make_anchor_region"]

_SMALL: Final = 1 << 16
"""Products of fewer multiplications than this are sums over rows: neither a library nor tiles gain anything."""


def make_anchor_region(
    desk: Desk, follower: Follower, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]
) -> Region:
    """The region that computes an anchor and stores what follows it."""
    return _MAKERS[type(follower.anchor)](desk, follower, buffer, layers, ops)


def _make_product(desk: Desk, follower: Follower, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]) -> Region:
    made = follower.anchor
    if not isinstance(made, ProductTensor):
        raise refuse("no product")
    batch = np.broadcast_shapes(made.left.shape[:-2], made.right.shape[:-2])
    m, n, k, count = made.left.shape[-2], made.right.shape[-1], made.left.shape[-1], math.prod(batch)
    if count * m * n * k < _SMALL:
        return _sum_rows(follower, made, buffer, layers, ops)
    row, column, number = (Index.variable(*each) for each in ((ROW, m), (COLUMN, n), (BATCH, count)))
    at = unflatten(number * (m * n) + row * n + column, made.shape)
    return ProductRegion(
        m=m,
        n=n,
        k=k,
        batch=count,
        dtype=made.dtype,
        left=_settle_operand(desk, f"{buffer}.left", made.left, batch),
        right=_settle_operand(desk, f"{buffer}.right", made.right, batch),
        stored=write_follower(follower, buffer, at, accumulator(made.dtype)),
        layers=layers,
        ops=ops,
    )


def _sum_rows(
    follower: Follower, made: ProductTensor, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]
) -> ElementRegion:
    """A product as one sum for each element."""
    rows = made.plain.rows
    at = unflatten(Index.variable(ROW, rows.num_rows), made.shape)
    stored = write_follower(follower, buffer, at, made.plain.value)
    return ElementRegion(stored=(stored,), count=rows.num_rows, rows=rows, layers=layers, ops=ops)


def _settle_operand(desk: Desk, name: str, operand: Tensor, batch: tuple[int, ...]) -> Matrix:
    is_whole = math.prod(operand.shape[:-2]) in (1, math.prod(batch))
    whole = operand if is_whole else broadcast_to(operand, (*batch, *operand.shape[-2:]))
    found = find_matrix(whole) or find_matrix(desk.store_operand(name, whole))
    if found is None:
        raise refuse("an operand of a product lies nowhere")
    return found


_MAKERS: Final[Mapping[type[Anchor], Callable[[Desk, Follower, str, tuple[str, ...], tuple[str, ...]], Region]]] = {
    AttentionTensor: make_attention_region,
    ProductTensor: _make_product,
}
