"""Where the values of a program lie, checked against the providers that are here."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.errors import PlanCorruptError
from dovetail.plan.manifest import ProgramRecord, StepRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
from dovetail.provider.schemas.shape_slots import reads_only_shape

__all__ = ["check_memory", "memories_of"]


def memories_of(program: ProgramRecord) -> list[str]:
    """The devices whose memory a program uses, bodies not included."""
    return sorted({value.memory for value in program.values if value.memory})


def check_memory(program: ProgramRecord, providers: Mapping[str, Provider]) -> None:
    """Check what a plan cannot show by itself: that values lie where the providers of their steps read and write.

    A step that gets an array of the host where it takes one of its device would read any address there is.
    """
    if all(provider.memory.is_host for provider in providers.values()) and not memories_of(program):
        return
    for step in program.steps:
        if step.kind in ("copy", "control"):
            continue
        provider = providers[step.provider]
        own = provider.memory_name
        host = _host_slots(step, provider) if step.kind == "kernel" else frozenset()
        for slot, index in enumerate(step.inputs):
            allowed = {own, ""} if slot in host else {own}
            is_free = step.kind == "kernel" and not own and reads_only_shape(step.op, step.domain)
            _require(step, index < 0 or is_free or program.values[index].memory in allowed)
        for index in step.outputs:
            _require(step, index < 0 or program.values[index].memory == own)


def _host_slots(step: StepRecord, provider: Provider) -> frozenset[int]:
    if provider.memory.is_host:
        return frozenset()
    return call(provider.id, "host_inputs", provider.host_inputs, step.op, step.domain, step.opset)


def _require(step: StepRecord, condition: bool) -> None:
    if not condition:
        raise PlanCorruptError(
            f"a value does not lie in the memory of provider '{step.provider}'",
            where=f"step '{step.name[:60]}'",
            fix="build the plan again",
        )
