"""Looking into a plan: its layers as text or JSON, and everything in a plan file without running any code of it.

``EngineInspector`` shows as much as the build allowed (``profiling_verbosity``). ``inspect_plan`` reads a file and
shows all of it; neither plugins nor the providers of the plan are needed for that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dovetail.contract_enum import ContractEnum
from dovetail.element_types import ELEMENT_TYPES
from dovetail.errors import PlanCorruptError, PlanDeviceMismatchError, UsageError
from dovetail.escapes import escape_line
from dovetail.expr import Constant, Dim, evaluate, symbols_of
from dovetail.loggers import ErrorRecorder, IErrorRecorder
from dovetail.plan.carried import count_carried, find_carried_blobs
from dovetail.plan.container import PlanFile, verify_blob
from dovetail.plan.details.program_details import describe_details
from dovetail.plan.manifest import (
    CandidateRecord,
    KernelRecord,
    LayerRecord,
    Manifest,
    PartitionRecord,
    PluginRecord,
    ProgramRecord,
    ReportRecord,
    StepRecord,
    SymbolRecord,
    TensorRecord,
    ValueRecord,
    decode_manifest,
)
from dovetail.plan.verify.manifest_rules import verify_manifest
from dovetail.plan.workspaces import max_workspace

__all__ = ["EngineInspector", "LayerInformationFormat", "describe_table", "find_damage", "inspect_plan", "plugins_of"]

_PRECISIONS: Final = {each.name: each.label for each in ELEMENT_TYPES if each.label}
"""How layer information spells types; others are their NumPy name in capitals."""


class LayerInformationFormat(ContractEnum):
    """How an inspector writes."""

    ONELINE = 0
    JSON = 1


class EngineInspector:
    """Shows the layers of an engine, one line each or as JSON.

    Args:
        manifest: What to show. How much of it: names, everything or nothing, as the plan was built.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._verbosity = manifest.build.get("profiling_verbosity", "LAYER_NAMES_ONLY")
        self.execution_context: Any = None
        """Set one to see the program of its profile, with the shapes that its inputs have now."""
        self.error_recorder: IErrorRecorder = ErrorRecorder()

    def get_engine_information(self, format: LayerInformationFormat) -> str:  # noqa: A002 - the contract's name
        """All layers and the names of inputs and outputs."""
        layers = self._layers()
        is_shown = self._verbosity != "NONE"
        bindings = [t.name for t in (*self._manifest.inputs, *self._manifest.outputs)] if is_shown else []
        if LayerInformationFormat(format) is LayerInformationFormat.JSON:
            return json.dumps({"Layers": layers, "Bindings": bindings}, indent=1)
        if not is_shown:
            return ""
        return "\n".join(["Layers:", *map(_one_line, layers), "", "Bindings:", *map(escape_line, bindings)])

    def get_layer_information(self, layer_index: int, format: LayerInformationFormat) -> str:  # noqa: A002
        """One layer by number."""
        count = len(self._program().steps)
        if not 0 <= layer_index < count:
            raise UsageError("no such layer", expected=f"0 to {count - 1}" if count else "none", got=layer_index)
        layers = self._layers()
        if LayerInformationFormat(format) is LayerInformationFormat.JSON:
            return json.dumps(layers[layer_index], indent=1) if layers else "{}"
        return _one_line(layers[layer_index]) if layers else ""

    def _layers(self) -> list[Any]:
        program = self._program()
        if self._verbosity == "NONE":
            return []
        if self._verbosity != "DETAILED":
            return [step.name for step in program.steps]
        return _describe_layers(program, _tables(self._manifest, self._profile()), self._symbol_values(program))

    def _profile(self) -> int:
        context = self.execution_context
        return 0 if context is None else int(context.active_optimization_profile)

    def _program(self) -> ProgramRecord:
        return self._manifest.programs[self._profile()]

    def _symbol_values(self, program: ProgramRecord) -> dict[str, int]:
        """The symbols that the shapes of the context's inputs decide."""
        if self.execution_context is None:
            return {}
        shapes = {
            index: list(self.execution_context.get_tensor_shape(tensor.name))
            for index, tensor in zip(program.inputs, self._manifest.inputs, strict=True)
        }
        values = {s.name: _dim_of(s, shapes) for s in program.symbols}
        return {name: value for name, value in values.items() if value >= 0}


def _dim_of(symbol: SymbolRecord, shapes: Mapping[int, list[int]]) -> int:
    if symbol.source != "dim" or symbol.value not in shapes:
        return -1
    return shapes[symbol.value][symbol.index]


def _one_line(layer: Any) -> str:
    return escape_line(layer if isinstance(layer, str) else _layer_text(layer))


def _layer_text(layer: Any) -> str:
    inputs, outputs = (", ".join(map(_binding_text, layer[side])) for side in ("Inputs", "Outputs"))
    text = f"Layer({layer['LayerType']}): {layer['Name']}, Tactic: {layer['TacticValue']}, {inputs} -> {outputs}"
    if "Partition" in layer:
        maker = " ".join(filter(None, (layer["Provider"], layer["Partition"]["version"])))
        text = f"{text}, Provider: {maker}, Layers: [{', '.join(layer['Partition']['layers'])}]"
    if layer.get("Kernel", {}).get("tactic"):
        text = f"{text}, Kernel: {layer['Provider']} {layer['Kernel']['tactic']}"
    return f"{text}, Metadata: {layer['Metadata']}" if layer["Metadata"] else text


def _binding_text(binding: Mapping[str, Any]) -> str:
    dims = ",".join(str(dim) for dim in binding["Dimensions"])
    return f"{binding['Name']} ({binding['Format/Datatype']}[{dims}])"


# layers


def _tables(manifest: Manifest, profile: int) -> dict[str, LayerRecord]:
    return {table.name: table for table in manifest.tuning if table.profile == profile}


def _describe_layers(
    program: ProgramRecord, tables: Mapping[str, LayerRecord], symbols: Mapping[str, int]
) -> list[dict[str, Any]]:
    return [_describe_layer(step, program, tables, symbols) for step in program.steps]


def _describe_layer(
    step: StepRecord, program: ProgramRecord, tables: Mapping[str, LayerRecord], symbols: Mapping[str, int]
) -> dict[str, Any]:
    def bindings(indices: Sequence[int]) -> list[dict[str, Any]]:
        return [_describe_value(program.values[index], symbols) for index in indices if index >= 0]

    table = tables.get(step.name) if step.kind == "plugin" else None
    layer = {
        "Name": step.name,
        "LayerType": _layer_type(step),
        "Inputs": bindings(step.inputs),
        "Outputs": bindings(step.outputs),
        "TacticName": _tactic_name(step, table),
        "TacticValue": f"0x{step.tactic & 0xFFFFFFFFFFFFFFFF:016x}",
        "Metadata": (table.metadata if table is not None else None) or "",
        "Provider": step.provider,
        "WorkspaceBytes": step.workspace_bytes,
        "Tuning": [] if table is None else _describe_candidates(table),
    }
    if step.plugin is not None:
        layer["Plugin"] = _describe_plugin(step.plugin)
        layer["Metadata"] = step.plugin.metadata or layer["Metadata"]
    if step.partition is not None:
        layer["Partition"] = _describe_partition(step.partition)
    if step.kernel is not None:
        layer["Kernel"] = _describe_kernel(step.kernel)
    if step.bodies:
        layer["Bodies"] = [_describe_layers(body, tables, {}) for body in step.bodies]
    return layer


def _tactic_name(step: StepRecord, table: LayerRecord | None) -> str:
    """What its plugin or provider calls the tactic of a step; empty where it has no name."""
    if step.kernel is not None and step.kernel.tactic:
        return step.kernel.tactic
    candidates = () if table is None else table.candidates
    return next((found.name for found in candidates if found.tactic == step.tactic and found.name), "")


def _layer_type(step: StepRecord) -> str:
    return {"plugin": "PluginV3", "reformat": "Reformat", "partition": "Partition"}.get(step.kind, step.op)


def _describe_partition(partition: PartitionRecord) -> dict[str, Any]:
    return {
        "version": partition.version,
        "layers": list(partition.layers),
        "weights": dict(partition.weights),
        "payload": partition.payload,
        "code": dict(partition.code),
        "held": dict(partition.held),
        "report": _describe_report(partition.report),
        "candidates": None if partition.candidates is None else _fields(partition.candidates),
    }


def _describe_kernel(kernel: KernelRecord) -> dict[str, Any]:
    return {
        "version": kernel.version,
        "tactic": kernel.tactic,
        "payload": kernel.payload,
        "code": dict(kernel.code),
    }


def _describe_report(report: ReportRecord | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {"nodes": [_fields(node) for node in report.nodes], "refusals": dict(report.refusals)}


def _describe_value(value: ValueRecord, symbols: Mapping[str, int]) -> dict[str, Any]:
    precision = _PRECISIONS.get(value.dtype, value.dtype.upper())
    return {
        "Name": value.name,
        "Dimensions": [_evaluate(dim, symbols) for dim in value.dims or ()],
        "Format/Datatype": f"{value.format} {precision}",
        "Shape": None if value.dims is None else [_dim_text(dim) for dim in value.dims],
    }


def _evaluate(dim: Dim, symbols: Mapping[str, int]) -> int:
    """A dimension as a number; -1 where it is not known."""
    if dim is None or not symbols_of(dim) <= symbols.keys():
        return -1
    try:
        return evaluate(dim, symbols)
    except UsageError:  # a division by zero: shapes for which the plan has no answer
        return -1


def _describe_candidate(candidate: CandidateRecord, chosen_us: float | None) -> dict[str, Any]:
    slower = None if candidate.time_us is None or not chosen_us else 100.0 * (candidate.time_us / chosen_us - 1.0)
    return {
        "name": candidate.name,
        "formats": candidate.formats,
        "tactic": candidate.tactic,
        "time_us": candidate.time_us,
        "low_us": candidate.low_us,
        "high_us": candidate.high_us,
        "rounds": candidate.rounds,
        "slower_percent": slower,
        "status": candidate.status,
        "reason": candidate.reason,
        "chosen": candidate.chosen,
    }


def _describe_candidates(table: LayerRecord) -> list[dict[str, Any]]:
    chosen_us = next((candidate.time_us for candidate in table.candidates if candidate.chosen), None)
    return [_describe_candidate(candidate, chosen_us) for candidate in table.candidates]


def _describe_plugin(plugin: PluginRecord) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "version": plugin.version,
        "namespace": plugin.namespace,
        "fields": [{"name": field.name, "type": field.type, "size": field.size} for field in plugin.fields],
    }


def plugins_of(manifest: Manifest) -> list[tuple[str, str, str]]:
    """Name, version and namespace of every plugin that loading the plan needs."""
    found: dict[tuple[str, str, str], None] = {}
    _visit_steps(manifest.programs, lambda step: found.update(_plugin_key(step)))
    return sorted(found)


def _plugin_key(step: StepRecord) -> dict[tuple[str, str, str], None]:
    if step.plugin is None or step.kernel is not None:  # a kernel in the plan needs no creator
        return {}
    return {(step.plugin.name, step.plugin.version, step.plugin.namespace): None}


def _visit_steps(programs: Sequence[ProgramRecord], visit: Callable[[StepRecord], object]) -> None:
    for program in programs:
        for step in program.steps:
            visit(step)
            _visit_steps(step.bodies, visit)


# files


def inspect_plan(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Everything a plan file says, as plain data, with every digest checked.

    No code of the plan runs. A damaged blob is listed under ``digests``; a file that breaks any other rule is refused.

    Raises:
        PlanError: The file cannot be read, or is no plan that this version reads.
    """
    with PlanFile.open(path) as file:
        manifest = decode_manifest(file.manifest)
        problems = _verify(manifest, file)
        damaged = find_damage(manifest, file)
        return {
            "path": os.fspath(path),
            "size_bytes": file.size_bytes,
            "name": manifest.name,
            "producer": manifest.producer,
            "format_version": "{}.{}".format(*manifest.format_version),
            "open": manifest.open,
            "strongly_typed": manifest.strongly_typed,
            "problems": problems,
            "digests": {"ok": not damaged, "checked": len(file.blobs), "wrong": damaged},
            "devices": [_fields(device) for device in manifest.devices],
            "inputs": [_describe_tensor(tensor) for tensor in manifest.inputs],
            "outputs": [_describe_tensor(tensor) for tensor in manifest.outputs],
            "profiles": [_describe_profile(profile) for profile in manifest.profiles],
            "programs": [_describe_program(program, manifest, i) for i, program in enumerate(manifest.programs)],
            "plugins": [dict(zip(("name", "version", "namespace"), key, strict=True)) for key in plugins_of(manifest)],
            "libraries": [_fields(library) for library in manifest.libraries],
            "blobs": [_describe_blob(name, manifest, file) for name in manifest.blobs],
            "carried": _describe_carried(manifest, file),
            "refit": None if manifest.refit is None else _fields(manifest.refit),
            "packed": {blob: _fields(record) for blob, record in manifest.packed.items()},
            "tuning": [describe_table(table) for table in manifest.tuning],
            "build": dict(manifest.build),
            "notes": [_fields(note) for note in manifest.notes],
            "refusals": [_fields(refusal) for refusal in manifest.refusals],
            "passes": [_fields(record) for record in manifest.passes],
            "phases": [_fields(phase) for phase in manifest.phases],
            "precision": [_fields(record) for record in manifest.precision],
        }


def _verify(manifest: Manifest, file: PlanFile) -> list[str]:
    """Rules that do not hold but let the plan be shown: only that a provider is missing here."""
    try:
        verify_manifest(manifest, file)
    except PlanDeviceMismatchError as error:
        return [str(error).partition("\n")[0]]
    return []


def find_damage(manifest: Manifest, file: PlanFile) -> list[str]:
    """What does not match its digest: names of blobs, and padding that is not zero."""
    damaged = []
    for name, record in manifest.blobs.items():
        if record.stripped:
            continue
        try:
            verify_blob(name, file.blob(name), record.algorithm, record.digest)
        except PlanCorruptError:
            damaged.append(name)
    try:
        file.verify_padding()
    except PlanCorruptError as error:
        damaged.append(error.where or "padding")
    return damaged


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _describe_tensor(tensor: TensorRecord) -> dict[str, Any]:
    shown = {name: value for name, value in _fields(tensor).items() if name not in ("scale", "shapes")}
    shown["dims"] = None if tensor.dims is None else [_dim_text(dim) for dim in tensor.dims]
    shown["max_dims"] = None if tensor.max_dims is None else [_dim_text(dim) for dim in tensor.max_dims]
    return shown


def _dim_text(dim: Dim) -> int | str | None:
    return dim.value if isinstance(dim, Constant) else None if dim is None else str(dim)


def _describe_profile(profile: Any) -> dict[str, Any]:
    return {
        kind: {name: dict(zip(("min", "opt", "max"), bounds, strict=True)) for name, bounds in entries.items()}
        for kind, entries in (("shapes", profile.shapes), ("values", profile.values))
    }


def _describe_program(program: ProgramRecord, manifest: Manifest, index: int) -> dict[str, Any]:
    return {
        "profile": index,
        "arena_bytes": program.arena_bytes,
        "workspace_bytes": max_workspace(program),
        "num_values": len(program.values),
        "layers": _describe_layers(program, _tables(manifest, index), {}),
        **describe_details(manifest, index),
    }


def _describe_blob(name: str, manifest: Manifest, file: PlanFile) -> dict[str, Any]:
    info = file.blobs.get(name)
    return {"name": name, **_fields(manifest.blobs[name]), "size_bytes": 0 if info is None else info.size_bytes}


def _describe_carried(manifest: Manifest, file: PlanFile) -> dict[str, int]:
    """The candidates for 'dovetail tune': of how many partitions, and what the plan is larger by."""
    blobs = find_carried_blobs(manifest)
    size = sum(file.blobs[name].size_bytes for name in blobs if name in file.blobs)
    return {"partitions": count_carried(manifest), "blobs": len(blobs), "size_bytes": size}


def describe_table(table: LayerRecord) -> dict[str, Any]:
    """The tuner's table of one layer as plain data."""
    return {
        "layer": table.name,
        "profile": table.profile,
        "metadata": table.metadata,
        "candidates": _describe_candidates(table),
    }
