"""Weights in a form of this back end: made when a plan is built, and again when one of their sources is replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

__all__ = [
    "COLUMNS",
    "FILTERS",
    "FILTER_ORDERS",
    "LINES",
    "PIXEL_CHANNELS",
    "TAPS",
    "is_recipe",
    "join_columns",
    "pack",
]

COLUMNS: Final = "columns"
"""The recipe of weights or biases beside each other, for products that became one."""
FILTERS: Final = "filters"
"""The recipe of filters with their channels last."""
TAPS: Final = "taps"
"""The recipe of filters with themselves last, for those that each see one channel."""
FILTER_ORDERS: Final = {FILTERS: (0, 2, 3, 1), TAPS: (2, 3, 1, 0)}
"""The dimensions of filters from the outermost in memory to the innermost."""
LINES: Final = "lines"
"""The recipe, before a number of pixels, of filters with few channels: each line of them is that many pixels long."""
PIXEL_CHANNELS: Final = 4
"""The channels that a pixel then has."""
_LONGEST_LINE: Final = 64


def is_recipe(recipe: str) -> bool:
    """Whether something can be packed so."""
    kind, _, taps = recipe.partition(" ")
    if kind == LINES:
        return taps.isascii() and taps.isdigit() and len(taps) <= 3 and 1 <= int(taps) <= _LONGEST_LINE
    return recipe == COLUMNS or recipe in FILTER_ORDERS


def pack(recipe: str, sources: Sequence[Any]) -> Any:
    """A weight by its recipe."""
    if recipe == COLUMNS:
        return join_columns(sources)
    (filters,) = sources
    whole = filters.reshape(*filters.shape[:2], *(1,) * (4 - filters.ndim), *filters.shape[2:])
    kind, _, taps = recipe.partition(" ")
    if kind == LINES:
        return _pack_lines(whole, int(taps))
    return np.ascontiguousarray(whole.transpose(FILTER_ORDERS[recipe]))


def _pack_lines(filters: Any, taps: int) -> Any:
    """(filters, R, 1, taps * channels), with zeros for what is added."""
    count, channels, high, wide = filters.shape
    made = np.zeros((count, high, taps, PIXEL_CHANNELS), filters.dtype)
    made[:, :, :wide, :channels] = filters.transpose(FILTER_ORDERS[FILTERS])
    return made.reshape(count, high, 1, taps * PIXEL_CHANNELS)


def join_columns(arrays: Iterable[Any]) -> Any:
    """Weights or biases beside each other."""
    return np.ascontiguousarray(np.concatenate(list(arrays), axis=-1))
