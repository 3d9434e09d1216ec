"""How far a plugin gets with one set of inputs, from the output types to a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dovetail.plugin.check.lifecycle import Life
from dovetail.rules import Blocked

__all__ = ["Progress", "progress"]

_STEPS: Final = ("types", "layer", "combinations", "main_tactics", "sample")


@dataclass(frozen=True, order=True)
class Progress:
    """Two points a step that succeeds, one for a step whose result is malformed, none for one that raises."""

    points: int = -1

    @property
    def has_shapes(self) -> bool:
        """Whether the outputs are declared."""
        return self.points >= 2 * _STEPS.index("combinations")

    @property
    def has_formats(self) -> bool:
        """Whether a combination of formats was accepted."""
        return self.points >= 2 * _STEPS.index("main_tactics")

    @property
    def is_complete(self) -> bool:
        """Whether it ran to the end."""
        return self.points == 2 * len(_STEPS)


def progress(life: Life) -> Progress:
    """Take a plugin as far as it goes."""
    points = 0
    for step in _STEPS:
        try:
            getattr(life, step)
        except Blocked:
            return Progress(points + (not life.log.raised))
        points += 2
    return Progress(points)
