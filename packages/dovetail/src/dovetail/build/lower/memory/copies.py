"""A copy of a value in the same place, with memory of its own."""

from __future__ import annotations

from dovetail.build.lower.drafts import DraftStep, Read, place_of
from dovetail.build.lower.program_context import ProgramContext
from dovetail.plan.manifest import StepRecord, ValueRecord

__all__ = ["make_copy"]


def make_copy(source: int, target: int, value: ValueRecord, context: ProgramContext) -> DraftStep:
    """The step that copies a value: by its device, by an Identity on the host, or as it is packed."""
    kind, op, opset = "reformat", "Reformat", 1
    if value.memory:
        kind, op = "copy", "Copy"
    elif value.is_linear:
        kind, op, opset = "kernel", "Identity", 16
    record = StepRecord(
        name=f"Copy {value.name}",
        kind=kind,
        provider=value.memory or context.provider.id,
        op=op,
        opset=opset,
        inputs=[],
        outputs=[],
    )
    return DraftStep(record=record, inputs=(Read(value=source, place=place_of(value)),), outputs=(target,))
