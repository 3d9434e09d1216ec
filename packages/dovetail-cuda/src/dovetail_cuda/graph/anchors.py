"""Regions of what is no expression: a product, and whatever else must be a kernel or a library's call of its own.

A kind of anchor is a class of ``lower.tensors.Anchor`` and an entry of ``_MAKERS``, which makes its region; operands
that do not lie in memory as they are needed are stored first, through the desk of the planner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dovetail_cuda.graph.attention import make_attention_region
from dovetail_cuda.graph.computed import make_computed_region
from dovetail_cuda.graph.desk import Desk
from dovetail_cuda.graph.followers import Follower, write_follower
from dovetail_cuda.graph.regions import ConvRegion, ElementRegion, ProductRegion, Region
from dovetail_cuda.lower.attention import AttentionTensor
from dovetail_cuda.lower.convolution import join_pixels
from dovetail_cuda.lower.expr import BATCH, COLUMN, ROW, accumulator, rewrite
from dovetail_cuda.lower.images import Image, find_image
from dovetail_cuda.lower.index import Index, Var, flatten, flatten_by, replace_variables, unflatten, unflatten_by
from dovetail_cuda.lower.indexing import reshape_to, transpose_to
from dovetail_cuda.lower.matrices import Matrix, find_matrix, order_rows
from dovetail_cuda.lower.packed import ComputedProductTensor
from dovetail_cuda.lower.sizes import estimate, greatest, is_fixed
from dovetail_cuda.lower.stages import StagedTensor
from dovetail_cuda.lower.tensors import (
    CHANNELS_LAST,
    Anchor,
    ConvTensor,
    ProductTensor,
    RowTensor,
    Tensor,
    broadcast_shapes,
    broadcast_to,
    refuse,
)
from dovetail_cuda.run.packing import FILTER_ORDERS, FILTERS, TAPS

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
    left, find_coordinates = _fold_rows(made)
    batch = broadcast_shapes(left.shape[:-2], made.right.shape[:-2])
    m, n, k, count = left.shape[-2], made.right.shape[-1], left.shape[-1], math.prod(batch)
    # Only a library has products of float64, and a library is asked for one shape at a time.
    is_for_rows = made.dtype == "float64" and not all(is_fixed(size) for size in (*left.shape, *made.right.shape))
    if is_for_rows or greatest(count * m * n * k) < _SMALL:
        return _sum_rows(follower, made, buffer, layers, ops)
    row, column, number = (Index.variable(*each) for each in ((ROW, m), (COLUMN, n), (BATCH, count)))
    at = find_coordinates(number * m + row, column)
    return ProductRegion(
        m=m,
        n=n,
        k=k,
        batch=count,
        dtype=made.dtype,
        left=_settle_operand(desk, f"{buffer}.left", left, batch),
        right=_settle_operand(desk, f"{buffer}.right", made.right, batch),
        stored=write_follower(follower, buffer, at, accumulator(made.dtype)),
        layers=layers,
        ops=ops,
    )


def _fold_rows(made: ProductTensor) -> tuple[Tensor, Callable[[Index, Index], Sequence[Index]]]:
    """The left operand, and where in the result its rows and a column are.

    Where one matrix multiplies all of a batch, the batch is more rows of the left operand. They may be taken in any
    order, and that in which they lie in memory moves nothing.
    """
    left = made.left
    if made.right.rank > 2 or left.rank == 2:
        return left, lambda row, column: unflatten(row * made.right.shape[-1] + column, made.shape)
    order = order_rows(left)
    sizes = [left.shape[axis] for axis in order]
    turned = reshape_to(transpose_to(left, (*order, left.rank - 1)), (math.prod(sizes), left.shape[-1]))
    if order == tuple(sorted(order)) or find_matrix(turned) is None:
        order, sizes = tuple(sorted(order)), list(left.shape[:-1])
        turned = reshape_to(left, (math.prod(sizes), left.shape[-1]))

    def find_coordinates(row: Index, column: Index) -> Sequence[Index]:
        places = dict(zip(order, unflatten(row, sizes), strict=True))
        own = [places[axis] for axis in sorted(order)]
        return [*own, column] if len(made.shape) == left.rank else own

    return turned, find_coordinates


def _sum_rows(
    follower: Follower, made: ProductTensor, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]
) -> ElementRegion:
    """A product as one sum for each element."""
    rows = made.plain.rows
    at = unflatten(Index.variable(ROW, rows.num_rows), made.shape)
    stored = write_follower(follower, buffer, at, made.plain.value)
    return ElementRegion(stored=(stored,), count=rows.num_rows, rows=rows, layers=layers, ops=ops)


def _make_rows(desk: Desk, follower: Follower, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]) -> Region:
    made = follower.anchor
    if not isinstance(made, RowTensor):
        raise refuse("no rows")
    rows, value = made.rows, made.value
    if not rows.num_columns:
        raise refuse("it reduces nothing that has no elements")
    if made.is_reduced:
        at = unflatten_by(Index.variable(ROW, rows.num_rows), made.shape, _order_results(follower))
        places = {ROW: flatten(at, made.shape)}
        value = rewrite(value, lambda each: None, lambda index: replace_variables(index, places))
    else:
        at = unflatten(flatten(rows.coordinates, rows.shape), made.shape)
    stored = write_follower(follower, buffer, at, value)
    return ElementRegion(stored=(stored,), count=rows.num_rows, rows=rows, layers=layers, ops=ops)


def _order_results(follower: Follower) -> tuple[int, ...]:
    """The dimensions of an anchor in the order in which its results lie, so that neighbours write side by side."""
    made, tensor = follower.anchor, follower.tensor
    places = follower.spread([Index.variable(f"d{axis}", size) for axis, size in enumerate(made.shape)])
    index = flatten_by(places, tensor.shape, follower.order or range(tensor.rank))
    steps = {atom.name: estimate(factor) for atom, factor in index.terms if isinstance(atom, Var)}
    if len(steps) < len(index.terms):
        return made.order
    return tuple(sorted(range(len(made.shape)), key=lambda axis: -steps.get(f"d{axis}", math.inf)))


def _make_conv(desk: Desk, follower: Follower, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]) -> Region:
    made = follower.anchor
    if not isinstance(made, ConvTensor):
        raise refuse("no convolution")
    batch, filters, high, wide = made.whole_shape
    image, line, pixel = unflatten(Index.variable(ROW, batch * high * wide), (batch, high, wide))
    at = (image, Index.variable(COLUMN, filters), line, pixel)
    return ConvRegion(
        conv=made,
        image=_settle_image(desk, f"{buffer}.image", made),
        weight=_settle_filters(desk, f"{buffer}.filters", made),
        stored=write_follower(follower, buffer, at[:2] + at[-len(made.shape) + 2 :], accumulator(made.dtype)),
        layers=layers,
        ops=ops,
    )


def _settle_image(desk: Desk, name: str, made: ConvTensor) -> Image:
    image = made.image
    if made.padded is not None:
        stored = desk.store_operand(name, made.padded, CHANNELS_LAST[4])
        image = join_pixels(stored, image.shape[1] // stored.shape[1])
    found = find_image(image) or find_image(desk.store_operand(name, image, CHANNELS_LAST[4]))
    if found is None:
        raise refuse("the image of a convolution lies nowhere")
    return found


def _settle_filters(desk: Desk, name: str, made: ConvTensor) -> str:
    """The buffer of the filters as kernels read them: packed with the plan where they are weights."""
    packed = None if made.source is None else desk.pack_weight(made.source, made.recipe)
    order = FILTER_ORDERS[TAPS if made.recipe == TAPS else FILTERS]
    return packed or desk.store_operand(name, made.weight, order).buffer or ""


def _settle_operand(desk: Desk, name: str, operand: Tensor, batch: tuple[int, ...]) -> Matrix:
    is_whole = math.prod(operand.shape[:-2]) in (1, math.prod(batch))
    whole = operand if is_whole else broadcast_to(operand, (*batch, *operand.shape[-2:]))
    found = find_matrix(whole) or find_matrix(desk.store_operand(name, whole))
    if found is None:
        raise refuse("an operand of a product lies nowhere")
    return found


def _make_staged(desk: Desk, follower: Follower, buffer: str, layers: tuple[str, ...], ops: tuple[str, ...]) -> Region:
    """The last of several steps; those before it are written first."""
    made = follower.anchor
    if not isinstance(made, StagedTensor):
        raise refuse("no steps")
    last = made.read(lambda name, each: desk.store_temporary(f"{buffer}.{name}", each, ops[-1]))
    at = unflatten(Index.variable(ROW, last.count), last.shape)
    stored = write_follower(follower, buffer, at, last.at(at))
    return ElementRegion(stored=(stored,), count=last.count, layers=layers, ops=ops)


_MAKERS: Final[Mapping[type[Anchor], Callable[[Desk, Follower, str, tuple[str, ...], tuple[str, ...]], Region]]] = {
    AttentionTensor: make_attention_region,
    ComputedProductTensor: make_computed_region,
    ConvTensor: _make_conv,
    ProductTensor: _make_product,
    RowTensor: _make_rows,
    StagedTensor: _make_staged,
}
