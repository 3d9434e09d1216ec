"""Enumerations of the plugin contract: members are ints, and print with the name of their class."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["ContractEnum"]

_NUMBER_FORMATS: Final = frozenset("bcdeEfFgGnoxX%")


class ContractEnum(IntEnum):
    """An enumeration whose members are ints wherever a number is wanted.

    >>> class Colour(ContractEnum):
    ...     RED = 3
    >>> print(Colour.RED, f"{Colour.RED:d}", 1 << Colour.RED)
    Colour.RED 3 8
    """

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, format_spec: str) -> str:
        if format_spec and format_spec[-1] in _NUMBER_FORMATS:
            return int.__format__(self, format_spec)
        return str.__format__(str(self), format_spec)
