"""Weights in a form of this back end: made when a plan is built, and again when one of their sources is replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

__all__ = ["COLUMNS", "FILTERS", "FILTER_ORDERS", "RECIPES", "TAPS", "join_columns", "pack"]

COLUMNS: Final = "columns"
"""The recipe of weights or biases beside each other, for products that became one."""
FILTERS: Final = "filters"
"""The recipe of filters with their channels last."""
TAPS: Final = "taps"
"""The recipe of filters with themselves last, for those that each see one channel."""
FILTER_ORDERS: Final = {FILTERS: (0, 2, 3, 1), TAPS: (2, 3, 1, 0)}
"""The dimensions of filters from the outermost in memory to the innermost."""
RECIPES: Final = (COLUMNS, *FILTER_ORDERS)
"""Everything that a plan may ask for."""


def pack(recipe: str, sources: Sequence[Any]) -> Any:
    """A weight by one of the recipes."""
    if recipe == COLUMNS:
        return join_columns(sources)
    (filters,) = sources
    whole = filters.reshape(*filters.shape[:2], *(1,) * (4 - filters.ndim), *filters.shape[2:])
    return np.ascontiguousarray(whole.transpose(FILTER_ORDERS[recipe]))


def join_columns(arrays: Iterable[Any]) -> Any:
    """Weights or biases beside each other."""
    return np.ascontiguousarray(np.concatenate(list(arrays), axis=-1))
