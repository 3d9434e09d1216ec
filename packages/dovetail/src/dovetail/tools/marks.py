"""Intermediate tensors as further outputs of a model, so that any engine shows them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import onnx_ir as ir

__all__ = ["MarkedLayer", "list_layers", "mark_outputs"]


@dataclass(frozen=True, kw_only=True)
class MarkedLayer:
    """A node of the main graph, with the tensors that go in and those of its results that somebody uses."""

    index: int
    """Its place in topological order."""
    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def list_layers(model: ir.Model) -> list[MarkedLayer]:
    """The nodes that compute something from something; nodes in bodies are part of the node that has the body."""
    nodes = [node for node in model.graph if node.op_type != "Constant"]
    return [_describe(index, node) for index, node in enumerate(nodes)]


def _describe(index: int, node: ir.Node) -> MarkedLayer:
    return MarkedLayer(
        index=index,
        name=node.name or f"{node.op_type} -> {node.outputs[0].name}",
        op=node.op_type,
        domain=node.domain,
        inputs=tuple(dict.fromkeys(value.name for value in _reads(node) if value.name)),
        outputs=tuple(value.name for value in node.outputs if value.name and _is_used(value)),
    )


def _is_used(value: ir.Value) -> bool:
    return value.is_graph_output() or bool(value.uses())


def _reads(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads; of its bodies, what they read of the graph around them."""
    from dovetail.build.assign.borders import find_border

    yield from (value for value in node.inputs if value is not None)
    if any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values()):
        yield from find_border([node]).inputs


def mark_outputs(model: ir.Model, names: Collection[str]) -> ir.Model:
    """A copy of a model that gives these tensors too; its own outputs stay first."""
    copy = model.clone()
    present = {value.name for value in copy.graph.outputs}
    made = {value.name: value for node in copy.graph for value in node.outputs}
    copy.graph.outputs.extend(made[name] for name in names if name not in present)
    return copy
