"""Weights in a form of this back end: made when a plan is built, and again when one of their sources is replaced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

__all__ = ["COLUMNS", "join_columns"]

COLUMNS: Final = "columns"
"""The recipe of weights or biases beside each other, for products that became one."""


def join_columns(arrays: Iterable[Any]) -> Any:
    """Weights or biases beside each other."""
    return np.ascontiguousarray(np.concatenate(list(arrays), axis=-1))
