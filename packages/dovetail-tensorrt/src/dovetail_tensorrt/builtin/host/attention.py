"""The attention matrix of DeBERTa: content to content, content to position and position to content in one sum."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["add_disentangled", "find_bucket_scale", "find_buckets"]

Array = npt.NDArray[Any]

_JUST_BELOW_ONE: Final = np.float32(1 - 1e-7)
"""Makes the ceiling of what is a whole number but for rounding that number."""


def find_bucket_scale(span: int, width: int) -> tuple[np.float32, np.float32]:
    """The logarithm from which distances share columns, and how many columns there are for each unit above it."""
    middle = np.float32(span // 2)
    log_middle = np.log(middle)
    return log_middle, (middle - np.float32(1)) / (np.log(np.float32(width - 1)) - log_middle) * _JUST_BELOW_ONE


def find_buckets(distances: Array, span: int, width: int) -> Array:
    """The column for each relative distance: near ones have a column each, far ones share columns by their logarithm.

    Args:
        distances: Position of the query less that of the key.
        span: How many columns a side has.
        width: How many columns there are; the farthest bucket is the last of them.

    >>> find_buckets(np.array([-100, -1, 0, 1, 100]), span=4, width=8)
    array([0, 3, 4, 5, 7])
    """
    middle = span // 2
    log_middle, factor = find_bucket_scale(span, width)
    far = np.log(np.maximum(np.abs(distances), 1).astype(np.float32))
    shared = np.sign(distances) * (np.ceil((far - log_middle) * factor).astype(np.int64) + middle)
    bucket = np.where(np.abs(distances) <= middle, distances, shared)
    column: Array = np.clip(bucket + span, 0, 2 * span - 1)
    return column


def add_disentangled(content: Array, to_position: Array, from_position: Array, span: int, factor: float) -> Array:
    """The scaled sum of the three matrices, (b, s, s).

    Cost: two lookups for each element of the result; the buckets are found once for the 2 * s - 1 distances.
    """
    length = content.shape[1]
    if content.size == 0:
        return content
    distance = np.arange(length)[:, None] - np.arange(length)
    table = find_buckets(np.arange(1 - length, length), span, to_position.shape[2])
    column = table[distance + length - 1]
    row = np.arange(length)
    total: Array = content + to_position[:, row[:, None], column] + from_position[:, row[None, :], column]
    return total * np.float32(factor)
