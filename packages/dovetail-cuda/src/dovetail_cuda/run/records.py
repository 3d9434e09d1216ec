"""What every record of a payload is, and how one is refused."""

from __future__ import annotations

import msgspec

__all__ = ["Record", "require"]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record of a payload."""


def require(condition: object, what: str) -> None:
    """Refuse what a payload says where a condition does not hold."""
    if not condition:
        raise ValueError(what)
