"""ONNX models into networks: read, checked as a whole, functions expanded, unknown operators made plugins, typed.

A model is rejected with one error that lists everything found wrong. No code from a file is run, and no file outside
the model's folder is read.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import onnx
import onnx_ir as ir

from dovetail.errors import DovetailError, ModelError, UsageError
from dovetail.loggers import ILogger, Severity
from dovetail.network.emission import DOVETAIL_DOMAIN
from dovetail.network.onnx_check import EXTERNAL_KEYS, check_proto
from dovetail.network.onnx_functions import inline_functions
from dovetail.network.onnx_plugins import PluginImport, PluginRequest
from dovetail.network.onnx_schema import SchemaCheck
from dovetail.network.onnx_shapes import infer_shapes
from dovetail.network.plugins import PLUGIN_DOMAIN, entry_of
from dovetail.network.problems import Problems, quote
from dovetail.network.symbols import rename_dims
from dovetail.network.tensors import NO_FOLDER, load_tensors
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry

__all__ = ["import_model"]

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model


def import_model(
    source: Source,
    *,
    registry: PluginRegistry | None = None,
    logger: ILogger | None = None,
    override: Collection[str] = (),
) -> ir.Model:
    """Read a model and make it ready to build.

    Initializers keep their names, which is how weights are named for refitting. An input that has an initializer is a
    weight. Dimension names become plain identifiers.

    Args:
        source: A path, the bytes of a file, or a model in memory, which is left as it is.
        registry: Where plugins for unknown operators are looked up; the global registry without one.
        logger: Where warnings go; the registry's logger without one.
        override: Operators that are plugins although ONNX or a model function has them.

    Raises:
        ModelError: The model is wrong; ``UnsupportedOpError`` when it is right but has what is not supported.
        PluginError: A plugin could not be made.
    """
    registry = registry or get_plugin_registry()
    logger = logger or registry.logger
    try:
        model = _load(source)
        return _prepare(model, registry, logger, override)
    except RecursionError as error:
        raise ModelError("the model is nested too deeply", where="model") from error


def _prepare(model: ir.Model, registry: PluginRegistry, logger: ILogger, override: Collection[str]) -> ir.Model:
    problems = Problems()
    if "ai.onnx" in model.opset_imports:
        model.opset_imports.setdefault("", model.opset_imports.pop("ai.onnx"))  # two names of one operator set
    plugins = PluginImport(registry, logger, override, problems)
    _drop_default_inputs(model.graph, logger)
    inline_functions(model, plugins.is_requested, problems)
    _name_nodes(model)
    requests = _check_nodes(model, plugins, problems)
    for value in model.graph.inputs:
        if value.dtype is None:
            problems.add("it has no element type", where=f"input {quote(value.name)}")
    problems.raise_if_any()
    plugins.convert(requests, _next_index(model))
    problems.raise_if_any()
    if any(entry_of(node) is not None for node in model.graph.all_nodes()):
        model.opset_imports[PLUGIN_DOMAIN] = 1
    rename_dims(model)
    infer_shapes(model, logger, problems)
    problems.raise_if_any()
    return model


# reading


def _load(source: Source) -> ir.Model:
    problems = Problems()
    root: str | os.PathLike[str] | None = None
    if isinstance(source, ir.Model):
        model = _copy(source)
    elif isinstance(source, onnx.ModelProto):
        model = _model_from_proto(source, problems, root=None)
    elif isinstance(source, bytes | bytearray | memoryview):
        model = _model_from_proto(_parse(bytes(source)), problems, root=None)
    elif isinstance(source, str | os.PathLike):
        root = Path(source).parent
        model = _model_from_proto(_parse(_read(Path(source))), problems, root=root)
    else:
        raise UsageError(
            "this is no model",
            where="import_model",
            expected="a path, bytes, an onnx.ModelProto or an onnx_ir.Model",
            got=type(source).__name__,
        )
    load_tensors(model, root, problems)
    problems.raise_if_any()
    return model


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or error
        raise ModelError(f"the file cannot be read: {text}", where=f"model {quote(path, 200)}") from error


def _parse(data: bytes) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # the parser has error classes of its own
        raise ModelError(
            "the bytes are not an ONNX model",
            where="model",
            got=f"{len(data)} bytes",
            fix="check that the file is complete",
        ) from error
    return model


def _model_from_proto(proto: onnx.ModelProto, problems: Problems, *, root: os.PathLike[str] | None) -> ir.Model:
    try:
        external = check_proto(proto, problems)
        _settle_external(external, problems, root)
        problems.raise_if_any()
        model = ir.from_proto(proto)
    except DovetailError:
        raise
    except Exception as error:  # the reader fails in many ways on bytes that only look like a model
        raise ModelError(f"the model cannot be read: {_root_cause(error)}", where="model") from error
    if not model.opset_imports:
        model.opset_imports[""] = 1  # what files meant before they had to say it
    return model


def _settle_external(tensors: list[onnx.TensorProto], problems: Problems, root: os.PathLike[str] | None) -> None:
    """Refuse weights in other files when there is no folder; otherwise keep only the keys that the format defines."""
    for tensor in tensors:
        if root is None:
            problems.add(
                NO_FOLDER,
                where=f"tensor {quote(tensor.name)}",
                fix="pass the path of the model, or save it with its weights inside",
            )
        else:
            known = {entry.key: entry.value for entry in tensor.external_data if entry.key in EXTERNAL_KEYS}
            del tensor.external_data[:]
            for key, value in known.items():
                tensor.external_data.add(key=key, value=value)


def _copy(model: ir.Model) -> ir.Model:
    try:
        return model.clone()
    except Exception as error:  # a graph that is not closed or not sorted fails somewhere inside
        raise ModelError(f"the model is not well formed: {_root_cause(error)}", where="model") from error


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"


# preparing


def _drop_default_inputs(graph: ir.Graph, logger: ILogger) -> None:
    """An input with an initializer is a weight: old files list every weight among the inputs."""
    names = [value.name for value in graph.inputs if value.name in graph.initializers]
    for value in [value for value in graph.inputs if value.name in graph.initializers]:
        graph.inputs.remove(value)
    if names:
        logger.log(Severity.VERBOSE, f"{len(names)} input(s) have initializers and are weights: {names[:5]}")


def _name_nodes(model: ir.Model) -> None:
    """Every node gets a name that no other has; the ones in the file come first."""
    nodes = list(model.graph.all_nodes())
    taken: set[str] = set()
    unnamed = []
    for node in nodes:
        if not node.name or node.name in taken:
            unnamed.append(node)
        else:
            taken.add(node.name)
    counts: dict[str, int] = {}
    for node in unnamed:
        base = node.name or node.op_type
        name = base
        while name in taken:
            counts[base] = counts.get(base, 0) + 1
            name = f"{base}_{counts[base]}"
        node.name = name
        taken.add(name)


def _check_nodes(model: ir.Model, plugins: PluginImport, problems: Problems) -> list[PluginRequest]:
    """Sort nodes into operators, which are checked, and plugins, which are looked up."""
    check = SchemaCheck(model.opset_imports, problems)
    unknown = []
    for node in model.graph.all_nodes():
        if entry_of(node) is not None or node.domain == DOVETAIL_DOMAIN:
            continue
        if plugins.is_requested(node) or check.schema_of(node) is None:
            unknown.append(node)
        else:
            check.check(node)
    return plugins.find(unknown, model.opset_imports)


def _next_index(model: ir.Model) -> int:
    """Plugins are numbered through a model; one that came from the network API has some already."""
    used = [node.attributes["plugin"].as_int() for node in model.graph.all_nodes() if entry_of(node) is not None]
    return max(used, default=-1) + 1
