"""Why a plan has copies, reformats and casts: who makes a value one way, and who reads it in another."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.plan.manifest import ProgramRecord, StepRecord, ValueRecord

__all__ = ["find_reasons"]


def find_reasons(program: ProgramRecord) -> dict[int, str]:
    """Number of a step -> why it is there, for the steps that move or convert a value."""
    makers = {number: step.name for step in program.steps for number in step.outputs if number >= 0}
    readers: dict[int, str] = {}
    for step in reversed(program.steps):
        readers.update({number: step.name for number in (*step.inputs, *step.shape_inputs) if number >= 0})
    found = {number: _reason(step, program, makers, readers) for number, step in enumerate(program.steps)}
    return {number: reason for number, reason in found.items() if reason}


def _reason(step: StepRecord, program: ProgramRecord, makers: Mapping[int, str], readers: Mapping[int, str]) -> str:
    if step.kind == "kernel" and step.op == "Cast" and min((*step.inputs, *step.outputs), default=-1) >= 0:
        why = f"by the pass {step.made_by}" if step.made_by else "asked for by the network"
        before, after = program.values[step.inputs[0]].dtype, program.values[step.outputs[0]].dtype
        return f"{before} becomes {after}, {why}"
    if step.kind not in ("copy", "reformat"):
        return ""
    source, target = program.values[step.inputs[0]], program.values[step.outputs[0]]
    show = _place if step.kind == "copy" else _layout
    maker = _name(makers.get(step.inputs[0]), "the caller gives it")
    reader = _name(readers.get(step.outputs[0]), "the caller takes it")
    return f"{maker} in {show(source)}, and {reader} in {show(target)}"


def _name(step: str | None, other: str) -> str:
    return other if step is None else f"'{step}' has it"


def _place(value: ValueRecord) -> str:
    return f"memory of {value.memory or 'the host'}"


def _layout(value: ValueRecord) -> str:
    return f"{value.format} {value.dtype}"
