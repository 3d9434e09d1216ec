"""The second stage: copies and reformats, so that every step finds what it reads where and how it wants it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from dovetail.build.assign.assigner import Assigner
from dovetail.build.lower.drafts import DraftProgram, DraftStep, Read, place_of
from dovetail.build.lower.program_context import ProgramContext
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.provider.calls import call
from dovetail.tensors import TensorSpec

__all__ = ["add_moves"]


def add_moves(draft: DraftProgram, context: ProgramContext) -> DraftProgram:
    """The draft with a step for each tensor that is wanted elsewhere or otherwise, before the first that wants it."""
    return _Mover(draft, context).move()


class _Mover:
    """Walks the steps in order and knows where each tensor lies by then."""

    def __init__(self, draft: DraftProgram, context: ProgramContext) -> None:
        self._draft, self._context = draft, context
        self._values, self._dims, self._origins = list(draft.values), list(draft.dims), list(draft.origins)
        self._steps: list[DraftStep] = []
        self._numbers = {(number, place_of(value)): number for number, value in enumerate(draft.values)}
        """The value that holds a tensor, by its first number, in a place."""

    def move(self) -> DraftProgram:
        """The whole program."""
        for step in self._draft.steps:
            self._place(step)
        outputs = self._find_all(self._draft.outputs)
        return replace(
            self._draft,
            values=self._values,
            dims=self._dims,
            origins=self._origins,
            steps=self._steps,
            outputs=outputs,
        )

    def _place(self, step: DraftStep) -> None:
        inputs, shape_inputs = self._find_all(step.inputs), self._find_all(step.shape_inputs)
        captures = tuple(self._find_all(captured) for captured in step.captures)
        self._steps.append(replace(step, inputs=inputs, shape_inputs=shape_inputs, captures=captures))

    def _find_all(self, reads: Sequence[Read]) -> tuple[Read, ...]:
        return tuple(
            read if read.value < 0 or read.place is None else replace(read, value=self._find(read.value, read.place))
            for read in reads
        )

    def _find(self, tensor: int, place: TensorSpec) -> int:
        """The value that holds a tensor in a place, which is made when there is none yet."""
        known = self._numbers.get((tensor, place))
        return self._move(tensor, place) if known is None else known

    def _move(self, tensor: int, place: TensorSpec) -> int:
        """Bring a tensor to another memory, another format, or both.

        Who has the tensor changes its format; a device that cannot leaves that to the host.
        """
        home = place_of(self._values[tensor])
        if (home.dtype, home.format) != (place.dtype, place.format):
            memory = self._find_reformatter(tensor, home, place)
            source, target = (msgspec.structs.replace(each, memory=memory) for each in (home, place))
            self._find(tensor, source)
            known = self._numbers.get((tensor, target))
            number = self._reformat(tensor, source, target) if known is None else known
            return number if target == place else self._transfer(tensor, target, place)
        if self._values[tensor].kind == "constant":
            constant = msgspec.structs.replace(self._values[tensor], memory=place.memory)
            return self._add(tensor, place, constant)
        return self._transfer(tensor, home, place)

    def _find_reformatter(self, tensor: int, source: TensorSpec, target: TensorSpec) -> str:
        """The memory in which a format is changed: where the tensor is, or the host's."""
        if not source.memory:
            return ""
        provider = self._context.assigner.provider(source.memory)
        return source.memory if self._context.can_reformat(self._dims[tensor], source, target, provider) else ""

    def _reformat(self, tensor: int, source: TensorSpec, place: TensorSpec) -> int:
        name = f"{source.dtype}:{source.format} -> {place.dtype}:{place.format}"
        return self._append("Reformat", tensor, source, place, name, provider=place.memory)

    def _transfer(self, tensor: int, source: TensorSpec, place: TensorSpec) -> int:
        """Copy a tensor to another memory; by way of the host between devices that do not know each other."""
        provider = _find_copier(self._context.assigner, source.memory, place.memory)
        if provider is None:
            source = msgspec.structs.replace(source, memory="")
            self._find(tensor, source)
        name = f"{source.memory or 'host'} -> {place.memory or 'host'}"
        return self._append("Copy", tensor, source, place, name, provider=provider or place.memory)

    def _append(self, op: str, tensor: int, source: TensorSpec, place: TensorSpec, what: str, *, provider: str) -> int:
        name = self._values[tensor].name
        made = self._context.plan_value(name, place, self._dims[tensor], can_plan=not self._draft.is_body)
        target = self._add(tensor, place, made)
        record = StepRecord(
            name=f"{op} {name} {what}",
            kind=op.lower(),
            provider=provider or self._context.provider.id,
            op=op,
            inputs=[],
            outputs=[],
        )
        read = Read(value=self._numbers[tensor, source], place=source)
        self._steps.append(DraftStep(record=record, inputs=(read,), outputs=(target,)))
        return target

    def _add(self, tensor: int, place: TensorSpec, value: ValueRecord) -> int:
        self._values.append(value)
        self._dims.append(self._dims[tensor])
        self._origins.append(tensor)
        return self._numbers.setdefault((tensor, place), len(self._values) - 1)


def _find_copier(assigner: Assigner, source: str, target: str) -> str | None:
    """The provider that copies from one memory to another at once."""
    if not source or not target:
        return source or target
    reader, writer = assigner.provider(source), assigner.provider(target)
    for provider in (writer, reader):
        if call(provider.id, "can_copy", provider.can_copy, reader.memory, writer.memory):
            return provider.id
    return None
