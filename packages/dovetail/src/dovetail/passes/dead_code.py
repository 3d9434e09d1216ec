"""Removes nodes whose results nobody uses, and weights that are then unused too. Inputs stay."""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from dovetail.passes._graph import layer_name, subgraphs_of, walk_graphs
from dovetail.passes.base import Pass, PassResult

__all__ = ["DeadCode"]


class DeadCode(Pass):
    """Removes every node that nobody reads: no operator and no plugin has an effect besides its outputs."""

    name: ClassVar[str] = "dead_code"

    def call(self, model: ir.Model) -> PassResult:
        """Remove what nobody needs."""
        changed = _remove_nodes(model.graph)
        for graph in walk_graphs(model.graph):
            changed += _remove_initializers(graph)
        return PassResult(model=model, changed=changed)


def _remove_nodes(graph: ir.Graph) -> list[str]:
    """From the last node to the first, bodies included: what only dead nodes read is dead when its turn comes."""
    changed = []
    for node in reversed(graph):
        # A node without outputs is there for its effect: it checks something.
        if not node.outputs or any(value.uses() or value.is_graph_output() for value in node.outputs):
            for body in subgraphs_of(node):
                changed += _remove_nodes(body)
        else:
            changed.append(f"removed node '{layer_name(node)}' ({node.op_type})")
            _detach_bodies(node)
            graph.remove(node, safe=True)
    return changed


def _detach_bodies(node: ir.Node) -> None:
    """Let the bodies of a dead node go, so that values from outside lose these users."""
    for body in subgraphs_of(node):
        for inner in body:
            _detach_bodies(inner)
            for index in range(len(inner.inputs)):
                inner.replace_input_with(index, None)


def _remove_initializers(graph: ir.Graph) -> list[str]:
    unused = [
        name
        for name, value in graph.initializers.items()
        if not (value.uses() or value.is_graph_output() or value.is_graph_input())
    ]
    for name in unused:
        del graph.initializers[name]
    return [f"removed weights '{name}'" for name in unused]
