"""Bilinear sampling of feature maps, whose rows are channels: the part that all region and deformable layers share.

A map is given as rows: element ``(n, y, x)`` is row ``(n * height + y) * width + x`` with all its channels, so that
one lookup brings a whole contiguous row. Cost: four rows are read for each sampled point.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["chunks", "rows_of", "sample_inside", "sample_padded", "weigh_corners"]

Array = npt.NDArray[Any]

CHUNK_ELEMENTS: Final = 1 << 22
"""How many sampled elements are in memory at a time."""


def chunks(count: int, elements_each: int) -> Iterator[slice]:
    """Slices of ``count`` things so that each has few enough elements.

    >>> list(chunks(5, CHUNK_ELEMENTS // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, CHUNK_ELEMENTS // max(elements_each, 1))
    yield from (slice(start, min(start + step, count)) for start in range(0, count, step))


def rows_of(images: Array) -> Array:
    """Images (n, c, h, w) as rows of channels (n * h * w, c)."""
    return np.ascontiguousarray(np.moveaxis(images, 1, -1)).reshape(-1, images.shape[1])


def weigh_corners(first: Array, y: Array, x: Array, height: int, width: int) -> list[tuple[Array, Array]]:
    """Rows and weights of the four corners around points that lie inside, from 0 to height - 1 and width - 1.

    Args:
        first: The row of the map's element (0, 0), for each point.
        y: The vertical coordinates.
        x: The horizontal coordinates.
        height: Of the map.
        width: Of the map.
    """
    top, left = y.astype(np.int64), x.astype(np.int64)
    bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    down, along = y - top, x - left
    return [
        (first + top * width + left, (1 - down) * (1 - along)),
        (first + top * width + right, (1 - down) * along),
        (first + bottom * width + left, down * (1 - along)),
        (first + bottom * width + right, down * along),
    ]


def sample_inside(rows: Array, first: Array, y: Array, x: Array, height: int, width: int) -> Array:
    """The channels at points that lie inside of the map; the channels are the last axis."""
    return _gather(rows, weigh_corners(first, y, x, height, width))


def sample_padded(rows: Array, first: Array, y: Array, x: Array, height: int, width: int) -> Array:
    """The channels at any points, of a map that is zero all around."""
    is_near = (y > -1) & (y < height) & (x > -1) & (x < width)  # false for NaN
    y, x = np.where(is_near, y, 0), np.where(is_near, x, 0)
    top, left = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    corners = []
    for row, row_weight in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, column_weight in ((left, 1 - (x - left)), (left + 1, x - left)):
            is_inside = is_near & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = np.where(is_inside, first + row * width + column, 0)
            corners.append((place, np.where(is_inside, row_weight * column_weight, 0)))
    return _gather(rows, corners)


def _gather(rows: Array, corners: list[tuple[Array, Array]]) -> Array:
    total = np.zeros((*corners[0][0].shape, rows.shape[1]), np.float32)
    if rows.size == 0:
        return total
    for place, weight in corners:
        # A row that has no weight counts nothing, not even where it is not finite.
        total += np.where(weight[..., None] != 0, rows[place], 0) * weight[..., None].astype(np.float32)
    return total
