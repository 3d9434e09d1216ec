"""Non-maximum suppression over the boxes and scores of a detector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_CANDIDATES", "NmsOptions", "find_threshold", "suppress"]

Array = npt.NDArray[Any]

MAX_CANDIDATES: Final = 4096
"""So many of the best scores of an image take part; all others are dropped before boxes are compared."""
_LEAST: Final = -32768.0


@dataclass(frozen=True, kw_only=True)
class NmsOptions:
    """The parameters of the suppression.

    Attributes:
        score_threshold: Scores below it are dropped.
        iou_threshold: A box that overlaps a better one by this much is dropped.
        max_output_boxes: How many detections an image has at most.
        background_class: The class that is never detected, or -1.
        has_logits: Whether scores are still to go through a sigmoid.
        is_class_agnostic: Whether boxes of different classes suppress each other.
        has_centers: Whether boxes are given as center and size; otherwise as corners.
    """

    score_threshold: float
    iou_threshold: float
    max_output_boxes: int
    background_class: int
    has_logits: bool
    is_class_agnostic: bool
    has_centers: bool


def find_threshold(options: NmsOptions) -> float:
    """The threshold for scores as they are given, before the sigmoid if there is one.

    >>> find_threshold(NmsOptions(score_threshold=0.5, iou_threshold=0.5, max_output_boxes=1, background_class=-1,
    ...                           has_logits=True, is_class_agnostic=False, has_centers=False))
    0.0
    """
    share = options.score_threshold
    if not options.has_logits:
        return share
    if share <= 0:
        return _LEAST
    return math.log(share / (1 - share)) if share < 1 else math.inf


def suppress(boxes: Array, scores: Array, anchors: Array | None, options: NmsOptions) -> tuple[Array, ...]:
    """Detections of each image.

    Cost: a pass over all scores, a sort of those above the threshold, and for each kept box one comparison with all
    candidates, of which there are at most ``MAX_CANDIDATES``. The loops are over images and over kept boxes.

    Args:
        boxes: (n, a, 1 or c, 4).
        scores: (n, a, c).
        anchors: (1 or n, a, 4), if boxes are relative to them.
        options: The parameters.

    Returns:
        Counts (n, 1), boxes as corners (n, m, 4), scores (n, m) and classes (n, m), best first and zero behind.
    """
    batch, most = len(scores), options.max_output_boxes
    counts = np.zeros((batch, 1), np.int32)
    found_boxes, found_scores = np.zeros((batch, most, 4), np.float32), np.zeros((batch, most), np.float32)
    classes = np.zeros((batch, most), np.int32)
    for image in range(batch):
        own = None if anchors is None else anchors[image if len(anchors) > 1 else 0]
        corners, score, label = _list_candidates(boxes[image], scores[image], own, options)
        kept = _keep(corners, label, options)
        counts[image], size = len(kept), len(kept)
        found_boxes[image, :size], classes[image, :size] = corners[kept], label[kept]
        found_scores[image, :size] = _sigmoid(score[kept]) if options.has_logits else score[kept]
    return counts, found_boxes, found_scores, classes


def _list_candidates(
    boxes: Array, scores: Array, anchors: Array | None, options: NmsOptions
) -> tuple[Array, Array, Array]:
    """Corners, scores and classes of the best boxes, best first; of equal scores the one that comes first."""
    num_classes = scores.shape[1]
    is_wanted = scores >= np.float32(find_threshold(options))
    if 0 <= options.background_class < num_classes:
        is_wanted[:, options.background_class] = False
    places = np.flatnonzero(is_wanted)
    score = scores.reshape(-1)[places]
    order = np.argsort(-score, kind="stable")[:MAX_CANDIDATES]
    anchor, label = np.divmod(places[order], max(num_classes, 1))
    chosen = boxes[anchor, label if boxes.shape[1] > 1 else 0].astype(np.float32)
    own = None if anchors is None else anchors[anchor].astype(np.float32)
    return _to_corners(chosen, own, has_centers=options.has_centers), score[order], label.astype(np.int32)


def _to_corners(boxes: Array, anchors: Array | None, *, has_centers: bool) -> Array:
    if has_centers:
        center, size = boxes[:, :2], boxes[:, 2:]
        if anchors is not None:
            with np.errstate(over="ignore"):
                center, size = center * anchors[:, 2:] + anchors[:, :2], anchors[:, 2:] * np.exp(size)
        half = size * np.float32(0.5)
        return np.concatenate([center - half, center + half], axis=1)
    return boxes if anchors is None else _order(boxes) + _order(anchors)


def _order(corners: Array) -> Array:
    """The same boxes with the smaller corner first."""
    low, high = corners[:, :2], corners[:, 2:]
    return np.concatenate([np.minimum(low, high), np.maximum(low, high)], axis=1)


def _keep(corners: Array, label: Array, options: NmsOptions) -> Array:
    """Which candidates are kept, in their order."""
    ordered = _order(corners)
    area = _area(ordered)
    is_left = np.ones(len(corners), bool)
    kept: list[int] = []
    while len(kept) < options.max_output_boxes and is_left.any():
        best = int(is_left.argmax())
        kept.append(best)
        is_near = _overlap(ordered, area, best) >= np.float32(options.iou_threshold)
        if not options.is_class_agnostic:
            is_near &= label == label[best]
        is_left &= ~is_near
        is_left[best] = False
    return np.array(kept, np.int64)


def _overlap(corners: Array, area: Array, one: int) -> Array:
    """The intersection over the union of one box with all."""
    low = np.maximum(corners[:, :2], corners[one, :2])
    high = np.minimum(corners[:, 2:], corners[one, 2:])
    common = _area(np.concatenate([low, high], axis=1))
    union = area + area[one] - common
    with np.errstate(invalid="ignore"):
        return np.where((common > 0) & (union > 0), common / np.where(union > 0, union, 1), np.float32(0))


def _area(corners: Array) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        size = corners[:, 2:] - corners[:, :2]
        return np.where((size > 0).all(axis=1), size[:, 0] * size[:, 1], np.float32(0))


def _sigmoid(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-values))
