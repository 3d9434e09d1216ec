"""Shapes that a model computes become constants, and nodes that only move shapes around and cancel go.

Exporters write a Reshape to sizes that they take apart and put together again at run time. Where shape inference knows
the sizes, or knows that they are the input's own, none of that is needed. What stays is exact: no rule here depends on
the contents of a tensor other than a shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import numpy as np
import onnx_ir as ir

from dovetail.errors import InternalError
from dovetail.passes._graph import (
    Array,
    add_initializer,
    is_onnx,
    layer_name,
    make_constant,
    names_in,
    replace_output,
    subgraphs_of,
)
from dovetail.passes._match import Dim, is_named, rank_of
from dovetail.passes._shape_contents import ShapeContents
from dovetail.passes._shape_rules import Forward, NodeRewrite, Simpler, find_simpler
from dovetail.passes.base import Pass, PassResult

__all__ = ["ShapeSimplification"]

_NOTE: Final = "dovetail."
"""How the keys of notes begin that the network and its users leave on values."""


class ShapeSimplification(Pass):
    """Simplifies shape computations, reshapes, transposes, casts and expansions.

    The bodies of loops are left alone: what a loop carries may change its shape from one turn to the next.

    Args:
        keep: Names of constants that may be refitted: what they hold is not read.
    """

    name: ClassVar[str] = "shape_simplification"

    def __init__(self, *, keep: frozenset[str] = frozenset()) -> None:
        self._keep = keep

    def call(self, model: ir.Model) -> PassResult:
        """Simplify node by node, in order, until nothing changes."""
        changed: list[str] = []
        taken = names_in(model)
        while lines := self._sweep(model, taken):
            changed += lines
        return PassResult(model=model, changed=changed)

    def ensures(self, model: ir.Model) -> None:
        """No node is left that could be simpler."""
        contents = ShapeContents(self._keep)
        for graph in _graphs(model.graph):
            seen = _Seen()
            for node in graph:
                if _find(node, contents, seen) is not None:
                    raise InternalError(f"'{layer_name(node)}' was not simplified", where=f"pass '{self.name}'")

    def _sweep(self, model: ir.Model, taken: set[str]) -> list[str]:
        contents = ShapeContents(self._keep)
        changed = []
        for graph in _graphs(model.graph):
            seen = _Seen()
            for node in list(graph):
                simpler = _find(node, contents, seen)
                if simpler is not None:
                    changed.append(_apply(graph, node, simpler, taken, contents))
        return changed


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """A graph, and the branches of conditions in it."""
    yield graph
    for node in graph:
        if is_onnx(node, "If"):
            for body in subgraphs_of(node):
                yield from _graphs(body)


class _Seen:
    """The first value of a graph that holds some sizes."""

    def __init__(self) -> None:
        self._first: dict[object, ir.Value] = {}

    def first(self, value: ir.Value, known: tuple[Dim, ...]) -> ir.Value:
        """The first value with the same contents, type and rank: this one, when there was none."""
        if not known or not all(is_named(size) for size in known):
            return value
        return self._first.setdefault((tuple(map(str, known)), value.dtype, rank_of(value)), value)


def _find(node: ir.Node, contents: ShapeContents, seen: _Seen) -> Simpler | Array | None:
    """What a node could be instead: an array when it makes a constant."""
    known = contents.learn(node)
    if not node.outputs or not _is_free(node.outputs[0]):
        return None
    value = node.outputs[0]
    if known is not None and rank_of(value) in (0, 1) and all(isinstance(size, int) for size in known):
        return np.asarray(known, dtype=np.int64)
    simpler = find_simpler(node, contents)
    if simpler is None and known is not None and rank_of(value) in (0, 1):
        first = seen.first(value, known)
        return None if first is value else Forward(value=first)
    return simpler


def _is_free(value: ir.Value) -> bool:
    """Whether a value may be replaced: somebody reads it, no caller does, and nobody left a note on it."""
    noted = any(key.startswith(_NOTE) for key in value.metadata_props)
    return bool(value.uses()) and not value.is_graph_output() and not noted


def _apply(graph: ir.Graph, node: ir.Node, simpler: Simpler | Array, taken: set[str], contents: ShapeContents) -> str:
    old, name = node.outputs[0], f"'{layer_name(node)}' ({node.op_type})"
    if isinstance(simpler, Forward):
        ir.convenience.replace_all_uses_with(old, simpler.value)
        graph.remove(node, safe=True)
        return f"removed {name}: it is '{simpler.value.name}'"
    if isinstance(simpler, NodeRewrite):
        new = _write(graph, node, simpler, taken)
        replace_output(old, new.outputs[0])
        graph.remove(node, safe=True)
        contents.learn(new)
        return f"rewrote {name} as {simpler.op} of '{_first_input(new)}'"
    return _fold(graph, node, simpler)


def _first_input(node: ir.Node) -> str:
    value = node.inputs[0]
    return "" if value is None or value.name is None else value.name


def _fold(graph: ir.Graph, node: ir.Node, array: Array) -> str:
    old = node.outputs[0]
    dtype = np.int64 if old.dtype is None else old.dtype.numpy()
    constant = make_constant(old, array.reshape(() if rank_of(old) == 0 else -1).astype(dtype))
    ir.convenience.replace_all_uses_with(old, constant)
    graph.remove(node, safe=True)
    graph.register_initializer(constant)
    return f"folded '{layer_name(node)}' ({node.op_type}) to {array.tolist()}"


def _write(graph: ir.Graph, node: ir.Node, simpler: NodeRewrite, taken: set[str]) -> ir.Node:
    inputs = [_input(graph, node, each, taken) for each in simpler.inputs]
    if simpler.reshape is not None:
        inputs[0] = _reshape(graph, node, inputs[0], simpler.reshape, taken)
    attributes = [ir.AttrInt64(name, number) for name, number in (simpler.ints or {}).items()]
    if simpler.perm is not None:
        attributes.append(ir.AttrInt64s("perm", list(simpler.perm)))
    if simpler.op == node.op_type == "Cast":
        attributes += [attribute for name, attribute in node.attributes.items() if name != "to"]
    new = ir.Node("", simpler.op, inputs, attributes, num_outputs=1, name=node.name, metadata_props=node.metadata_props)
    new.meta.update(node.meta)
    graph.insert_before(node, new)
    return new


def _input(graph: ir.Graph, node: ir.Node, given: ir.Value | Array, taken: set[str]) -> ir.Value:
    if isinstance(given, ir.Value):
        return given
    return add_initializer(graph, f"{node.outputs[0].name}_shape", given, ir.DataType.INT64, taken)


def _reshape(graph: ir.Graph, node: ir.Node, value: ir.Value, sizes: Array, taken: set[str]) -> ir.Value:
    shape = _input(graph, node, sizes, taken)
    before = ir.Node("", "Reshape", [value, shape], num_outputs=1, name=f"{node.name}_reshape")
    before.metadata_props.update(node.metadata_props)
    output = before.outputs[0]
    output.name, output.type, output.shape = f"{shape.name}d", value.type, ir.Shape([int(size) for size in sizes])
    taken.add(f"{shape.name}d")
    graph.insert_before(node, before)
    return output
