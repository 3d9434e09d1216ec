"""Types and shapes of what a plugin makes, for hosts that have a graph of their own."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from dovetail.network.importer.importer import import_model
from dovetail.network.importer.plugins import PluginImport
from dovetail.network.importer.problems import Problems
from dovetail.network.inference.shapes import ShapeInference
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry

__all__ = ["infer_plugin_outputs"]

_OPSET = 18


def infer_plugin_outputs(
    op: str,
    domain: str,
    inputs: Sequence[ir.Value],
    attributes: Sequence[ir.Attr],
    *,
    registry: PluginRegistry | None = None,
) -> list[ir.Value]:
    """Values with the types and shapes that the plugin of an operator says its outputs have.

    Args:
        op: The operator, which is the name of the plugin.
        domain: Its domain.
        inputs: Values with types and shapes.
        attributes: Of the node; they choose the plugin and are its fields.
        registry: Where the plugin is looked up; the global registry by default.
    """
    registry = registry or get_plugin_registry()
    first = ir.Node(domain, op, list(inputs), attributes, num_outputs=1)
    problems = Problems()
    plugins = PluginImport(registry, registry.logger, (op,), problems)
    counts = [plugins.count_outputs(request) for request in plugins.find([first], {domain: _OPSET, "": _OPSET})]
    problems.raise_if_any()
    fresh = [ir.Value(name=value.name, type=value.type, shape=value.shape) for value in inputs]
    copies = [ir.Attr(one.name, one.type, one.value) for one in attributes]
    node = ir.Node(domain, op, fresh, copies, num_outputs=counts[0])
    for index, value in enumerate(node.outputs):
        value.name = f"output{index}"
    opsets = {"": _OPSET, domain: _OPSET}
    graph = ir.Graph(fresh, list(node.outputs), nodes=[node], opset_imports=opsets, name="operator")
    model = import_model(ir.Model(graph, ir_version=10), registry=registry, override=(op,))
    ShapeInference(model.opset_imports).infer_graph(model.graph)
    return list(model.graph.outputs)
