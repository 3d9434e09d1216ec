"""The third stage: a plugin that writes over one of its inputs gets a copy of what others still need.

What is left then is one rule, which ``check_overwrites`` checks: nobody reads a value after a plugin wrote over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from dovetail.build.lower.drafts import DraftProgram, DraftStep, Read, change_kind, place_of
from dovetail.build.lower.memory.copies import make_copy
from dovetail.build.lower.program_context import ProgramContext
from dovetail.errors import InternalError

__all__ = ["check_overwrites", "protect_overwritten"]


def protect_overwritten(draft: DraftProgram, context: ProgramContext) -> DraftProgram:
    """The draft with copies of inputs that are overwritten while somebody needs them, or that nobody may write to."""
    return _Protector(draft, context).protect()


class _Protector:
    """Walks the steps in order."""

    def __init__(self, draft: DraftProgram, context: ProgramContext) -> None:
        self._draft, self._context = draft, context
        self._values, self._dims, self._origins = list(draft.values), list(draft.dims), list(draft.origins)
        self._steps: list[DraftStep] = []
        self._last_reads = _last_reads(draft)
        self._results = {draft.origins[read.value] for read in draft.outputs}
        self._captured = set(draft.captured)
        self._made = set(draft.inputs)
        """Values that exist where the walk is."""

    def protect(self) -> DraftProgram:
        """The whole program."""
        for position, step in enumerate(self._draft.steps):
            done = self._protect(step, position)
            self._steps.append(done)
            self._made.update((*done.outputs, *(read.value for read in done.reads())))
        return replace(self._draft, values=self._values, dims=self._dims, origins=self._origins, steps=self._steps)

    def _protect(self, step: DraftStep, position: int) -> DraftStep:
        inputs = list(step.inputs)
        for output, slot in zip(step.outputs, step.aliases, strict=False):
            if slot >= 0:
                if self._is_needed(inputs[slot].value, output, step, position):
                    inputs[slot] = self._copy(inputs[slot].value)
                self._share(output, inputs[slot].value)
        return replace(step, inputs=tuple(inputs))

    def _is_needed(self, source: int, output: int, step: DraftStep, position: int) -> bool:
        """Whether a plugin may not write over a value."""
        value = self._values[source]
        is_read = self._last_reads.get(source, -1) > position
        is_read = is_read or sum(read.value == source for read in step.reads()) > 1
        # A caller expects an input to change only where an output of the engine is bound to the same memory.
        is_callers = value.kind == "input" and output not in self._results
        is_outside = self._draft.is_body and (value.kind == "input" or source in self._captured)
        return is_read or is_callers or is_outside or value.kind == "constant" or self._is_sent(source)

    def _is_sent(self, source: int) -> bool:
        """Whether a copy to or from a device may still be under way."""
        origin = self._origins[source]
        twins = [number for number in self._made | {source} if self._origins[number] == origin]
        return len(twins) > 1 and any(self._values[number].memory for number in twins)

    def _copy(self, source: int) -> Read:
        value = self._values[source]
        made = self._context.plan_value(
            value.name, place_of(value), self._dims[source], can_plan=not self._draft.is_body
        )
        self._values.append(made)
        self._dims.append(self._dims[source])
        self._origins.append(len(self._values) - 1)
        target = len(self._values) - 1
        self._steps.append(make_copy(source, target, value, self._context))
        return Read(value=target, place=place_of(value))

    def _share(self, output: int, source: int) -> None:
        """Give an output the memory of an input."""
        value, origin = msgspec.structs.replace(self._values[output], alias=source), self._values[source]
        if origin.kind == "dynamic":
            value = change_kind(value, "dynamic")  # there is memory to share only when the run has come to this step
        elif origin.kind == "input" and output in self._results and value.kind == "planned":
            value = change_kind(value, "output")
        self._values[output] = value


def _last_reads(draft: DraftProgram) -> Mapping[int, int]:
    """The position of the last step that reads each value; the end of the program for its outputs."""
    found = {read.value: position for position, step in enumerate(draft.steps) for read in step.reads()}
    return {**found, **{read.value: len(draft.steps) for read in draft.outputs}}


def check_overwrites(draft: DraftProgram) -> None:
    """Check that nobody reads a value after a plugin wrote over it."""
    last_reads = _last_reads(draft)
    for position, step in enumerate(draft.steps):
        for source in step.overwritten():
            if last_reads.get(source, -1) > position:
                raise InternalError(
                    "a value is read after a plugin wrote over it",
                    where=f"step '{step.record.name}', value '{draft.values[source].name}'",
                )
