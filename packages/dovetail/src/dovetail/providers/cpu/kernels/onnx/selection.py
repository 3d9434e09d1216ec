"""Choosing elements by their values: TopK, NonMaxSuppression, NonZero, Compress and Unique."""

from __future__ import annotations

import numpy as np

from dovetail.providers.cpu._numeric import NUMBERS, Array
from dovetail.providers.cpu.kernels._checks import normalize_axis, read_scalar, require
from dovetail.providers.cpu.kernels._support import IEEE_FLOATS, reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["compress", "non_max_suppression", "non_zero", "top_k", "top_k_1", "top_k_10", "unique"]


@kernel("TopK", since=1, until=9, types={"T": IEEE_FLOATS})
def top_k_1(x: Array, *, axis: int = -1, k: int) -> tuple[Array, Array]:
    """TopK with the count as an attribute."""
    found: tuple[Array, Array] = top_k(x, np.array([k]), axis=axis)
    return found


@kernel("TopK", since=10, until=10, types={"T": IEEE_FLOATS})
def top_k_10(x: Array, k: Array, *, axis: int = -1) -> tuple[Array, Array]:
    """TopK before it could look for the smallest."""
    found: tuple[Array, Array] = top_k(x, k, axis=axis)
    return found


@kernel("TopK", since=11, types={"T": NUMBERS})
@reference
def top_k(x: Array, k: Array, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:  # noqa: A002
    """The k largest or smallest elements along an axis with their indices; of equal ones the first wins.

    Sorted and unsorted give the same result, since the order without ``sorted`` is left open.
    """
    op = "TopK"
    del sorted
    where = normalize_axis(op, axis, x.ndim)
    count = int(read_scalar(op, "K", k))
    require(0 <= count <= x.shape[where], op, "K is out of range", expected=f"0..{x.shape[where]}", got=count)
    order = np.argsort(_descending(x) if largest else _sortable(x), axis=where, kind="stable")
    indices = np.take(order, np.arange(count), axis=where)
    return np.take_along_axis(x, indices, axis=where), indices.astype(np.int64)


def _descending(x: Array) -> Array:
    """Keys whose ascending stable order is the descending order of the values, NaN first as the largest."""
    if x.dtype.kind in "iu":
        return np.bitwise_not(x)
    keys = -x.astype(np.float64)
    return np.where(np.isnan(keys), -np.inf, keys)


@kernel("NonMaxSuppression", since=10)
@reference
def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """For each class keep boxes by falling score, dropping those that overlap a kept one too much."""
    op = "NonMaxSuppression"
    require(boxes.ndim == 3 and boxes.shape[2] == 4, op, "'boxes' must be (batch, boxes, 4)", got=boxes.shape)
    fits = scores.ndim == 3 and scores.shape[::2] == boxes.shape[:2]
    require(fits, op, "'scores' must be (batch, classes, boxes)", got=scores.shape)
    limit = 0 if max_output_boxes_per_class is None else int(read_scalar(op, "limit", max_output_boxes_per_class))
    overlap = 0.0 if iou_threshold is None else read_scalar(op, "iou_threshold", iou_threshold)
    lowest = None if score_threshold is None else read_scalar(op, "score_threshold", score_threshold)
    selected = [
        (batch, label, box)
        for batch in range(scores.shape[0])
        for label in range(scores.shape[1])
        for box in _keep(_corners(boxes[batch], center_point_box), scores[batch, label], limit, overlap, lowest)
    ]
    return np.array(selected, dtype=np.int64).reshape(-1, 3)


def _corners(boxes: Array, center_point_box: int) -> Array:
    """Boxes as (low, low, high, high), whichever corners were given."""
    if center_point_box:
        half = boxes[:, 2:] / 2
        return np.concatenate((boxes[:, :2] - half, boxes[:, :2] + half), axis=1)
    first, second = boxes[:, :2], boxes[:, 2:]
    return np.concatenate((np.minimum(first, second), np.maximum(first, second)), axis=1)


def _keep(boxes: Array, scores: Array, limit: int, overlap: float, lowest: float | None) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    if lowest is not None:
        order = order[scores[order] > np.float32(lowest)]
    kept: list[int] = []
    while order.size and len(kept) < limit:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        order = order[_overlaps(boxes[best], boxes[order]) <= np.float32(overlap)]
    return kept


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of one box with others; boxes without area overlap nothing."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.maximum(sides, 0), axis=1)
    union = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1), 0)


@kernel("NonZero", since=9)
@reference
def non_zero(x: Array) -> Array:
    """The coordinates of the elements that are not zero, one column each, in row-major order."""
    flags = x != "" if x.dtype == object else x.astype(bool)
    # A scalar counts as a vector of one element whose coordinates have no axis.
    if x.ndim == 0:
        return np.zeros((0, int(flags)), dtype=np.int64)
    return np.stack(np.nonzero(flags)).astype(np.int64)


@kernel("Compress", since=9, types={"T1": ("bool",)})
@reference
def compress(x: Array, condition: Array, *, axis: int | None = None) -> Array:
    """The slices, or elements, whose flag is set."""
    op = "Compress"
    where = 0 if axis is None else normalize_axis(op, axis, x.ndim)
    data = x.reshape(-1) if axis is None else x
    require(condition.ndim == 1, op, "'condition' must be a vector", got=condition.shape)
    chosen = np.flatnonzero(condition)
    beyond = chosen.size and chosen[-1] >= data.shape[where]
    require(not beyond, op, "'condition' selects past the end", expected=f"< {data.shape[where]}", got=chosen[-1:])
    return np.take(data, chosen, axis=where)


@kernel("Unique", since=11)
@reference
def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, Array, Array, Array]:  # noqa: A002
    """The distinct elements, or slices, with first places, the way back, and counts."""
    where = 0 if axis is None else normalize_axis("Unique", axis, x.ndim)
    data = x.reshape(-1) if axis is None else x
    keys = _sortable(data)
    _, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True, axis=where)
    order = np.arange(first.size) if sorted else np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    places = first[order]
    way_back = rank[inverse.reshape(-1)] if order.size else inverse.reshape(-1)
    values = np.take(data, places, axis=where)
    return values, places.astype(np.int64), way_back.astype(np.int64), counts[order].astype(np.int64)


def _sortable(x: Array) -> Array:
    """Keys in the order of the values, of a type that NumPy can compare by slices."""
    if x.dtype == object:
        return np.unique(x, return_inverse=True)[1].reshape(x.shape)
    # float32 holds every value of the types that NumPy itself does not know.
    return x.astype(np.float32) if x.dtype.kind == "V" else x
