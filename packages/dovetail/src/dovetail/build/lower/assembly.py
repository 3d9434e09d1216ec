"""The fifth stage: from a draft to the record of a program, its values numbered in the order they are met."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.build.lower.drafts import DraftProgram, DraftStep, Read
from dovetail.plan.manifest import ProgramRecord, StepRecord, SymbolRecord, ValueRecord

__all__ = ["assemble"]


def assemble(draft: DraftProgram) -> ProgramRecord:
    """The record of a program; values that no step touches are left out."""
    return _Assembly(draft).assemble()


class _Assembly:
    """Gives numbers to values in the order they are met."""

    def __init__(self, draft: DraftProgram) -> None:
        self._draft = draft
        self._numbers: dict[int, int] = {}
        self._values: list[ValueRecord] = []
        self._symbols: list[SymbolRecord] = []

    def assemble(self) -> ProgramRecord:
        """The whole program."""
        draft = self._draft
        inputs = [self._number(index) for index in draft.inputs]
        for symbol in draft.symbols:
            self._symbols.append(msgspec.structs.replace(symbol, value=self._number(symbol.value)))
        steps = [self._finish(step) for step in draft.steps]
        outputs = self._number_all(draft.outputs)
        return ProgramRecord(
            inputs=inputs,
            outputs=outputs,
            values=self._values,
            steps=steps,
            symbols=self._symbols,
            captures=[(-1, self._number(inside)) for inside in draft.captured],
        )

    def _number(self, index: int) -> int:
        if index < 0:
            return -1
        if index not in self._numbers:
            self._numbers[index] = len(self._values)
            self._values.append(self._draft.values[index])
            alias = self._draft.values[index].alias
            if alias is not None:
                number = self._number(alias)
                self._values[self._numbers[index]] = msgspec.structs.replace(self._draft.values[index], alias=number)
        return self._numbers[index]

    def _number_all(self, reads: Sequence[Read]) -> list[int]:
        return [self._number(read.value) for read in reads]

    def _finish(self, step: DraftStep) -> StepRecord:
        inputs, shape_inputs = self._number_all(step.inputs), self._number_all(step.shape_inputs)
        bodies = [
            msgspec.structs.replace(body, captures=self._join_captures(body, captured))
            for body, captured in zip(step.record.bodies, step.captures, strict=True)
        ]
        outputs = [self._number(index) for index in step.outputs]
        ports = {"inputs": inputs, "shape_inputs": shape_inputs, "outputs": outputs}
        for symbol in step.symbols:
            value = ports[symbol.port][symbol.position]
            self._symbols.append(SymbolRecord(name=symbol.name, source=symbol.source, value=value, index=symbol.index))
        return msgspec.structs.replace(
            step.record, inputs=inputs, outputs=outputs, shape_inputs=shape_inputs, bodies=bodies
        )

    def _join_captures(self, body: ProgramRecord, outside: Sequence[Read]) -> list[tuple[int, int]]:
        numbers = self._number_all(outside)
        return [(number, inside) for number, (_, inside) in zip(numbers, body.captures, strict=True)]
