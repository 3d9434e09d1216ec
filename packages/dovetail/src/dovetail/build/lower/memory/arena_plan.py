"""The last stage: a place in the arena of its memory for every planned value and every workspace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import ProgramRecord, StepRecord
from dovetail.plan.workspaces import WorkspaceGroup, find_workspaces, walk_steps
from dovetail.provider.memory.arena import Span, plan_offsets

__all__ = ["plan_memory"]


def plan_memory(program: ProgramRecord) -> ProgramRecord:
    """The program with a place in the arena of its memory for every planned value and every workspace."""
    spans = value_lifetimes(program)
    planned: dict[str, list[int]] = {}
    for index, value in enumerate(program.values):
        if value.kind == "planned" and value.alias is None and index in spans:
            planned.setdefault(value.memory, []).append(index)
    groups: dict[str, list[WorkspaceGroup]] = {}
    for group in find_workspaces(program):
        groups.setdefault(group.memory, []).append(group)
    needs = [step.workspace_bytes for _, _, step in walk_steps(program)]
    values, totals, places = list(program.values), {}, {}
    for memory in dict.fromkeys((*planned, *groups)):
        indices, shared = planned.get(memory, []), groups.get(memory, [])
        own = [Span(values[i].size_bytes or 0, *spans[i]) for i in indices]
        scratch = [Span(max(needs[n] for n in g.steps), g.position, g.position) for g in shared]
        offsets, totals[memory] = plan_offsets([*own, *scratch])
        for index, offset in zip(indices, offsets, strict=False):
            values[index] = msgspec.structs.replace(values[index], offset=offset)
        for group, offset in zip(shared, offsets[len(indices) :], strict=True):
            places.update(dict.fromkeys(group.steps, offset))
    for index, value in enumerate(values):
        if value.kind == "planned" and value.offset is None and value.alias is None:
            values[index] = msgspec.structs.replace(value, offset=0, size_bytes=0, kind="dynamic")
    steps = _with_workspaces(program.steps, places, iter(range(len(needs))))
    return msgspec.structs.replace(program, values=values, steps=steps, arena_bytes=totals.pop("", 0), arenas=totals)


def _with_workspaces(
    steps: Sequence[StepRecord], places: Mapping[int, int], numbers: Iterator[int]
) -> list[StepRecord]:
    """The steps with the offsets of their workspaces, numbered as ``walk_steps`` does."""
    placed = []
    for step in steps:
        offset = places.get(next(numbers))
        bodies = [
            msgspec.structs.replace(body, steps=_with_workspaces(body.steps, places, numbers)) for body in step.bodies
        ]
        placed.append(msgspec.structs.replace(step, workspace_offset=offset, bodies=bodies))
    return placed
