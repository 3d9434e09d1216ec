"""Regions of what is no expression: a product, and whatever else must be a kernel or a library's call of its own.

A kind of anchor is a class of ``lower.tensors.Anchor`` and an entry of ``_MAKERS``, which makes its region; operands
that do not lie in memory as they are needed are stored first, through the desk of the planner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from dovetail_cuda.graph.attention import make_attention_region
from dovetail_cuda.graph.desk import Desk
from dovetail_cuda.graph.regions import ProductRegion, Region
from dovetail_cuda.lower.attention import AttentionTensor
from dovetail_cuda.lower.matrices import Matrix, find_matrix
from dovetail_cuda.lower.tensors import Anchor, ProductTensor, Tensor, broadcast_to, refuse

__all__ = ["make_anchor_region"]


def make_anchor_region(desk: Desk, name: str, made: Anchor, layers: tuple[str, ...], ops: tuple[str, ...]) -> Region:
    """The region that writes an anchor to the buffer of a name."""
    return _MAKERS[type(made)](desk, name, made, layers, ops)


def _make_product(
    desk: Desk, name: str, made: ProductTensor, layers: tuple[str, ...], ops: tuple[str, ...]
) -> ProductRegion:
    batch = np.broadcast_shapes(made.left.shape[:-2], made.right.shape[:-2])
    left = _settle_operand(desk, f"{name}.left", made.left, batch)
    right = _settle_operand(desk, f"{name}.right", made.right, batch)
    return ProductRegion(buffer=name, product=made, left=left, right=right, layers=layers, ops=ops)


def _settle_operand(desk: Desk, name: str, operand: Tensor, batch: tuple[int, ...]) -> Matrix:
    is_whole = math.prod(operand.shape[:-2]) in (1, math.prod(batch))
    whole = operand if is_whole else broadcast_to(operand, (*batch, *operand.shape[-2:]))
    found = find_matrix(whole) or find_matrix(desk.store_operand(name, whole))
    if found is None:
        raise refuse("an operand of a product lies nowhere")
    return found


_MAKERS: Final[Mapping[type[Anchor], Callable[[Desk, str, Any, tuple[str, ...], tuple[str, ...]], Region]]] = {
    AttentionTensor: make_attention_region,
    ProductTensor: _make_product,
}
