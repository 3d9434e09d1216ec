"""What a part of a partition is called in the plan's report, so that a profile can say which part it timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["name_node"]

_MOST_LAYERS: Final = 4


def name_node(layers: Sequence[str]) -> str:
    """The name of the part that is made of these layers.

    >>> name_node(["conv", "relu"])
    'conv + relu'
    """
    return " + ".join(layers[:_MOST_LAYERS]) or "operand"
