"""What the stages of lowering promise each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.build.lower.assembly import assemble
from dovetail.build.lower.drafts import DraftProgram, DraftStep, PortSymbol, Read, change_kind, place_of
from dovetail.build.lower.lowering import check_order, check_places
from dovetail.build.lower.memory.overwrites import check_overwrites
from dovetail.build.lower.outputs import make_body_outputs
from dovetail.errors import InternalError
from dovetail.plan.manifest import ProgramRecord, StepRecord, SymbolRecord, ValueRecord
from dovetail.tensors import TensorSpec
from tests.support.dims import read_dims


def _value(name: str, kind: str = "dynamic", *, memory: str = "", alias: int | None = None) -> ValueRecord:
    return ValueRecord(name=name, dtype="float32", kind=kind, memory=memory, alias=alias)


def _step(
    name: str, inputs: list[int], outputs: list[int], *, place: TensorSpec | None = None, aliases: tuple[int, ...] = ()
) -> DraftStep:
    record = StepRecord(name=name, kind="kernel", provider="cpu", op="Relu", inputs=[], outputs=[])
    reads = tuple(Read(value=number, place=place) for number in inputs)
    return DraftStep(record=record, inputs=reads, outputs=tuple(outputs), aliases=aliases)


def _draft(values: list[ValueRecord], steps: list[DraftStep], outputs: list[int]) -> DraftProgram:
    return DraftProgram(
        values=values,
        dims=[None] * len(values),
        origins=range(len(values)),
        inputs=[0],
        steps=steps,
        outputs=[Read(value=number) for number in outputs],
    )


X, Y, Z = _value("x", "input"), _value("y"), _value("z")


def test_values_are_numbered_as_they_are_met_and_others_left_out() -> None:
    lost = _value("lost")
    draft = _draft([X, lost, Z, Y], [_step("a", [0], [3]), _step("b", [3], [2])], [2])
    program = assemble(draft)
    assert [value.name for value in program.values] == ["x", "y", "z"]
    assert [(step.inputs, step.outputs) for step in program.steps] == [([0], [1]), ([1], [2])]
    assert program.outputs == [2]


def test_absent_inputs_stay_absent() -> None:
    (step,) = assemble(_draft([X, Y], [_step("a", [0, -1, 0], [1])], [1])).steps
    assert step.inputs == [0, -1, 0]


def test_an_alias_is_the_number_of_what_it_shares_memory_with() -> None:
    program = assemble(_draft([X, _value("lost"), replace_alias(Y, 0)], [_step("a", [0], [2])], [2]))
    assert program.values[1].alias == 0


def replace_alias(value: ValueRecord, alias: int) -> ValueRecord:
    return _value(value.name, value.kind, alias=alias)


def test_symbols_of_a_step_belong_to_what_it_reads_in_the_end() -> None:
    size = PortSymbol(name="n", source="dim", port="inputs", position=1, index=0)
    step = replace(_step("a", [0, 2], [1]), symbols=(size,))
    program = assemble(_draft([X, Y, _value("w", "constant")], [step], [1]))
    assert program.symbols == [SymbolRecord(name="n", source="dim", value=1, index=0)]
    assert program.values[1].name == "w"


def test_captures_join_the_numbers_outside_and_inside() -> None:
    body = ProgramRecord(inputs=[], outputs=[0], values=[Z], steps=[], captures=[(-1, 0)])
    record = StepRecord(name="if", kind="control", provider="cpu", op="If", inputs=[], outputs=[], bodies=[body])
    step = DraftStep(record=record, inputs=(), outputs=(1,), captures=((Read(value=0),),))
    (found,) = assemble(_draft([X, Y], [step], [1])).steps
    assert found.bodies[0].captures == [(0, 0)]


def test_a_value_that_is_read_too_early_is_found() -> None:
    with pytest.raises(InternalError, match="read before it is made, after moves") as caught:
        check_order(_draft([X, Y, Z], [_step("late", [2], [1]), _step("b", [0], [2])], [1]), "moves")
    assert "late" in str(caught.value)


def test_a_value_that_is_made_twice_is_found() -> None:
    with pytest.raises(InternalError, match="made twice"):
        check_order(_draft([X, Y], [_step("a", [0], [1]), _step("b", [0], [1])], [1]), "emission")


def test_an_output_that_nobody_makes_is_found() -> None:
    with pytest.raises(InternalError, match="an output is not made"):
        check_order(_draft([X, Y], [], [1]), "emission")


def test_a_value_in_the_wrong_place_is_found() -> None:
    wanted = TensorSpec(dtype="float32", memory="gpu")
    check_places(_draft([X, Y], [_step("a", [0], [1], place=place_of(X))], [1]))
    with pytest.raises(InternalError, match="does not find a value where it wants it"):
        check_places(_draft([X, Y], [_step("a", [0], [1], place=wanted)], [1]))


def test_what_is_read_after_it_was_overwritten_is_found() -> None:
    over = _step("over", [1], [2], aliases=(0,))
    check_overwrites(_draft([X, Y, Z], [_step("a", [0], [1]), over], [2]))
    with pytest.raises(InternalError, match="after a plugin wrote over it"):
        check_overwrites(_draft([X, Y, Z], [_step("a", [0], [1]), over], [2, 1]))


def test_a_value_of_another_kind_has_no_size() -> None:
    value = ValueRecord(name="t", dtype="float32", kind="planned", dims=read_dims([2]), size_bytes=8)
    assert change_kind(value, "output").size_bytes is None


def test_what_is_known_of_the_results_of_a_body_is_kept() -> None:
    draft = replace(_draft([X, Y], [_step("a", [0], [1])], [1]), dims=[None, read_dims(["n", 3])], is_body=True)
    assert make_body_outputs(draft).values[1].sizes == (None, 3)
