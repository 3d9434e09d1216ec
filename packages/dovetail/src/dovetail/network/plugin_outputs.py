"""Types and shapes of what a plugin makes, for hosts that have a graph of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import onnx_ir as ir

from dovetail.network.importer.importer import import_model
from dovetail.network.importer.plugins import PluginImport, PluginRequest
from dovetail.network.importer.problems import Problems
from dovetail.network.inference.shapes import ShapeInference
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry

__all__ = ["infer_plugin_outputs", "infer_plugin_types"]

T = TypeVar("T")

_OPSET = 18


def infer_plugin_outputs(
    op: str,
    domain: str,
    inputs: Sequence[ir.Value | None],
    attributes: Sequence[ir.Attr],
    *,
    registry: PluginRegistry | None = None,
) -> list[ir.Value]:
    """Values with the types and shapes that the plugin of an operator says its outputs have.

    Args:
        op: The operator, which is the name of the plugin.
        domain: Its domain.
        inputs: Values with types and shapes; None for one that is left out.
        attributes: Of the node; they choose the plugin and are its fields.
        registry: Where the plugin is looked up; the global registry by default.
    """
    registry = registry or get_plugin_registry()
    node = _make_node(op, domain, inputs, attributes, 1)
    node = _make_node(op, domain, inputs, attributes, _ask(registry, node, PluginImport.count_outputs))
    model = import_model(_wrap(node), registry=registry, override=(op,))
    ShapeInference(model.opset_imports).infer_graph(model.graph)
    return list(model.graph.outputs)


def infer_plugin_types(
    op: str,
    domain: str,
    inputs: Sequence[ir.Value | None],
    attributes: Sequence[ir.Attr],
    *,
    registry: PluginRegistry | None = None,
) -> list[ir.TypeProtocol]:
    """The types alone, for a plugin that cannot say its shapes; see ``infer_plugin_outputs``."""
    node = _make_node(op, domain, inputs, attributes, 1)
    _wrap(node)
    return _ask(registry or get_plugin_registry(), node, PluginImport.find_output_types)


def _ask(registry: PluginRegistry, node: ir.Node, question: Callable[[PluginImport, PluginRequest], T]) -> T:
    """What an import finds out about the plugin of a node."""
    problems = Problems()
    plugins = PluginImport(registry, registry.logger, (node.op_type,), problems)
    answers = [question(plugins, request) for request in plugins.find([node], _opsets(node))]
    problems.raise_if_any()
    return answers[0]


def _make_node(
    op: str, domain: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr], num_outputs: int
) -> ir.Node:
    """A node over values of its own, with outputs that have names."""
    fresh = [value and ir.Value(name=value.name, type=value.type, shape=value.shape) for value in inputs]
    copies = [ir.Attr(one.name, one.type, one.value) for one in attributes]
    node = ir.Node(domain, op, fresh, copies, num_outputs=num_outputs)
    for index, value in enumerate(node.outputs):
        value.name = f"output{index}"
    return node


def _wrap(node: ir.Node) -> ir.Model:
    """A model of one node."""
    inputs = [value for value in node.inputs if value is not None]
    graph = ir.Graph(inputs, list(node.outputs), nodes=[node], opset_imports=_opsets(node), name="operator")
    return ir.Model(graph, ir_version=10)


def _opsets(node: ir.Node) -> dict[str, int]:
    return {"": _OPSET, node.domain: _OPSET}
