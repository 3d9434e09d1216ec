"""How much larger than its file a network may become while it is built.

A model of a kilobyte can ask for gigabytes: functions that call each other twice, constants that are joined with
themselves. What a build makes of a model on its own, before anybody runs it, is bounded here: the nodes that calls and
bodies expand to, and the bytes of constants that are worked out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_GROWTH", "NODES_FIX", "ByteBudget", "GrowthLimits"]

_NODES_EACH: Final = 64
"""The layers of a model are often calls of one function, which has hundreds of nodes; kilobytes are not thousands."""


@dataclass(frozen=True, kw_only=True)
class GrowthLimits:
    """What a build may add to a network by expanding, inlining and folding."""

    nodes: int = 4_000
    """How many nodes there may be when functions, and operators that are defined by others, are expanded; besides that,
    64 for each node that the model has."""
    bytes: int = 128 << 20
    """How many bytes of constants may be added; a model may also become as large again as it is."""

    def nodes_for(self, written: int) -> int:
        """How many nodes a model may become that was written with so many, those of functions included.

        >>> GrowthLimits(nodes=100).nodes_for(10)
        740
        """
        return self.nodes + _NODES_EACH * written


DEFAULT_GROWTH: Final = GrowthLimits()
NODES_FIX: Final = "expand the functions when the model is written, or raise config.growth_limits"


class ByteBudget:
    """Counts bytes against a limit.

    >>> budget = ByteBudget(10)
    >>> budget.take(8), budget.take(8), budget.give_back(4), budget.take(6)
    (True, False, None, True)
    """

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes
        self._is_open = False

    def open(self, extra_bytes: int) -> None:
        """Allow as many bytes more, once: what the model has itself."""
        if not self._is_open:
            self._is_open = True
            self._left_bytes += extra_bytes

    def has(self, size_bytes: int) -> bool:
        """Whether so many bytes are left."""
        return size_bytes <= self._left_bytes

    def take(self, size_bytes: int) -> bool:
        """Count bytes that were made; False when there are not so many left, and then none are counted."""
        if not self.has(size_bytes):
            return False
        self._left_bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Count bytes that are not needed any more."""
        self._left_bytes += size_bytes
