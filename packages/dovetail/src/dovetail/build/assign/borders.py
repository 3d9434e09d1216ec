"""Partitions as models of their own: what crosses their border, and the nodes between copied out of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from dovetail.build.assign.shape_sources import body_graphs, is_constant_node

__all__ = ["Border", "extract_model", "find_border"]


@dataclass(frozen=True, kw_only=True)
class Border:
    """The values that go into a partition and come out of it, each once."""

    inputs: list[ir.Value]
    outputs: list[ir.Value]
    constants: list[ir.Value]


def find_border(nodes: Sequence[ir.Node]) -> Border:
    """What the nodes read from others, what others read from them, and the weights they use.

    Inputs and outputs of the graph itself come first and in its order: a partition that is the whole graph then takes
    and gives arrays as the engine does, and runs without a frame.
    """
    inside = set(_with_bodies(nodes))
    inputs: dict[ir.Value, None] = {}
    constants: dict[ir.Value, None] = {}
    for node in nodes:
        for value in _outer_reads(node):
            if _is_constant(value):
                constants[value] = None
            elif value.producer() not in inside:
                inputs[value] = None
    made = [value for node in nodes for value in node.outputs if _leaves(value, inside)]
    graph = nodes[0].graph
    return Border(
        inputs=_in_order(inputs, () if graph is None else graph.inputs),
        outputs=_in_order(made, () if graph is None else graph.outputs),
        constants=list(constants),
    )


def _in_order(values: Iterable[ir.Value], first: Iterable[ir.Value]) -> list[ir.Value]:
    rest = dict.fromkeys(values)
    named = [value for value in dict.fromkeys(first) if value in rest]
    return list(dict.fromkeys((*named, *rest)))


def extract_model(model: ir.Model, nodes: Sequence[ir.Node], border: Border, *, name: str) -> ir.Model:
    """A copy of the nodes as a model; weights are shared with the original."""
    producers = [producer for value in border.constants if (producer := value.producer()) is not None]
    view = ir.GraphView(
        border.inputs,
        border.outputs,
        nodes=[*dict.fromkeys(producers), *nodes],
        initializers=[value for value in border.constants if value.producer() is None],
        opset_imports=dict(model.opset_imports),
        name=name,
    )
    return ir.Model(view.clone(), ir_version=model.ir_version)


def _outer_reads(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads, and what its bodies read that is made outside of them."""
    for value in node.inputs:
        if value is not None:
            yield value
    for graph in body_graphs(node):
        yield from _captures(graph)


def _captures(graph: ir.Graph) -> Iterator[ir.Value]:
    local = set(graph.inputs) | set(graph.initializers.values())
    for node in graph:
        for value in _outer_reads(node):
            if value not in local:
                yield value
        local.update(node.outputs)
    for value in graph.outputs:
        if value not in local:
            yield value


def _leaves(value: ir.Value, inside: set[ir.Node]) -> bool:
    return value.is_graph_output() or any(use.node not in inside for use in value.uses())


def _with_bodies(nodes: Sequence[ir.Node]) -> Iterator[ir.Node]:
    for node in nodes:
        yield node
        for graph in body_graphs(node):
            yield from graph.all_nodes()


def _is_constant(value: ir.Value) -> bool:
    producer = value.producer()
    return value.const_value is not None if producer is None else is_constant_node(producer)
