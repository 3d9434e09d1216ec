"""``dovetail inspect``: what is in a plan or a model, read without running any code of it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.model_summary import show_model, show_nodes
from dovetail.cli.options import add_plugins, finish_command
from dovetail.cli.precision import precision_texts
from dovetail.cli.screen import Screen, format_bytes
from dovetail.cli.settings import read_names, require_providers
from dovetail.cli.shapes import format_shape
from dovetail.cli.targets import StderrLogger, is_plan, make_registry, require_file
from dovetail.cli.tuning import show_tuning
from dovetail.errors import PlanError, UsageError

__all__ = ["declare", "run"]

_SHOWN: Final = 5
"""Reasons that a summary tells."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.add_argument("target", metavar="PLAN|MODEL", help="a plan, or an ONNX model")
    parser.add_argument(
        "--layers",
        action="store_true",
        help="show every step with its tensors, formats and tactic; of a model every node and what would run it",
    )
    parser.add_argument("--tuning", action="store_true", help="show everything that the tuner tried, and why it chose")
    parser.add_argument("--providers", metavar="A,B", help="of a model: back ends in order of preference")
    parser.add_argument("--override", metavar="OP[,OP]", help="of a model: operators to take from plugins")
    add_plugins(parser)


def run(args: argparse.Namespace) -> Reply:
    """Read the file."""
    path = require_file(args.target)
    if not is_plan(path):
        return _inspect_model(path, args)
    for option in ("providers", "override", "plugins"):
        if getattr(args, option):
            raise UsageError("this is for models: a plan is built already", where=f"--{option}", got=f"'{path}'")
    return _inspect_plan(args)


def _inspect_model(path: Path, args: argparse.Namespace) -> Reply:
    from dovetail.tools.model_report import describe_model

    if args.tuning:
        raise UsageError("a model is not tuned", where="--tuning", expected="a plan", got=f"'{path}'")
    providers = None if args.providers is None else read_names(args.providers, "--providers")
    require_providers(providers or (), where="--providers")
    document = describe_model(
        path,
        providers=providers,
        registry=make_registry(args.plugins),
        override=() if args.override is None else read_names(args.override, "--override"),
        logger=StderrLogger(),
    )

    def show(document: Document, screen: Screen) -> None:
        show_model(document, screen)
        if args.layers:
            show_nodes(document["placement"], screen)

    return Reply(document=document, show=show)


def _inspect_plan(args: argparse.Namespace) -> Reply:
    from dovetail.plan.inspect import inspect_plan

    document = inspect_plan(args.target)

    def show(document: Document, screen: Screen) -> None:
        _show_summary(document, screen)
        if args.layers:
            _show_layers(document, screen)
        if args.tuning:
            show_tuning(document["tuning"], screen)

    return Reply(document=document, show=show, exit_code=0 if document["digests"]["ok"] else PlanError.exit_code)


def _show_summary(document: Document, screen: Screen) -> None:
    digests = document["digests"]
    damage = f"DAMAGED: {', '.join(digests['wrong'])}"
    screen.facts(
        [
            ("plan", f"{document['path']}, {format_bytes(document['size_bytes'])}"),
            ("network", f"'{document['name']}', {'strongly' if document['strongly_typed'] else 'weakly'} typed"),
            ("made by", f"{document['producer']}, manifest {document['format_version']}"),
            *(("tuned on", f"{d['provider']} {d['version']}: {d['name']}") for d in document["devices"]),
            ("digests", f"ok, {digests['checked']} blob(s)" if digests["ok"] else damage),
            *(("problem", problem) for problem in document["problems"]),
            *(("program", _program_text(program, document)) for program in document["programs"]),
            *(("plugin", _plugin_text(plugin)) for plugin in document["plugins"]),
            *(("library", f"'{lib['name']}' is carried in the plan (host code)") for lib in document["libraries"]),
            ("weights", _blobs_text(document)),
            *(("packed", text) for text in _packed_texts(document["packed"])),
            *(("code", text) for text in _code_texts(document["blobs"])),
            *(("candidates", text) for text in _carried_texts(document["carried"])),
            ("refit", _refit_text(document["refit"])),
            *(("precision", text) for text in precision_texts(document["precision"])),
            *(("placed", text) for text in _placed_texts(document["notes"])),
            *(
                ("note", note["text"].splitlines()[0].rstrip(":"))
                for note in document["notes"]
                if note["text"] and not note["layer"]
            ),
        ]
    )
    screen.title("Tensors")
    _show_tensors(document, screen)


def _program_text(program: Mapping[str, Any], document: Document) -> str:
    kinds = Counter(_kind(layer) for layer in program["layers"])
    steps = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    name = "any shape" if document["open"] else f"profile {program['profile']}"
    memory = f"arena {format_bytes(program['arena_bytes'])}, workspace {format_bytes(program['workspace_bytes'])}"
    return f"{name}: {len(program['layers'])} step(s) ({steps}), {memory}"


def _kind(layer: Mapping[str, Any]) -> str:
    if "Plugin" in layer:
        return "plugin"
    if "Partition" in layer:
        return "partition"
    if "Bodies" in layer:
        return "control"
    return "reformat" if layer["LayerType"] == "Reformat" else "kernel"


def _plugin_text(plugin: Mapping[str, str]) -> str:
    place = f", namespace '{plugin['namespace']}'" if plugin["namespace"] else ""
    return f"'{plugin['name']}' version '{plugin['version']}'{place}"


def _blobs_text(document: Document) -> str:
    weights = [blob for blob in document["blobs"] if blob["kind"] == "weights"]
    stripped = sum(blob["stripped"] for blob in weights)
    held = sum(len(layer["Partition"]["held"]) for layer in _all_layers(document) if "Partition" in layer)
    parts = [f"{len(weights)} tensor(s), {format_bytes(sum(blob['size_bytes'] for blob in weights))}"]
    parts += [f"{stripped} stripped"] if stripped else []
    parts += [f"{held} more inside partitions"] if held else []
    return ", ".join(parts)


def _all_layers(document: Document) -> Iterator[Mapping[str, Any]]:
    todo = [layer for program in document["programs"] for layer in program["layers"]]
    while todo:
        layer = todo.pop()
        yield layer
        todo += [inner for body in layer.get("Bodies", ()) for inner in body]


def _placed_texts(notes: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many layers are not with the first provider, by the reason."""
    counts = Counter((note["provider"], note["text"]) for note in notes if note["layer"])
    texts = [f"{count} layer(s) on {provider}, as {text}" for (provider, text), count in counts.most_common(_SHOWN)]
    return texts + ([f"{len(counts) - _SHOWN} more reasons; --layers has all"] if len(counts) > _SHOWN else [])


def _packed_texts(packed: Mapping[str, Mapping[str, Any]]) -> list[str]:
    counts = Counter(record["provider"] for record in packed.values())
    return [f"{count} tensor(s) by {provider}" for provider, count in sorted(counts.items())]


def _code_texts(blobs: Sequence[Mapping[str, Any]]) -> list[str]:
    code = [blob for blob in blobs if blob["kind"] == "kernel"]
    size = format_bytes(sum(blob["size_bytes"] for blob in code))
    return [f"{len(code)} piece(s) of device code, {size}"] if code else []


def _carried_texts(carried: Mapping[str, int]) -> list[str]:
    size = format_bytes(carried["size_bytes"])
    text = f"carried for {carried['partitions']} partition(s), {size} that no run reads; see 'dovetail tune'"
    return [text] if carried["partitions"] else []


def _refit_text(refit: Mapping[str, Any] | None) -> str:
    return (
        "no" if refit is None else f"{len(refit['weights'])} weight(s) can be replaced, {len(refit['excluded'])} cannot"
    )


def _place_text(tensor: Mapping[str, Any]) -> str:
    return tensor["format"] if tensor["alias"] is None else f"{tensor['format']}, in the memory of '{tensor['alias']}'"


def _show_tensors(document: Document, screen: Screen) -> None:
    rows = [
        (side, t["name"], t["type"] or t["dtype"], _dims_text(t["dims"]), _place_text(t))
        for side in ("input", "output")
        for t in document[f"{side}s"]
    ]
    screen.table(("", "name", "type", "shape", "format"), rows)
    ranges = [(name, text) for name, text in _ranges(document["profiles"]).items() if text]
    if ranges:
        screen.title("Profiles (min:opt:max)")
        screen.table(("name", "bounds"), ranges, prose=(1,))


def _dims_text(dims: Iterable[Any] | None) -> str:
    if dims is None:
        return "?"
    return f"({', '.join('?' if dim is None else str(dim) for dim in dims)})"


def _ranges(profiles: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """For each tensor the bounds of its shape in each profile, and of its contents."""
    texts: dict[str, list[str]] = {}
    for profile in profiles:
        for kind, prefix in (("shapes", ""), ("values", "values ")):
            for name, bounds in profile[kind].items():
                text = ":".join(format_shape(bounds[key]) for key in ("min", "opt", "max"))
                texts.setdefault(name, []).append(prefix + text)
    return {name: "; ".join(found) for name, found in texts.items()}


def _show_layers(document: Document, screen: Screen) -> None:
    context = _PlanTexts(document)
    for program in document["programs"]:
        screen.title("Steps" if document["open"] else f"Steps of profile {program['profile']}")
        _show_steps(program["layers"], "", context, screen)


def _show_steps(layers: Iterable[Mapping[str, Any]], prefix: str, texts: _PlanTexts, screen: Screen) -> None:
    """Each step with what goes in and comes out; the steps of bodies are numbered under their own."""
    for index, layer in enumerate(layers):
        number = f"{prefix}{index}"
        screen.entry(f"{number}  {layer['Name']}", texts.facts(layer))
        for body in layer.get("Bodies", ()):
            _show_steps(body, f"{number}.", texts, screen)


class _PlanTexts:
    """What is told of a step, with what the rest of the plan knows of it."""

    def __init__(self, document: Document) -> None:
        self._blobs = {blob["name"]: blob for blob in document["blobs"]}
        self._types = {row["layer"]: row for row in document["precision"]}
        self._reasons = {note["layer"]: note["text"] for note in document["notes"] if note["layer"]}

    def facts(self, layer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Names and values, in the order they are read."""
        yield "type", _type_text(layer)
        tactic = _tactic_text(layer)
        if tactic:
            yield "tactic", tactic
        yield from (("in", _binding_text(binding)) for binding in layer["Inputs"])
        yield from (("out", _binding_text(binding)) for binding in layer["Outputs"])
        partition = layer.get("Partition", {})
        yield from (
            ("weight", f"{name}: {self._blob_text(blob)}") for name, blob in partition.get("weights", {}).items()
        )
        yield from (("weight", f"{name}: {kind}, in the payload") for name, kind in partition.get("held", {}).items())
        yield from (("layer", text) for text in _parts(partition))
        yield from (("precision", text) for text in self._precisions((layer["Name"], *partition.get("layers", ()))))
        yield "why", self._why(layer, partition.get("layers", ()))

    def _blob_text(self, name: str) -> str:
        blob = self._blobs.get(name)
        if blob is None:
            return name
        stripped = ", stripped" if blob["stripped"] else ""
        return f"{blob['dtype']} {format_shape(blob['shape'])}, {format_bytes(blob['size_bytes'])}{stripped}"

    def _precisions(self, names: Sequence[str]) -> Iterator[str]:
        """The types that the layers of a step were given, with the reason where there is one."""
        for row in (self._types[name] for name in dict.fromkeys(names) if name in self._types):
            yield f"{row['layer']} ({row['op']}): {row['type']}" + (f", {row['reason']}" if row["reason"] else "")

    def _why(self, layer: Mapping[str, Any], layers: Sequence[str]) -> str:
        """Why the step is with its provider."""
        found = [self._reasons[name] for name in (layer["Name"], *layers) if name in self._reasons]
        if found:
            return f"{layer['Provider']}, as {'; '.join(dict.fromkeys(found))}"
        if "Plugin" in layer:
            return f"{layer['Provider']}, where the plugin runs"
        if layer["LayerType"] in ("Reformat", "Copy"):
            return f"{layer['Provider']}, between steps that want other formats or memory"
        return f"{layer['Provider']}, the first provider that takes it"


def _parts(partition: Mapping[str, Any]) -> list[str]:
    """What a partition does, by its report; else the layers in it, where they are several."""
    report = partition.get("report")
    if report is not None and report["nodes"]:
        return [" ".join(filter(None, (node["name"], f"({node['op']})", node["tactic"]))) for node in report["nodes"]]
    layers = partition.get("layers", ())
    return list(layers) if len(layers) > 1 else []


def _type_text(layer: Mapping[str, Any]) -> str:
    if "Plugin" in layer:
        return f"{layer['Plugin']['name']} (plugin)"
    if "Partition" in layer:
        return f"{layer['LayerType']} ({' '.join(filter(None, (layer['Provider'], layer['Partition']['version'])))})"
    return str(layer["LayerType"])


def _tactic_text(layer: Mapping[str, Any]) -> str:
    """The tactic by name and number; empty where there was nothing to choose."""
    number = int(layer["TacticValue"], 16)
    return " ".join(filter(None, (str(number) if number else "", layer["TacticName"])))


def _binding_text(binding: Mapping[str, Any]) -> str:
    return f"{binding['Name']}: {binding['Format/Datatype']} {_dims_text(binding['Shape'])}"
