"""Whole numbers that users pass: shapes, bounds, addresses, numbers of profiles."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from dovetail.errors import UsageError

__all__ = ["as_address", "as_integer", "as_integers"]


def as_integers(values: Iterable[Any], where: str) -> tuple[int, ...]:
    """A shape or another list of whole numbers; a fraction is refused and never cut off.

    >>> as_integers([1, 2], "input 'x'")
    (1, 2)
    """
    try:
        return tuple(operator.index(number) for number in values)
    except TypeError:
        raise UsageError("not a list of integers", where=where, got=repr(values)[:80]) from None


def as_integer(value: Any, where: str) -> int:
    """One whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError("not an integer", where=where, got=repr(value)[:80]) from None


def as_address(value: Any, where: str) -> int:
    """An address: an integer, or one of the objects that drivers wrap it in, which can be turned into one."""
    try:
        address = -1 if isinstance(value, str | bytes | float) else int(value)
    except (TypeError, ValueError):
        address = -1
    if address < 0:
        raise UsageError("not an address", where=where, got=repr(value)[:80])
    return address
