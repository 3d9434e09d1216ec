"""What a plan tells of a partition of ONNX Runtime: its nodes after optimising, the layers in each, shapes and work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dovetail.provider.costs import count_bytes
from dovetail.provider.interfaces import BuildReport, NodeReport, ShapeRange
from dovetail.provider.node_costs import count_node, find_usual_sizes, usual_shape
from dovetail.provider.origins import find_layers, find_passes
from dovetail.providers.onnxruntime.origins import GraphNode, find_makers, trace_origins

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["PartitionFacts", "describe_partition", "read_facts"]

_MAKER: Final = "onnxruntime"


@dataclass(frozen=True, kw_only=True)
class PartitionFacts:
    """What is known of a partition before it is optimised, which changes it."""

    nodes: Sequence[GraphNode]
    layers: Sequence[Sequence[str]]
    """For each node the layers of the network that it was made of."""
    inner_layers: Mapping[str, Sequence[str]]
    """Node, of a body too -> its layers."""
    passes: Sequence[Sequence[str]]
    """For each node the passes that made it."""
    flops: Sequence[int | None]
    tensors: Mapping[str, tuple[str, Sequence[int | None] | None]]
    """Name -> type and usual shape."""
    inputs: Sequence[str]
    outputs: Sequence[str]


def read_facts(model: ir.Model, shapes: Mapping[str, ShapeRange]) -> PartitionFacts:
    """The facts of a partition, with shapes as they usually are."""
    sizes = find_usual_sizes(model, shapes)
    nodes = list(model.graph)
    every = list(model.graph.all_nodes())
    values = [*model.graph.inputs, *model.graph.initializers.values(), *(v for node in every for v in node.outputs)]
    tensors = {value.name or "": _describe_value(value, sizes) for value in values}
    return PartitionFacts(
        nodes=[_graph_node(node) for node in nodes],
        layers=[find_layers(node) for node in nodes],
        inner_layers={node.name or "": find_layers(node) for node in every},
        passes=[find_passes(node) for node in nodes],
        flops=[count_node(node, sizes) for node in nodes],
        tensors=tensors,
        inputs=[value.name or "" for value in model.graph.inputs],
        outputs=[value.name or "" for value in model.graph.outputs],
    )


def _describe_value(value: ir.Value, sizes: Mapping[str, int]) -> tuple[str, Sequence[int | None] | None]:
    dtype = "" if value.dtype is None else value.dtype.numpy().name
    return dtype, usual_shape(value, sizes)


def _graph_node(node: ir.Node) -> GraphNode:
    inputs = [value.name or "" for value in node.inputs if value is not None]
    outputs = [value.name or "" for value in node.outputs]
    return GraphNode(name=node.name or "", op=node.op_type, inputs=inputs, outputs=outputs)


def describe_partition(facts: PartitionFacts, nodes: Sequence[GraphNode]) -> BuildReport:
    """The report of the nodes that came of a partition."""
    origins, makers = trace_origins(nodes, facts.nodes), find_makers(nodes)
    rows = zip(nodes, origins, makers, strict=True)
    reports = [_report_node(facts, node, found, sources) for node, found, sources in rows]
    for number, node in enumerate(nodes):
        _add_bodies(facts, node, number, reports)
    return BuildReport(nodes=reports)


def _add_bodies(facts: PartitionFacts, parent: GraphNode, number: int, reports: list[NodeReport]) -> None:
    """Add the nodes of bodies behind all others; what they were made of is told by their names alone."""
    for position, body in enumerate(parent.bodies):
        first = len(reports)
        for node, makers in zip(body, find_makers(body), strict=True):
            inner = _report_node(facts, node, (), [first + maker for maker in makers])
            layers = facts.inner_layers.get(node.name, (node.name,) if node.name else ())
            reports.append(replace(inner, layers=layers, reads=(), writes=(), parent=number, body=position))
        for offset, node in enumerate(body):
            _add_bodies(facts, node, first + offset, reports)


def _report_node(facts: PartitionFacts, node: GraphNode, origins: Sequence[int], makers: Sequence[int]) -> NodeReport:
    layers = list(dict.fromkeys(layer for number in origins for layer in facts.layers[number]))
    passes = dict.fromkeys(name for number in origins for name in facts.passes[number])
    if len(origins) > 1:
        passes[_MAKER] = None
    flops = [facts.flops[number] for number in origins]
    output = next((name for name in node.outputs if name), "")
    dtype, shape = facts.tensors.get(output, ("", None))
    return NodeReport(
        name=node.name or output,
        op=node.op,
        layers=layers,
        made_by=", ".join(passes),
        flops=None if not flops or None in flops else sum(count or 0 for count in flops),
        bytes=_count_bytes(facts, node),
        inputs=makers,
        reads=[position for position, name in enumerate(facts.inputs) if name in node.inputs],
        writes=[position for position, name in enumerate(facts.outputs) if name in node.outputs],
        dtype=dtype,
        shape=shape,
    )


def _count_bytes(facts: PartitionFacts, node: GraphNode) -> int | None:
    """What it reads and writes, as far as types and sizes are known; weights that were made anew are not."""
    total = 0
    for name in dict.fromkeys((*node.inputs, *node.outputs)):
        dtype, shape = facts.tensors.get(name, ("", None))
        known = None if shape is None else [size for size in shape if size is not None]
        if shape is not None and known is not None and len(known) == len(shape):
            total += count_bytes(dtype, known) or 0
    return total or None
