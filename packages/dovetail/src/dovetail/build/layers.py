"""The layers of a graph in order, each with the provider that runs it: what the rest of the builder works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx_ir as ir

from dovetail.build.attributes import attribute_values
from dovetail.errors import UnsupportedOpError
from dovetail.network.plugins import PLUGIN_DOMAIN, PluginEntry, entry_of
from dovetail.provider.interfaces import NodeView, Provider

__all__ = ["ASSIGNED_KEY", "CONTROL_FLOW", "NodeLayer", "body_graphs", "layer_name", "layers_of", "opset_of"]

ASSIGNED_KEY: Final = "dovetail.provider"
"""Where a node's metadata names the provider it was given to."""
CONTROL_FLOW: Final = frozenset(("If", "Loop", "Scan"))


@dataclass(frozen=True)
class NodeLayer:
    """A node as providers see it, and what kind of step it becomes."""

    node: ir.Node
    opset: int
    provider: str

    @property
    def name(self) -> str:
        """The layer's name."""
        return layer_name(self.node)

    @property
    def op(self) -> str:
        """The operator."""
        return self.node.op_type

    @property
    def domain(self) -> str:
        """The operator's domain; the ONNX domain is empty."""
        return "" if self.node.domain == "ai.onnx" else self.node.domain

    @property
    def entry(self) -> PluginEntry | None:
        """The plugin, when the layer is one."""
        return entry_of(self.node)

    @property
    def is_control(self) -> bool:
        """Whether the layer has bodies."""
        return self.domain == "" and self.op in CONTROL_FLOW

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes by name."""
        return attribute_values(self.node)

    @property
    def input_types(self) -> Sequence[str | None]:
        """NumPy names of the input types."""
        return [_type_name(value) for value in self.node.inputs]

    @property
    def output_types(self) -> Sequence[str | None]:
        """NumPy names of the output types."""
        return [_type_name(value) for value in self.node.outputs]

    @property
    def bodies(self) -> Sequence[Sequence[NodeView]]:
        """The nodes of each body of control flow."""
        return [
            [NodeLayer(node, self.opset, self.provider) for node in graph if not _is_constant(node)]
            for graph in body_graphs(self.node)
        ]

    @property
    def is_assigned(self) -> bool:
        """Whether an earlier round gave the node to its provider."""
        return self.node.metadata_props.get(ASSIGNED_KEY) == self.provider


def body_graphs(node: ir.Node) -> list[ir.Graph]:
    """The bodies of a node, in the order of its attributes."""
    return [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]


def _type_name(value: ir.Value | None) -> str | None:
    return None if value is None or value.dtype is None else value.dtype.numpy().name


def layer_name(node: ir.Node) -> str:
    """The name users know a node by."""
    return node.metadata_props.get("dovetail.layer") or node.name or node.op_type


def opset_of(model: ir.Model, node: ir.Node) -> int:
    """The opset version a node is of."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return model.opset_imports.get(domain, model.opset_imports.get("ai.onnx", 1) if domain == "" else 1)


def layers_of(model: ir.Model, graph: ir.Graph, provider: Provider) -> list[NodeLayer]:
    """The layers of a graph; one error names every node that nobody takes."""
    layers = [NodeLayer(node, opset_of(model, node), provider.name) for node in graph if not _is_constant(node)]
    plain = [layer for layer in layers if layer.entry is None and not layer.is_control]
    claims = provider.get_capability(plain)
    refused = [(layer, claim) for layer, claim in zip(plain, claims, strict=True) if not claim.taken]
    rows = [f"  '{layer.name}' ({layer.op}): {claim.reason}" for layer, claim in refused]
    rows += [f"  '{layer.name}' (Scan): before opset 9 it runs over batches" for layer in layers if _is_old_scan(layer)]
    if rows:
        raise UnsupportedOpError(
            f"{len(rows)} node(s) that no provider takes:\n" + "\n".join(rows),
            fix="write a plugin for the operator, or replace the node",
        )
    return layers


def _is_old_scan(layer: NodeLayer) -> bool:
    return layer.is_control and layer.op == "Scan" and layer.opset < 9


def _is_constant(node: ir.Node) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx") and node.domain != PLUGIN_DOMAIN
