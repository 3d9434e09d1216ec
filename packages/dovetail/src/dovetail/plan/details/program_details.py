"""The programs of a plan in every detail, for reports: steps with their work and origins, values with their places.

Everything is read from the manifest. A partition is described by the report that its provider left in it; payloads are
not looked into.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dovetail.plan.details.step_reasons import find_reasons
from dovetail.plan.details.usual_sizes import UsualSizes, usual_sizes
from dovetail.plan.lifetimes import value_lifetimes
from dovetail.plan.manifest import AttributeRecord, Manifest, ProgramRecord, StepRecord, ValueRecord
from dovetail.provider.costs import count_bytes, count_operations

__all__ = ["describe_details"]


def describe_details(
    manifest: Manifest, profile: int, shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Any]:
    """The steps and values of one program, with shapes as they usually are.

    Args:
        manifest: The plan, which must have been verified.
        profile: The number of the program.
        shapes: Shapes of inputs to use instead of those that the profile is fast for.
    """
    sizes, tactics = usual_sizes(manifest, profile, shapes), _name_tactics(manifest, profile)
    return _ProgramDetails(manifest, manifest.programs[profile], sizes, tactics).describe()


def _name_tactics(manifest: Manifest, profile: int) -> dict[str, str]:
    """Layer -> what the tactic is called that the tuner chose for it."""
    tables = [table for table in manifest.tuning if table.profile == profile]
    return {table.name: each.name for table in tables for each in table.candidates if each.chosen and each.name}


class _ProgramDetails:
    def __init__(
        self, manifest: Manifest, program: ProgramRecord, sizes: UsualSizes, tactics: Mapping[str, str]
    ) -> None:
        self._manifest, self._program, self._tactics = manifest, program, tactics
        self._sizes = [_sizes_of(value, manifest, sizes) for value in program.values]
        self._usual = sizes

    def describe(self) -> dict[str, Any]:
        program = self._program
        spans, reasons = value_lifetimes(program), find_reasons(program)
        return {
            "inputs": list(program.inputs),
            "outputs": list(program.outputs),
            "arenas": {"": program.arena_bytes, **program.arenas} if program.arena_bytes else dict(program.arenas),
            "values": [self._describe_value(number, spans.get(number)) for number in range(len(program.values))],
            "steps": [self._describe_step(step, reasons.get(n, "")) for n, step in enumerate(program.steps)],
        }

    def _describe_value(self, number: int, span: tuple[int, int] | None) -> dict[str, Any]:
        value = self._program.values[number]
        return {
            "name": value.name,
            "kind": value.kind,
            "dtype": value.dtype,
            "type": value.type,
            "format": value.format,
            "memory": value.memory,
            "sizes": self._sizes[number],
            "offset": value.offset,
            "size_bytes": value.size_bytes,
            "alias": value.alias,
            "first_step": None if span is None else span[0],
            "last_step": None if span is None else span[1],
        }

    def _describe_step(self, step: StepRecord, reason: str) -> dict[str, Any]:
        report = None if step.partition is None else step.partition.report
        return {
            "name": step.name,
            "kind": step.kind,
            "provider": step.provider,
            "op": step.op,
            "inputs": [number for number in (*step.inputs, *step.shape_inputs) if number >= 0],
            "outputs": [number for number in step.outputs if number >= 0],
            "captures": [outside for body in step.bodies for outside, _ in body.captures],
            "layers": _layers_of(step),
            "made_by": step.made_by,
            "reason": reason,
            "tactic": self._name_tactic(step),
            "tactic_number": step.tactic,
            "flops": self._count_flops(step),
            "bytes": self._count_bytes((*step.inputs, *step.outputs)),
            "workspace_bytes": step.workspace_bytes,
            "workspace_offset": step.workspace_offset,
            "nodes": [] if report is None else [_describe_node(node) for node in report.nodes],
            "refusals": {} if report is None else dict(report.refusals),
            "bodies": [self._describe_body(body) for body in step.bodies],
        }

    def _describe_body(self, body: ProgramRecord) -> dict[str, Any]:
        return _ProgramDetails(self._manifest, body, self._usual, self._tactics).describe()

    def _name_tactic(self, step: StepRecord) -> str:
        """What its provider or plugin calls the tactic of a step; empty where it has no name."""
        if step.kernel is not None and step.kernel.tactic:
            return step.kernel.tactic
        return self._tactics.get(step.name, "") if step.kind == "plugin" else ""

    def _count_flops(self, step: StepRecord) -> int | None:
        if step.partition is not None:
            report = step.partition.report
            known = [node.flops for node in (() if report is None else report.nodes) if node.flops is not None]
            return sum(known) if known else None
        if step.kind != "kernel":
            return 0 if step.kind in ("copy", "reformat") else None
        inputs = [None if number < 0 else self._sizes[number] for number in step.inputs]
        output = next((self._sizes[number] for number in step.outputs if number >= 0), None)
        return count_operations(step.op, inputs, output, _attributes_of(step.attributes))

    def _count_bytes(self, numbers: Iterable[int]) -> int | None:
        """What is read and written; None where the size of a tensor is not known."""
        total = 0
        for number in dict.fromkeys(number for number in numbers if number >= 0):
            size = count_bytes(self._program.values[number].dtype, self._sizes[number])
            if size is None:
                return None
            total += size
        return total


def _sizes_of(value: ValueRecord, manifest: Manifest, sizes: UsualSizes) -> Sequence[int] | None:
    blob = None if value.blob is None else manifest.blobs.get(value.blob)
    return sizes.of(value) if blob is None else list(blob.shape)


def _layers_of(step: StepRecord) -> list[str]:
    if step.partition is not None:
        return list(step.partition.layers)
    return list(step.layers) or [step.name]


def _attributes_of(attributes: Sequence[AttributeRecord]) -> dict[str, Any]:
    return {each.name: each.value for each in attributes if each.type in ("int", "ints")}


def _describe_node(node: Any) -> dict[str, Any]:
    return {name: getattr(node, name) for name in node.__struct_fields__}
