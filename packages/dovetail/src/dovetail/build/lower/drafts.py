"""Values of a program while it is written, and the memory plan of a finished one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from dovetail.build.lower.program_context import Place
from dovetail.expr import Expr, encode_expr
from dovetail.formats import packed_shape, stored_size_bytes
from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import ProgramRecord, StepRecord, ValueRecord
from dovetail.plan.workspaces import WorkspaceGroup, find_workspaces, walk_steps
from dovetail.provider.memory.arena import Span, plan_offsets

__all__ = ["Draft", "encode_dims", "plan_memory"]


@dataclass
class Draft:
    """A value whose kind may still change."""

    name: str
    place: Place
    kind: str
    dims: list[Any] | None = None
    blob: str | None = None
    alias: int | None = None
    bound: tuple[int, ...] | None = None

    def record(self) -> ValueRecord:
        """What the manifest stores."""
        return ValueRecord(
            name=self.name,
            dtype=self.place.dtype,
            kind=self.kind,
            dims=self.dims,
            format=self.place.format.name,
            scale=self.place.scale if self.place.dtype == "int8" else -1.0,
            blob=self.blob,
            alias=self.alias,
            type=self.place.type,
            memory=self.place.memory,
            size_bytes=_size_bytes(self) if self.kind == "planned" and self.bound is not None else None,
        )


def _size_bytes(draft: Draft) -> int:
    physical = packed_shape(draft.bound or (), draft.place.format)
    if draft.place.memory:
        return stored_size_bytes(draft.place.dtype, physical)
    return math.prod(physical) * np.dtype(draft.place.dtype).itemsize


def encode_dims(dims: Sequence[Expr | None] | None) -> list[Any] | None:
    """A shape as a plan stores it."""
    return None if dims is None else [None if dim is None else encode_expr(dim) for dim in dims]


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
