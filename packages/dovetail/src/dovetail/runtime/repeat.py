"""Runs that only repeat the one before: each step is bound to the arrays and addresses that it touches.

A host that calls an engine again and again over the same buffers pays for every look at what might have changed. Where
it knows that nothing has, the steps can be called without a frame, with what they found there at the last run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from dovetail.runtime.steps import Enter, Frame, Segments, Step

__all__ = ["BoundStep", "bind_segments"]

BoundStep = Callable[[], object]
"""A step over the values that it had when it was bound. It has the step's name, for reports of failures."""


def bind_segments(segments: Segments, frame: Frame) -> BoundStep:
    """All steps in order; right for as long as every value that a step writes in place stays where it is."""
    groups = [_bind_group(enter, [_bind_step(step, frame) for step in steps]) for enter, steps in segments]
    return groups[0] if len(groups) == 1 else _in_order(groups)


def _bind_step(step: Step, frame: Frame) -> BoundStep:
    bind = getattr(step, "bind", None)
    bound: BoundStep = partial(step, frame) if bind is None else bind(frame)
    bound.name = getattr(step, "name", "")  # type: ignore[attr-defined]
    return bound


def _bind_group(enter: Enter | None, steps: Sequence[BoundStep]) -> BoundStep:
    if enter is None:
        return steps[0] if len(steps) == 1 else _in_order(steps)
    return _entered(enter, steps[0]) if len(steps) == 1 else partial(enter, _in_order(steps))


# The variables are called `step` because failures are traced to a step by that name.


def _entered(enter: Enter, step: BoundStep) -> BoundStep:
    def run() -> None:
        enter(step)

    return run


def _in_order(steps: Sequence[BoundStep]) -> BoundStep:
    def run() -> None:
        for step in steps:
            step()

    return run
