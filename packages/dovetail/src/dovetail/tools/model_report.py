"""What a model is, and what would run it where, asked without building anything.

Operators are counted as the file has them. Who would run them is asked of the model as it is imported, with functions
expanded and old opsets raised, before any pass; where an operator is nobody's, of the model as it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from dovetail.build.assign.support import PLUGIN, Support, find_support
from dovetail.errors import UnsupportedOpError
from dovetail.loggers import ILogger
from dovetail.network.importer.importer import import_model
from dovetail.network.importer.kernels import find_kernel_for
from dovetail.network.plugins import entry_of
from dovetail.network.value_types import object_type
from dovetail.plugin.registry import PluginRegistry
from dovetail.provider.defaults import default_providers
from dovetail.tools.sides import read_source

__all__ = ["describe_model"]


def describe_model(
    path: Path,
    *,
    providers: Sequence[str] | None = None,
    registry: PluginRegistry | None = None,
    override: Collection[str] = (),
    logger: ILogger | None = None,
) -> dict[str, Any]:
    """Everything about a model as plain data.

    Args:
        path: The file.
        providers: Back ends in order of preference, as for a build.
        registry: Where plugins are looked up.
        override: Operators that are plugins although ONNX has them.
        logger: Where messages of the import go.

    Raises:
        ModelError: It is no model, or is damaged.
    """
    raw = read_source(path)
    names = list(default_providers() if providers is None else providers)
    model, problem = _import(path, raw, names, registry, override, logger)
    placed = find_support(model, providers=names, registry=registry, override=override)
    return {
        "path": str(path),
        "size_bytes": path.stat().st_size,
        **_describe_file(raw),
        "inputs": [_describe_value(value) for value in raw.graph.inputs if value.name not in raw.graph.initializers],
        "outputs": [_describe_value(value) for value in raw.graph.outputs],
        "weights": _describe_weights(raw),
        "operators": _count_operators(raw),
        "providers": [_describe_provider(name, model, placed, registry, override) for name in names],
        "num_plugins": sum(each.is_plugin for each in placed),
        "placement": [_describe_node(each) for each in placed],
        "problem": None if problem is None else str(problem),
    }


def _import(
    path: Path,
    raw: ir.Model,
    providers: Sequence[str],
    registry: PluginRegistry | None,
    override: Collection[str],
    logger: ILogger | None,
) -> tuple[ir.Model, UnsupportedOpError | None]:
    try:
        kernels = find_kernel_for(providers)
        return import_model(path, registry=registry, override=override, logger=logger, kernels=kernels), None
    except UnsupportedOpError as error:
        return raw, error


def _describe_file(model: ir.Model) -> dict[str, Any]:
    return {
        "name": model.graph.name or "",
        "producer": " ".join(filter(None, (model.producer_name, model.producer_version))),
        "ir_version": model.ir_version,
        "opsets": {domain or "ai.onnx": version for domain, version in sorted(model.opset_imports.items())},
        "num_functions": len(model.functions),
    }


def _describe_value(value: ir.Value) -> dict[str, Any]:
    dims = None if value.shape is None else [_plain_dim(dim) for dim in value.shape]
    dtype = None if value.type is None else object_type(value) or value.type.dtype.numpy().name
    return {"name": value.name or "", "type": "string" if dtype == "object" else dtype, "dims": dims}


def _plain_dim(dim: Any) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value


def _describe_weights(model: ir.Model) -> dict[str, int]:
    tensors = [value.const_value for value in model.graph.initializers.values() if value.const_value is not None]
    return {
        "count": len(tensors),
        "parameters": sum(math.prod(tensor.shape.numpy()) for tensor in tensors),
        "size_bytes": sum(tensor.nbytes for tensor in tensors),
    }


def _count_operators(model: ir.Model) -> list[dict[str, Any]]:
    """The operators of the file with their counts, bodies included; the most frequent first."""
    counts = Counter((node.domain, node.op_type) for node in model.graph.all_nodes())
    functions = {(function.domain, function.name) for function in model.functions.values()}
    return [
        {"op": op, "domain": domain, "count": count, "is_function": (domain, op) in functions}
        for (domain, op), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _describe_provider(
    name: str,
    model: ir.Model,
    placed: Sequence[Support],
    registry: PluginRegistry | None,
    override: Collection[str],
) -> dict[str, Any]:
    """How many nodes a provider would run, how many it could, and what it refuses, with the reason."""
    alone = [
        each
        for each in find_support(model, providers=[name], registry=registry, override=override)
        if not each.is_plugin
    ]
    refused = Counter(
        (_op_name(each.node), each.reason.removeprefix(f"{name}: ")) for each in alone if each.provider is None
    )
    return {
        "name": name,
        "num_runs": sum(each.provider == name for each in placed),
        "num_takes": sum(each.provider == name for each in alone),
        "num_nodes": len(alone),
        "refusals": [{"op": op, "reason": reason, "count": count} for (op, reason), count in refused.most_common()],
    }


def _describe_node(support: Support) -> dict[str, Any]:
    return {
        "name": support.node.name or "",
        "op": _op_name(support.node),
        "provider": support.provider,
        "reason": support.reason,
    }


def _op_name(node: ir.Node) -> str:
    entry = entry_of(node)
    if entry is not None:
        return f"{entry.handle.name} ({PLUGIN})"
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
