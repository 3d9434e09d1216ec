"""Bound steps in order, and which of them failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dovetail.runtime.steps.base import BoundStep

__all__ = ["BoundSteps", "Check", "Entry", "Silence", "StepFailure", "add_checks", "make_silence"]

Silence = Callable[..., Any]
"""Calls a function with its arguments where floating-point warnings are silenced."""
Check = Callable[[], None]
"""Raises where a run is to end before it is done."""


class Entry(NamedTuple):
    """One bound step in a run."""

    name: str
    run: BoundStep
    is_quiet: bool = False


class StepFailure(Exception):
    """What a step raised, and the names of the steps it was raised in, from the inside out."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error
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


def add_checks(entries: Sequence[Entry], check: Check | None, *, is_body: bool = False) -> Sequence[Entry]:
    """The steps with a check before each; in a body, which loops repeat, before the first too."""
    if check is None:
        return entries
    checks = [Entry(entry.name, partial(check), entry.is_quiet) for entry in entries]
    pairs = [one for pair in zip(checks, entries, strict=True) for one in pair]
    return pairs if is_body else pairs[1:]


class BoundSteps:
    """Steps in order; neighbours that are quiet are entered together, and plugins see the caller's settings."""

    def __init__(self, entries: Sequence[Entry], silence: Silence) -> None:
        self.entries = entries
        names = {entry.run: entry.name for entry in entries}
        groups: list[tuple[bool, list[BoundStep]]] = []
        for entry in entries:
            if not groups or groups[-1][0] != entry.is_quiet:
                groups.append((entry.is_quiet, []))
            groups[-1][1].append(entry.run)
        plain = [(is_quiet, partial(_run_all, steps, names)) for is_quiet, steps in groups]
        runs: list[BoundStep] = [partial(silence, run) if is_quiet else run for is_quiet, run in plain]
        self.run: BoundStep = runs[0] if len(runs) == 1 else partial(_run_groups, runs)
        """Runs all steps; what one raises comes as a ``StepFailure``."""


def _run_groups(runs: Sequence[BoundStep]) -> None:
    for run in runs:
        run()


def _run_all(steps: Sequence[BoundStep], names: Mapping[BoundStep, str]) -> None:
    try:
        for step in steps:
            step()
    except BaseException as error:  # noqa: BLE001 - it is raised again, with the name of the step
        failure = error if isinstance(error, StepFailure) else StepFailure(error)
        failure.names.append(names[step])
        raise failure from failure.error
