"""Values of a program while it is written, and the memory plan of a finished one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from dovetail.build.program_context import Place
from dovetail.expr import Expr, encode_expr
from dovetail.formats import packed_shape
from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import ProgramRecord, StepRecord, ValueRecord
from dovetail.provider.arena import Span, plan_offsets

__all__ = ["Draft", "encode_dims", "max_workspace", "plan_memory"]


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
    return int(np.prod(physical, dtype=np.int64)) * np.dtype(draft.place.dtype).itemsize


def encode_dims(dims: Sequence[Expr | None] | None) -> list[Any] | None:
    """A shape as a plan stores it."""
    return None if dims is None else [None if dim is None else encode_expr(dim) for dim in dims]


def max_workspace(steps: Sequence[StepRecord]) -> int:
    """Bytes that the neediest step takes, bodies included."""
    own = max((step.workspace_bytes for step in steps), default=0)
    return max([own, *(body.workspace_bytes for step in steps for body in step.bodies)])


def plan_memory(program: ProgramRecord) -> ProgramRecord:
    """The program with a place in the arena of its memory for every planned value."""
    spans = value_lifetimes(program)
    planned: dict[str, list[int]] = {}
    for index, value in enumerate(program.values):
        if value.kind == "planned" and value.alias is None and index in spans:
            planned.setdefault(value.memory, []).append(index)
    values, totals = list(program.values), {}
    for memory, indices in planned.items():
        offsets, totals[memory] = plan_offsets([Span(values[i].size_bytes or 0, *spans[i]) for i in indices])
        for index, offset in zip(indices, offsets, strict=True):
            values[index] = msgspec.structs.replace(values[index], offset=offset)
    for index, value in enumerate(values):
        if value.kind == "planned" and value.offset is None and value.alias is None:
            values[index] = msgspec.structs.replace(value, offset=0, size_bytes=0, kind="dynamic")
    return msgspec.structs.replace(program, values=values, arena_bytes=totals.pop("", 0), arenas=totals)
