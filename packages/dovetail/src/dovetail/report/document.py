"""What a report shows of one engine: its layers as nodes of a graph, with their stories, as plain data.

Everything comes from the plan and, where there is one, from the answer of ``dovetail bench --profile``. No code of the
plan runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from dovetail.errors import PlanDeviceMismatchError
from dovetail.plan.container import PlanFile
from dovetail.plan.details.program_details import describe_details
from dovetail.plan.inspect import describe_table
from dovetail.plan.manifest import Manifest, decode_manifest
from dovetail.plan.verify.manifest_rules import verify_manifest
from dovetail.report.nodes import ReportNode, list_nodes
from dovetail.report.page import make_page
from dovetail.report.times import BenchTimes, read_bench

__all__ = ["SCHEMA", "describe_engine", "describe_plan", "draw_report"]

SCHEMA: Final = "dovetail.report/1"


def describe_engine(path: str | os.PathLike[str], bench: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a report shows of a plan.

    Args:
        path: The plan.
        bench: The document of ``dovetail bench --profile --json`` for it; None where nothing was measured.

    Raises:
        PlanError: The file cannot be read, or is no plan that this version reads.
        InputError: The document is none of a benchmark, or of another engine.
    """
    with PlanFile.open(path) as file:
        return describe_plan(file, Path(path).name, bench)


def draw_report(file: PlanFile, name: str) -> str:
    """The page of one plan, without times."""
    return make_page([describe_plan(file, name)])


def describe_plan(file: PlanFile, name: str, bench: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The same of a plan that is open; ``name`` is what its file is called."""
    manifest = decode_manifest(file.manifest)
    with suppress(PlanDeviceMismatchError):  # a plan can be looked at where a provider of it is not installed
        verify_manifest(manifest, file)
    times = read_bench(bench, manifest) if bench is not None else None
    return {
        "schema": SCHEMA,
        "file": name,
        "name": manifest.name,
        "producer": manifest.producer,
        "format_version": "{}.{}".format(*manifest.format_version),
        "size_bytes": file.size_bytes,
        "open": manifest.open,
        "strongly_typed": manifest.strongly_typed,
        "devices": [_fields(device) for device in manifest.devices],
        "weights_bytes": _count_weights(manifest, file),
        "refittable": 0 if manifest.refit is None else len(manifest.refit.weights),
        "build": dict(manifest.build),
        "phases": [_fields(phase) for phase in manifest.phases],
        "passes": [_fields(record) for record in manifest.passes],
        "refusals": [_fields(refusal) for refusal in manifest.refusals],
        "notes": [_fields(note) for note in manifest.notes],
        "tuning": [describe_table(table) for table in manifest.tuning],
        "bench": None if times is None else times.summary,
        "programs": [_describe_program(manifest, number, times) for number in range(len(manifest.programs))],
    }


def _count_weights(manifest: Manifest, file: PlanFile) -> int:
    names = [name for name, record in manifest.blobs.items() if record.kind == "weights" and name in file.blobs]
    return sum(file.blobs[name].size_bytes for name in names)


def _describe_program(manifest: Manifest, number: int, times: BenchTimes | None) -> dict[str, Any]:
    is_timed = times is not None and times.profile == number
    shapes = times.shapes if times is not None and is_timed else None
    details = describe_details(manifest, number, shapes)
    nodes = list_nodes(details, manifest, number)
    if times is not None and is_timed:
        times.add_to(nodes)
    profile = manifest.profiles[number] if number < len(manifest.profiles) else None
    return {
        "profile": number,
        "shapes": {} if profile is None else {name: list(bounds) for name, bounds in profile.shapes.items()},
        "arenas": details["arenas"],
        "num_steps": len(details["steps"]),
        "nodes": [_describe_node(node) for node in nodes],
        "blocks": _list_blocks(details),
    }


def _describe_node(node: ReportNode) -> dict[str, Any]:
    """The fields of a node that say something."""
    return {name: value for name, value in vars(node).items() if value not in (None, "", [], {}, -1)}


def _list_blocks(details: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What lies in arenas, where and from which step to which: values, and the workspaces of steps."""
    blocks = [
        _block(value["name"], value["memory"], value["offset"], value["size_bytes"], span)
        for value in details["values"]
        if value["offset"] is not None and value["size_bytes"] and (span := _span(value)) is not None
    ]
    memories = [value["memory"] for value in details["values"]]
    blocks += [
        _block(
            f"workspace of {step['name']}",
            next((memories[output] for output in step["outputs"]), ""),
            step["workspace_offset"],
            step["workspace_bytes"],
            (position, position),
        )
        for position, step in enumerate(details["steps"])
        if step["workspace_offset"] is not None and step["workspace_bytes"]
    ]
    return blocks


def _span(value: Mapping[str, Any]) -> tuple[int, int] | None:
    return None if value["first_step"] is None else (value["first_step"], value["last_step"])


def _block(name: str, memory: str, offset: int, size_bytes: int, span: tuple[int, int]) -> dict[str, Any]:
    return {"name": name, "memory": memory, "offset": offset, "bytes": size_bytes, "first": span[0], "last": span[1]}


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
