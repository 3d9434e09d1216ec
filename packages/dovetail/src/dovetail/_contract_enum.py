"""The base of the contract's enumerations: numbers that print as their names."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ContractEnum"]


class ContractEnum(IntEnum):
    """A number that prints as its class and name, as code written for the contract expects.

    >>> class Mode(ContractEnum):
    ...     FAST = 1
    >>> str(Mode.FAST), f"{Mode.FAST}", f"{Mode.FAST:02d}", Mode.FAST + 1
    ('Mode.FAST', 'Mode.FAST', '01', 2)
    """

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec) if spec else str(self)
