"""Dimensions as a plan stores them, read as records hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.expr import Dim, decode_expr

__all__ = ["read_dims"]


def read_dims(stored: Sequence[Any]) -> tuple[Dim, ...]:
    """Dims from numbers, names of symbols and stored operations."""
    return tuple(None if dim is None else decode_expr(dim) for dim in stored)
