"""What a plan says of itself, for people: its tensors, steps, tuning and notes as data, as text and in a notebook."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail import markup
from dovetail._doors import open_door
from dovetail.errors import UsageError
from dovetail.escapes import escape_line
from dovetail.expr import Constant, Dim, Symbol
from dovetail.files import write_file
from dovetail.plan.container import PlanFile
from dovetail.plan.inspect import describe_table
from dovetail.plan.manifest import CandidateRecord, LayerRecord, Manifest, StepRecord, TensorRecord
from dovetail.units import format_bytes, format_time

__all__ = ["EngineReport", "TuningTable", "show_engine", "tensor_text"]


@dataclass(frozen=True, repr=False)
class TuningTable:
    """What the tuner tried for each layer, what it chose and why; ``engine.tuning``."""

    tables: tuple[LayerRecord, ...]

    def __len__(self) -> int:
        return len(self.tables)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_list())

    def to_list(self) -> list[dict[str, Any]]:
        """Each layer with its candidates, as plain data."""
        return [describe_table(table) for table in self.tables]

    def __repr__(self) -> str:
        candidates = sum(len(table.candidates) for table in self.tables)
        return f"<TuningTable of {len(self.tables)} layer(s), {candidates} candidate(s)>"

    def _repr_html_(self) -> str:
        if not self.tables:
            return markup.line("Nothing was tuned: every layer has one way to run.")
        rows = [
            (*_layer_cells(table, index), *_candidate_cells(candidate))
            for table in self.tables
            for index, candidate in enumerate(table.candidates)
        ]
        headers = ("layer", "profile", "", "candidate", "formats", "time", "status", "reason")
        return markup.table(headers, rows, right=(1, 5))


def _layer_cells(table: LayerRecord, index: int) -> tuple[object, object]:
    """The layer, once for all its candidates."""
    return ("", "") if index else (table.name, table.profile)


def _candidate_cells(candidate: CandidateRecord) -> tuple[object, ...]:
    name = candidate.name or f"tactic {candidate.tactic}"
    formats = ", ".join(candidate.formats)
    mark = "✓" if candidate.chosen else ""
    return mark, name, formats, format_time(candidate.time_us), candidate.status, candidate.reason or ""


@dataclass(frozen=True, repr=False)
class EngineReport:
    """Everything that a plan says of itself; ``engine.report()``. A notebook shows it as a page."""

    manifest: Manifest
    file: PlanFile | None = field(default=None, compare=False)
    """The plan that it is of; a page is drawn from it."""

    @property
    def tuning(self) -> TuningTable:
        """What the tuner tried."""
        return TuningTable(tuple(self.manifest.tuning))

    def page(self) -> str:
        """The page of ``dovetail report``: one HTML file that shows every layer and reads nothing from anywhere.

        Raises:
            UsageError: The report is of a manifest alone.
        """
        if self.file is None:
            raise UsageError("a page is drawn from a plan", where="report", fix="take the report of an engine")
        return str(open_door("draw_report")(self.file, f"{self.manifest.name}.plan"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file.

        Raises:
            UsageError: The file cannot be written.
            ResourceError: The disk is full.
        """
        write_file(Path(path), self.page().encode(), option="report")

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, ready for JSON."""
        manifest = self.manifest
        return {
            "name": manifest.name,
            "producer": manifest.producer,
            "open": manifest.open,
            "devices": [{"provider": d.provider, "name": d.name, "version": d.version} for d in manifest.devices],
            "inputs": [_describe_io(tensor) for tensor in manifest.inputs],
            "outputs": [_describe_io(tensor) for tensor in manifest.outputs],
            "steps": [_describe_step(step) for step in manifest.programs[0].steps],
            "arena_bytes": [program.arena_bytes for program in manifest.programs],
            "tuning": self.tuning.to_list(),
            "notes": [note.text for note in manifest.notes if note.text],
        }

    def __repr__(self) -> str:
        return escape_line(f"<EngineReport of {_title(self.manifest)}>")

    def __str__(self) -> str:
        tensors = (*self.manifest.inputs, *self.manifest.outputs)
        lines = [_title(self.manifest), *_facts(self.manifest), *map(tensor_text, tensors)]
        return "\n".join(map(escape_line, lines))

    def _repr_html_(self) -> str:
        manifest = self.manifest
        parts = [*_engine_parts(manifest), *(markup.line(fact) for fact in _facts(manifest))]
        parts.append(markup.fold(f"Steps ({len(manifest.programs[0].steps)})", _steps_table(manifest)))
        parts.append(markup.fold(f"Tuning ({len(manifest.tuning)})", self.tuning._repr_html_()))
        notes = [note for note in manifest.notes if note.text]
        if notes:
            rows = [(note.layer, note.provider, note.text) for note in notes]
            parts.append(markup.fold(f"Notes ({len(notes)})", markup.table(("layer", "provider", "note"), rows)))
        return markup.join(parts)


def show_engine(manifest: Manifest) -> str:
    """What a notebook shows of an engine: its tensors, and the steps behind a click."""
    steps = markup.fold(f"Steps ({len(manifest.programs[0].steps)})", _steps_table(manifest))
    return markup.join([*_engine_parts(manifest), steps])


def _title(manifest: Manifest) -> str:
    return f"Engine '{manifest.name}': {len(manifest.programs[0].steps)} step(s) on {_providers_text(manifest)}"


def _providers_text(manifest: Manifest) -> str:
    counts = Counter(step.provider for step in manifest.programs[0].steps if step.provider)
    used = [f"{name} ({count})" for name, count in counts.items()]
    return ", ".join(used) or ", ".join(device.provider for device in manifest.devices)


def _engine_parts(manifest: Manifest) -> list[str]:
    note = f"{len(manifest.programs[0].steps)} step(s) on {_providers_text(manifest)}; {_shapes_text(manifest)}"
    tensors = [("input", tensor) for tensor in manifest.inputs] + [("output", tensor) for tensor in manifest.outputs]
    rows = [(side, t.name, t.type or t.dtype, shape_text(t), t.memory or "host") for side, t in tensors]
    title = f"Engine '{manifest.name}'"
    return [markup.heading(title, note), markup.table(("", "name", "type", "shape", "memory"), rows)]


def _shapes_text(manifest: Manifest) -> str:
    return "any shape" if manifest.open else f"{len(manifest.profiles)} profile(s)" if manifest.profiles else "fixed"


def _facts(manifest: Manifest) -> list[str]:
    devices = [f"built on {d.provider} {d.version}: {d.name}" for d in manifest.devices]
    arenas = ", ".join(format_bytes(program.arena_bytes) for program in manifest.programs)
    return [f"made by {manifest.producer}", *devices, f"arena {arenas}"]


def _steps_table(manifest: Manifest) -> str:
    rows = [
        (index, step.name, step.op or step.kind, step.provider, _tactic_text(step, manifest.tuning), _layers_text(step))
        for index, step in enumerate(manifest.programs[0].steps)
    ]
    return markup.table(("", "step", "operator", "provider", "tactic", "layers"), rows, right=(0,))


def _layers_text(step: StepRecord) -> str:
    return str(len(step.partition.layers)) if step.partition is not None else ""


def _tactic_text(step: StepRecord, tables: Sequence[LayerRecord]) -> str:
    chosen = [c for table in tables if table.name == step.name for c in table.candidates if c.chosen]
    return (chosen[0].name if chosen else "") or (str(step.tactic) if step.tactic else "")


def _describe_step(step: StepRecord) -> dict[str, Any]:
    layers = list(step.partition.layers) if step.partition is not None else []
    return {"name": step.name, "kind": step.kind, "op": step.op, "provider": step.provider, "layers": layers}


def _describe_io(tensor: TensorRecord) -> dict[str, Any]:
    return {"name": tensor.name, "type": tensor.type or tensor.dtype, "shape": shape_text(tensor)}


def tensor_text(tensor: TensorRecord) -> str:
    """An input or output in a line."""
    return f"{tensor.name}: {tensor.type or tensor.dtype}{shape_text(tensor)}"


def shape_text(tensor: TensorRecord) -> str:
    """The dims: numbers, names that the model's author gave, and ? for the rest; [...] when the rank is not known."""
    if tensor.dims is None:
        return "" if tensor.type else "[...]"
    return f"[{', '.join(map(_dim_text, tensor.dims))}]"


def _dim_text(dim: Dim) -> str:
    is_named = isinstance(dim, Constant) or (isinstance(dim, Symbol) and not dim.name.startswith("_"))
    return str(dim) if is_named else "?"
