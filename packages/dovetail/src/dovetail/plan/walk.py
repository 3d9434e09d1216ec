"""Walking through programs."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.plan.manifest import ProgramRecord, StepRecord

__all__ = ["walk_steps"]


def walk_steps(program: ProgramRecord) -> Iterator[StepRecord]:
    """Every step of a program, those of bodies after the step they belong to."""
    for step in program.steps:
        yield step
        for body in step.bodies:
            yield from walk_steps(body)
