"""Which steps of a program need scratch memory, in which memory, and when: what the memory plan adds to its values.

The workspace of a step lives while its step runs. Steps of a body run while the control flow that has them does; as
they run one after the other, those of one memory share the largest of their workspaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dovetail.plan.manifest import ProgramRecord, StepRecord

__all__ = ["WorkspaceGroup", "find_workspaces", "is_planned_workspace", "max_workspace", "memory_of_step", "walk_steps"]


@dataclass(frozen=True, kw_only=True)
class WorkspaceGroup:
    """Steps of one memory that share a workspace."""

    memory: str
    position: int
    """The step of the program that runs meanwhile."""
    steps: Sequence[int]
    """Numbers of the steps, as ``walk_steps`` counts."""


def walk_steps(program: ProgramRecord) -> Iterator[tuple[int, ProgramRecord, StepRecord]]:
    """Every step, those of bodies after the one that has them: its position in the program, whose it is, the step."""
    for position, step in enumerate(program.steps):
        yield position, program, step
        for body in step.bodies:
            for _, owner, inner in walk_steps(body):
                yield position, owner, inner


def memory_of_step(program: ProgramRecord, step: StepRecord) -> str:
    """The memory that a step works in: where its outputs lie."""
    return next((program.values[index].memory for index in step.outputs if index >= 0), "")


def is_planned_workspace(step: StepRecord) -> bool:
    """Whether the plan knows the workspace of a step; a plugin without bounds is asked when shapes are known."""
    return step.workspace_bytes > 0 and not step.asks_workspace


def max_workspace(program: ProgramRecord) -> int:
    """Bytes that the neediest step takes, bodies included."""
    return max((step.workspace_bytes for _, _, step in walk_steps(program)), default=0)


def find_workspaces(program: ProgramRecord, numbers: Sequence[int] | None = None) -> list[WorkspaceGroup]:
    """The groups of steps with a workspace that the plan knows, or of those with these numbers."""
    groups: dict[tuple[str, int], list[int]] = {}
    for number, (position, owner, step) in enumerate(walk_steps(program)):
        if is_planned_workspace(step) if numbers is None else number in numbers:
            groups.setdefault((memory_of_step(owner, step), position), []).append(number)
    return [WorkspaceGroup(memory=m, position=p, steps=steps) for (m, p), steps in groups.items()]
