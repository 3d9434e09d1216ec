"""Writes decided float types into a network: weights in their new type, and one cast a value where types meet.

A value is cast at most once to each type, right after it is made, and all its readers share the cast. Where the value
itself comes from a cast of the wanted type, that cast's source is read, so that no cast undoes another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx_ir as ir

from dovetail.build.precision.decide import FloatDecision
from dovetail.build.precision.ports import is_float
from dovetail.passes.editing import add_initializer, is_onnx, names_in

__all__ = ["convert_float_types"]

_NAMES: Final = {ir.DataType.FLOAT: "fp32", ir.DataType.FLOAT16: "fp16", ir.DataType.BFLOAT16: "bf16"}


def convert_float_types(
    model: ir.Model,
    decisions: Mapping[int, FloatDecision],
    dtype: ir.DataType,
    io_types: Mapping[str, ir.DataType],
    keep: frozenset[str] = frozenset(),
) -> None:
    """Change a model in place.

    Args:
        model: The decisions are for its nodes, by their places in the graph.
        decisions: Which nodes become narrow, with the ports that do.
        dtype: The narrow type.
        io_types: Inputs and outputs whose type changes, by name.
        keep: Names of weights that may be refitted: they stay as they are and are cast in each run.
    """
    nodes = list(model.graph)
    narrow = {nodes[index]: each for index, each in decisions.items() if each.is_narrow}
    writer = _CastWriter(model, keep)
    _type_inputs(model.graph, io_types)
    for node, decision in narrow.items():
        for position in decision.ports.outputs:
            node.outputs[position].type = ir.TensorType(dtype)  # a new object: copies of a model share types
        _rewrite_attribute(node, dtype)
    for node in nodes:
        ports = narrow[node].ports.inputs if node in narrow else frozenset()
        writer.connect(node, ports, dtype)
    writer.give_outputs(io_types)


def _type_inputs(graph: ir.Graph, io_types: Mapping[str, ir.DataType]) -> None:
    for value in graph.inputs:
        if value.name is not None and value.name in io_types:
            value.type = ir.TensorType(io_types[value.name])


def _rewrite_attribute(node: ir.Node, dtype: ir.DataType) -> None:
    if is_onnx(node, "Cast") and node.outputs[0].dtype == dtype:
        node.attributes["to"] = ir.AttrInt64("to", dtype.value)
    elif is_onnx(node, "ConstantOfShape"):
        given = node.attributes.get("value")
        filled = np.zeros(1, np.float32) if given is None else np.asarray(given.as_tensor().numpy())
        node.attributes["value"] = ir.AttrTensor("value", ir.tensor(filled.astype(dtype.numpy()), dtype=dtype))


class _CastWriter:
    """Gives every reader its inputs in the type that it reads them in."""

    def __init__(self, model: ir.Model, keep: frozenset[str]) -> None:
        self._graph, self._keep = model.graph, keep
        self._taken = names_in(model) | {node.name for node in model.graph.all_nodes() if node.name}
        self._made: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._wide = set(_all_floats(model.graph))
        """What was FP32 before any type changed."""

    def connect(self, node: ir.Node, ports: frozenset[int], dtype: ir.DataType) -> None:
        """Set the inputs of a node, and in its bodies what they read from outside."""
        for position, value in enumerate(node.inputs):
            if value is not None and value in self._wide:
                wanted = dtype if position in ports else ir.DataType.FLOAT
                node.replace_input_with(position, self._typed(value, wanted))
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                self._connect_body(attribute.as_graph())

    def _connect_body(self, body: ir.Graph) -> None:
        for inner in body.all_nodes():
            for position, value in enumerate(inner.inputs):
                if value is not None and value in self._wide and value.dtype != ir.DataType.FLOAT:
                    inner.replace_input_with(position, self._typed(value, ir.DataType.FLOAT))
        for graph in (body, *body.subgraphs()):
            for position, value in enumerate(graph.outputs):
                if value in self._wide and value.dtype != ir.DataType.FLOAT:
                    graph.outputs[position] = self._typed(value, ir.DataType.FLOAT)

    def give_outputs(self, io_types: Mapping[str, ir.DataType]) -> None:
        """Give the outputs of the network their types under their names."""
        for position, value in enumerate(self._graph.outputs):
            wanted = io_types.get(value.name or "", ir.DataType.FLOAT)
            if value in self._wide and value.dtype != wanted:
                self._give_output(position, value, wanted)

    def _give_output(self, position: int, value: ir.Value, wanted: ir.DataType) -> None:
        name = value.name or ""
        given = self._made.pop((value, wanted), None)
        value.name = self._unique(f"{name}.{_NAMES.get(value.dtype or wanted, 'cast')}")
        if given is None or given.is_graph_output():
            given = self._cast(value, wanted, name)
        given.name = name
        given.metadata_props.update(value.metadata_props)
        given.meta.update(value.meta)
        self._graph.outputs[position] = given

    def _typed(self, value: ir.Value, wanted: ir.DataType) -> ir.Value:
        if value.dtype == wanted:
            return value
        key = (value, wanted)
        if key not in self._made:
            self._made[key] = self._convert(value, wanted)
        return self._made[key]

    def _convert(self, value: ir.Value, wanted: ir.DataType) -> ir.Value:
        tensor = ir.convenience.get_const_tensor(value)
        name = f"{value.name}.{_NAMES[wanted]}"
        if tensor is not None and not value.is_graph_input() and value.name not in self._keep:
            array = np.asarray(tensor.numpy()).astype(wanted.numpy())
            return add_initializer(self._graph, name, array, wanted, self._taken)
        maker = value.producer()
        source = maker.inputs[0] if maker is not None and is_onnx(maker, "Cast") else None
        if source is not None and source.dtype == wanted:
            return source
        return self._cast(value, wanted, self._unique(name))

    def _cast(self, value: ir.Value, wanted: ir.DataType, name: str) -> ir.Value:
        layer = self._unique(f"{value.name}.to_{_NAMES.get(wanted, 'cast')}")
        node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", wanted.value)], num_outputs=1, name=layer)
        node.outputs[0].name, node.outputs[0].shape = name, value.shape
        node.outputs[0].type = ir.TensorType(wanted)
        maker = value.producer()
        if maker is not None:
            self._graph.insert_after(maker, node)
        elif len(self._graph):
            self._graph.insert_before(self._graph[0], node)
        else:
            self._graph.append(node)
        return node.outputs[0]

    def _unique(self, name: str) -> str:
        unique, count = name, 2
        while unique in self._taken:
            unique, count = f"{name}_{count}", count + 1
        self._taken.add(unique)
        return unique


def _all_floats(graph: ir.Graph) -> list[ir.Value]:
    values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
    return [value for value in values if is_float(value)]
