"""Bound steps in order, and which of them failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, NamedTuple

import numpy as np

from dovetail.runtime.steps.base import BoundStep

__all__ = ["BoundSteps", "Entry", "Silence", "StepFailure", "make_silence"]

Silence = Callable[..., Any]
"""Calls a function with its arguments where floating-point warnings are silenced."""


class Entry(NamedTuple):
    """One bound step in a run."""

    name: str
    run: BoundStep
    is_quiet: bool = False


class StepFailure(Exception):
    """What a step raised, and the names of the steps it was raised in, from the inside out."""

    def __init__(self, error: BaseException, step: BoundStep) -> None:
        super().__init__(error)
        self.error = error
        self.step = step
        """The step of the loop that it is passing."""
        self.names: list[str] = []

    @property
    def where(self) -> str:
        """The steps, for messages."""
        return " in ".join(f"step '{name}'" for name in self.names) or "a step"


def make_silence() -> Silence:
    """A context of its own in which NumPy warns of nothing: to enter it costs a fraction of what ``np.errstate`` does.

    One thread at a time can be in it. That holds for the steps of one execution context, of which only kernels run in
    it, and kernels run no other steps. It is empty, so that it holds nothing of whoever made the engine.
    """
    silence = Context()
    silence.run(np.seterr, all="ignore")
    return silence.run


class BoundSteps:
    """Steps in order; neighbours that are quiet are entered together, and plugins see the caller's settings."""

    def __init__(self, entries: Sequence[Entry], silence: Silence) -> None:
        self.entries = entries
        self._names = {entry.run: entry.name for entry in entries}
        self._groups: list[tuple[Silence | None, list[BoundStep]]] = []
        for entry in entries:
            if not self._groups or (self._groups[-1][0] is not None) != entry.is_quiet:
                self._groups.append((silence if entry.is_quiet else None, []))
            self._groups[-1][1].append(entry.run)

    def run(self) -> None:
        """Run all steps; what one raises comes as a ``StepFailure``."""
        try:
            for silence, steps in self._groups:
                if silence is None:
                    _run_all(steps)
                else:
                    silence(_run_all, steps)
        except StepFailure as failure:
            failure.names.append(self._names[failure.step])
            raise


def _run_all(steps: Sequence[BoundStep]) -> None:
    try:
        for step in steps:
            step()
    except StepFailure as failure:
        failure.step = step
        raise
    except BaseException as error:
        raise StepFailure(error, step) from error
