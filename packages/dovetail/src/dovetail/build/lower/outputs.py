"""The fourth stage: every output of a program is a value that may leave it, and no other output is the same one."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from dovetail.build.lower.drafts import DraftProgram, Read, change_kind, place_of
from dovetail.build.lower.memory.copies import make_copy
from dovetail.build.lower.program_context import ProgramContext
from dovetail.errors import BuildError
from dovetail.expr import dims_from_sizes, sizes_from_dims
from dovetail.plan.manifest import ValueRecord

__all__ = ["make_body_outputs", "make_outputs"]


def make_outputs(draft: DraftProgram, context: ProgramContext) -> DraftProgram:
    """The draft of a whole network: what is planned becomes an output, what must stay where it is gets copied."""
    return _OutputMaker(draft, context).make()


class _OutputMaker:
    """Goes through the outputs in order."""

    def __init__(self, draft: DraftProgram, context: ProgramContext) -> None:
        self._draft, self._context = draft, context
        self._values, self._dims, self._steps = list(draft.values), list(draft.dims), list(draft.steps)
        self._shared = {value.alias for value in draft.values}
        self._left: set[int] = set()
        """Values that are an output already."""

    def make(self) -> DraftProgram:
        """The whole program."""
        outputs = [Read(value=self._make(read.value)) for read in self._draft.outputs]
        count = len(self._values) - len(self._draft.values)
        origins = [*self._draft.origins, *range(len(self._draft.values), len(self._draft.values) + count)]
        return replace(
            self._draft, values=self._values, dims=self._dims, origins=origins, steps=self._steps, outputs=outputs
        )

    def _make(self, number: int) -> int:
        value = self._values[number]
        if value.kind == "dynamic" and not value.is_linear:
            raise _packed_dynamic(value)
        if value.kind == "planned" and value.alias is None and number not in self._shared:
            self._values[number] = change_kind(value, "output")
        elif value.kind not in ("dynamic", "object", "output") or (value.kind == "output" and number in self._left):
            number = self._copy(number)
        self._left.add(number)
        return number

    def _copy(self, source: int) -> int:
        value = self._values[source]
        made = self._context.plan_value(value.name, place_of(value), self._dims[source])
        self._values.append(change_kind(made, "output") if made.kind == "planned" else made)
        self._dims.append(self._dims[source])
        self._steps.append(make_copy(source, len(self._values) - 1, value, self._context))
        return len(self._values) - 1


def _packed_dynamic(value: ValueRecord) -> BuildError:
    return BuildError(
        "the shape of an output that only the run knows cannot be read back from a packed format",
        where=f"tensor '{value.name}'",
        expected="LINEAR among its allowed formats",
        got=value.format,
        fix="allow LINEAR for the output",
    )


def make_body_outputs(draft: DraftProgram) -> DraftProgram:
    """The draft of a body, with what is known of its results: nothing else tells it when a loop never runs."""
    values = list(draft.values)
    for read in draft.outputs:
        value, dims = values[read.value], draft.dims[read.value]
        if value.kind == "dynamic" and value.dims is None and dims is not None:
            values[read.value] = msgspec.structs.replace(value, dims=dims_from_sizes(sizes_from_dims(dims)))
    return replace(draft, values=values)
