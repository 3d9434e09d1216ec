"""The rules for what providers built: payloads, weights and device code by name, and the reports for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from dovetail.plan._header import show
from dovetail.plan.manifest import (
    CarriedRecord,
    KernelRecord,
    Manifest,
    NodeReportRecord,
    PackedRecord,
    PartitionRecord,
    ProgramRecord,
    ReportRecord,
    StepRecord,
)
from dovetail.plan.verify.rules import check_name, check_range, require
from dovetail.plan.walk import walk_steps

__all__ = ["verify_code", "verify_kernel", "verify_notes", "verify_packed", "verify_partition"]

_MAX_COUNT: Final = 2**63
"""More operations and bytes than anything can report."""
_MAX_RANK: Final = 64


def verify_kernel(record: KernelRecord, manifest: Manifest, where: str) -> None:
    """Check what a kernel was built to."""
    if record.payload:
        _require_kind(record.payload, "payload", manifest, where, "names a blob that is no payload")
    for text in (record.version, record.tactic):
        check_name(text, where, may_be_empty=True)
    _verify_code_names(record.code, manifest, where)


def verify_partition(
    step: StepRecord, record: PartitionRecord, program: ProgramRecord, manifest: Manifest, where: str
) -> None:
    """Check a compiled partition against the step that it is of."""
    _require_kind(record.payload, "payload", manifest, where, "names a blob that is no payload")
    for names, ports in ((record.inputs, step.inputs), (record.outputs, step.outputs)):
        same = len(names) == len(ports) and len(set(names)) == len(names)
        require(same, where, "a partition has another number of names than values", len(names))
        require(min(ports, default=0) >= 0, where, "a partition has no absent inputs or outputs")
        for name in names:
            check_name(name, where)
    for index in (*step.inputs, *step.outputs):
        # Providers get arrays as they lie in memory, and know one order of elements.
        is_linear = program.values[index].format == "LINEAR"
        require(is_linear, where, "a partition takes a value that does not lie row by row", index)
    for name in (record.version, *record.layers):
        check_name(name, where, may_be_empty=True)
    for name, weight in record.weights.items():
        check_name(name, where)
        require(name not in record.inputs, where, "a weight of a partition has the name of an input", name)
        _require_kind(weight, "weights", manifest, where, "names a blob that is no weights")
    _verify_code_names(record.code, manifest, where)
    if record.candidates is not None:
        _verify_candidates(record.candidates, record, manifest, where)
    if record.report is not None:
        _verify_report(record.report, step, where)


def _verify_candidates(carried: CarriedRecord, record: PartitionRecord, manifest: Manifest, where: str) -> None:
    _require_kind(carried.payload, "payload", manifest, where, "names candidates that are no payload")
    _verify_code_names(carried.code, manifest, where)
    doubled = carried.code.keys() & record.code.keys()
    require(not doubled, where, "two pieces of device code have one name", sorted(doubled)[:3])


def _require_kind(blob: str, kind: str, manifest: Manifest, where: str, what: str) -> None:
    record = manifest.blobs.get(blob)
    require(record is not None and record.kind == kind, where, what, blob)


# device code


def _verify_code_names(code: Mapping[str, str], manifest: Manifest, where: str) -> None:
    for name, blob in code.items():
        check_name(name, where)
        _require_kind(blob, "kernel", manifest, where, "names a blob that is no device code")


def verify_code(manifest: Manifest) -> None:
    """Every blob that is device code belongs to a step: what nobody loads has no business in a plan."""
    used: set[str] = set()
    for step in (step for program in manifest.programs for step in walk_steps(program)):
        carried = None if step.partition is None else step.partition.candidates
        for built in (step.kernel, step.partition, carried):
            used.update(() if built is None else built.code.values())
    stored = {name for name, record in manifest.blobs.items() if record.kind == "kernel"}
    require(stored <= used, "device code", "no step names it", sorted(stored - used)[:3])


# reports


def _verify_report(report: ReportRecord, step: StepRecord, where: str) -> None:
    for number, node in enumerate(report.nodes):
        here = f"{where}, report of {show(node.name)}"
        _verify_node(node, here)
        for numbers, end in ((node.inputs, number), (node.reads, len(step.inputs)), (node.writes, len(step.outputs))):
            is_known = all(0 <= each < end for each in numbers)
            require(is_known, here, "names what does not come before it, or is not there", numbers[:3])
        require(-1 <= node.parent < number, here, "is in a node that does not come before it", node.parent)
        check_range(node.body, _MAX_COUNT, here, "has a count out of range")
    for layer, reason in report.refusals.items():
        check_name(layer, where, may_be_empty=True)
        check_name(reason, where, may_be_empty=True)


def _verify_node(node: NodeReportRecord, where: str) -> None:
    is_shape = node.shape is None or all(-1 <= size < _MAX_COUNT for size in node.shape)
    require(
        is_shape and len(node.shape or ()) <= _MAX_RANK, where, "has a shape that cannot be", (node.shape or [])[:8]
    )
    for text in (node.name, node.op, *node.layers, node.made_by, node.tactic, node.dtype):
        check_name(text, where, may_be_empty=True)
    for count in (node.flops, node.bytes):
        check_range(count or 0, _MAX_COUNT, where, "has a count out of range")
    require(_is_time(node.time_us), where, "has a negative time", node.time_us)


def _is_time(time: float | None) -> bool:
    return time is None or (time >= 0 and math.isfinite(time))


def verify_notes(manifest: Manifest) -> None:
    """What a plan tells of its build is texts with an end, and times that can be."""
    texts = [text for note in manifest.notes for text in (note.text, note.provider, note.layer)]
    texts += [text for refusal in manifest.refusals for text in (refusal.provider, refusal.reason, *refusal.layers)]
    texts += [text for each in manifest.passes for text in (each.name, each.provider)]
    texts += [text for each in manifest.precision for text in (each.layer, each.op, each.type, each.reason)]
    texts += [text for phase in manifest.phases for text in (phase.name, phase.parent)]
    for text in texts:
        check_name(text, "notes", may_be_empty=True)
    for each in manifest.passes:
        check_range(each.changes, _MAX_COUNT, f"pass {show(each.name)}", "has a count out of range")
    for phase in manifest.phases:
        require(_is_time(phase.seconds), f"phase {show(phase.name)}", "has a negative time", phase.seconds)


# packed weights


def verify_packed(manifest: Manifest) -> None:
    """Packed weights are weights, and so is what they are made of."""
    providers = {device.provider for device in manifest.devices}
    for blob, record in manifest.packed.items():
        where = f"packed weights {show(blob)}"
        _require_kind(blob, "weights", manifest, where, "are no weights of the plan")
        require(record.provider in providers, where, "names another provider", record.provider)
        check_name(record.recipe, where, may_be_empty=True)
        _verify_sources(record, manifest, where)


def _verify_sources(record: PackedRecord, manifest: Manifest, where: str) -> None:
    for name, source in record.sources.items():
        check_name(name, where)
        if source:
            _require_kind(source, "weights", manifest, where, "a source is no weights of the plan")
            require(source not in manifest.packed, where, "a source is packed itself", source)
    stored = [bool(source) for source in record.sources.values()]
    require(len(set(stored)) < 2, where, "some of its sources are stored and some are not")
