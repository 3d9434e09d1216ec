"""What passes share: constants, attributes as values, replacing values, and the check that a model is whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from dovetail.errors import InternalError

__all__ = [
    "Array",
    "add_initializer",
    "attribute_values",
    "check_model",
    "constant_array",
    "interface_of",
    "is_onnx",
    "layer_name",
    "make_constant",
    "names_in",
    "opset_of",
    "replace_output",
    "subgraphs_of",
    "walk_graphs",
]

Array = npt.NDArray[Any]
_LAYER_KEY: Final = "dovetail.layer"
_SCALARS: Final = (ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING)
_LISTS: Final = (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS)


def is_onnx(node: ir.Node, *ops: str) -> bool:
    """Whether a node is one of these operators of ONNX."""
    return node.domain in ("", "ai.onnx") and node.op_type in ops


def opset_of(model: ir.Model, node: ir.Node) -> int:
    """The opset version a node is of."""
    imports = model.opset_imports
    return imports.get("", imports.get("ai.onnx", 1)) if is_onnx(node, node.op_type) else imports.get(node.domain, 1)


def layer_name(node: ir.Node) -> str:
    """The name users know a node by."""
    return node.metadata_props.get(_LAYER_KEY) or node.name or node.op_type


def subgraphs_of(node: ir.Node) -> Iterator[ir.Graph]:
    """The bodies directly inside a node."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def walk_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """A graph and every graph inside its nodes."""
    yield graph
    yield from graph.subgraphs()


def constant_array(value: ir.Value | None, keep: frozenset[str] = frozenset()) -> Array | None:
    """The array of an initializer, or None when the value is none, may be overridden by an input, or is to be kept."""
    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return None if value.name in keep else np.asarray(value.const_value.numpy())


def attribute_values(node: ir.Node) -> dict[str, Any] | None:
    """The attributes as a kernel takes them; None when there is one that no kernel takes."""
    values: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            return None
        if attribute.type in _SCALARS:
            values[name] = attribute.value
        elif attribute.type in _LISTS:
            values[name] = list(attribute.value)
        elif attribute.type == ir.AttributeType.TENSOR:
            values[name] = np.asarray(attribute.as_tensor().numpy())
        else:
            return None
    return values


def names_in(model: ir.Model) -> set[str]:
    """The names of all values in a model, bodies included."""
    names: set[str] = set()
    for graph in walk_graphs(model.graph):
        names.update(graph.initializers)
        values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
        names.update(value.name for value in values if value.name)
    return names


def add_initializer(graph: ir.Graph, name: str, array: Array, dtype: ir.DataType, taken: set[str]) -> ir.Value:
    """A new initializer of a graph, under a name that is not taken; the name is taken then."""
    unique, count = name, 2
    while unique in taken:
        unique, count = f"{name}_{count}", count + 1
    taken.add(unique)
    value = _constant(unique, array, dtype)
    graph.register_initializer(value)
    return value


def _constant(name: str, array: Array, dtype: ir.DataType) -> ir.Value:
    tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), dtype=dtype, name=name)
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape), const_value=tensor)


def make_constant(old: ir.Value, array: Array) -> ir.Value:
    """A constant to stand for what a node makes, with its name and notes."""
    dtype = old.dtype if old.dtype is not None else ir.DataType.from_numpy(array.dtype)
    value = _constant(old.name or "", array, dtype)
    _copy_notes(old, value)
    return value


def replace_output(old: ir.Value, new: ir.Value) -> None:
    """Let one value take another's place: users, graph outputs, name, type, shape and notes."""
    new.name, new.type, new.shape = old.name, old.type, old.shape
    _copy_notes(old, new)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)


def _copy_notes(old: ir.Value, new: ir.Value) -> None:
    new.metadata_props.update(old.metadata_props)
    new.meta.update(old.meta)
    new.doc_string = old.doc_string


Interface = tuple[tuple[str | None, ...], tuple[str | None, ...]]


def interface_of(model: ir.Model) -> Interface:
    """The names of inputs and outputs, which no pass may change."""
    return tuple(value.name for value in model.graph.inputs), tuple(value.name for value in model.graph.outputs)


def check_model(model: ir.Model, interface: Interface, *, where: str) -> None:
    """Raise when inputs or outputs changed names, or when a node uses what is not there yet."""
    if interface_of(model) != interface:
        raise InternalError("inputs or outputs changed", where=where, expected=interface, got=interface_of(model))
    _check_graph(model.graph, set(), where)


def _check_graph(graph: ir.Graph, outer: set[ir.Value], where: str) -> None:
    known = outer | set(graph.inputs) | set(graph.initializers.values())
    for node in graph:
        missing = [value.name for value in node.inputs if value is not None and value not in known]
        if missing:
            raise InternalError(f"node '{node.name}' uses {missing[0]!r} before it is made", where=where)
        for body in subgraphs_of(node):
            _check_graph(body, known, where)
        known |= set(node.outputs)
    missing = [value.name for value in graph.outputs if value not in known]
    if missing:
        raise InternalError(f"output {missing[0]!r} is made by nothing", where=where)
