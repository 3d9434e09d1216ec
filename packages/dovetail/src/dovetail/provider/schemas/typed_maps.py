"""A map as kernels get it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["TypedMap"]


class TypedMap(dict[Any, Any]):
    """A dict from int or str to plain elements that knows their type, which an empty one could not tell.

    Args:
        entries: What it holds.
        dtype: The NumPy type of the elements; ``object`` for strings.
    """

    __slots__ = ("dtype",)

    def __init__(self, entries: Mapping[Any, Any], dtype: np.dtype[Any]) -> None:
        super().__init__(entries)
        self.dtype = dtype
