"""Models that a stranger could put into a plan in the place of a compiled partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["NAMING_FILES", "external", "graph_bytes", "long_tag", "make_model", "nested", "partition", "varint"]

Node = onnx.NodeProto
FLOAT = TensorProto.FLOAT


def graph_bytes(*tensors: onnx.TensorProto) -> bytes:
    """A part of a model: a graph with these weights."""
    graph = onnx.GraphProto()
    graph.initializer.extend(tensors)
    return graph.SerializeToString()


def varint(value: int) -> bytes:
    """A number as the format writes it."""
    groups = [value >> shift & 127 for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


def long_tag(number: int, payload: bytes, *, above: int) -> bytes:
    """A field whose tag has bits beyond those that readers in C++ keep."""
    tag = (number << 3 | 2) | above << 32
    return varint(tag) + varint(len(payload)) + payload


def _field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def make_model(
    nodes: list[Node],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: tuple[Any, ...] = (),
    *,
    opset: int = 17,
    ir_version: int = 10,
) -> onnx.ModelProto:
    """A model without any check."""
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("evil", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def partition(
    *nodes: Node,
    x: Any = ("x", FLOAT, ["n", 20]),
    y: Any = ("y", FLOAT, ["n", 20]),
    weights: tuple[Any, ...] = (),
    **others: Any,
) -> onnx.ModelProto:
    """A model with the border of the partition in the plan "whole", unless it is said otherwise."""
    ports = [helper.make_tensor_value_info(*port) for port in (x, y)]
    body = list(nodes) or [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return make_model(body, ports[:1], ports[1:], weights, **others)


def external(location: str = "secret.bin", name: str = "s") -> onnx.TensorProto:
    """A tensor that lies in a file."""
    tensor = TensorProto(name=name, data_type=FLOAT, dims=[20], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def _adding(*nodes: Node, weights: tuple[Any, ...] = ()) -> onnx.ModelProto:
    """The partition with the secret added to its result, so that whoever reads it shows it."""
    return partition(
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        *nodes,
        helper.make_node("Add", ["a", "s"], ["y"]),
        weights=weights,
    )


def _in_attribute(tensor: onnx.TensorProto) -> Node:
    node = helper.make_node("Constant", [], ["s"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
    return node


def _in_body() -> onnx.ModelProto:
    branches = [
        helper.make_graph([], name, [], [helper.make_tensor_value_info(name, FLOAT, [20])], [external(name=name)])
        for name in ("t", "e")
    ]
    node = helper.make_node("If", ["c"], ["s"], then_branch=branches[0], else_branch=branches[1])
    return _adding(node, weights=(numpy_helper.from_array(np.array(True), "c"),))


def _in_body_of_body() -> onnx.ModelProto:
    model = _in_body()
    inner = model.graph.node[1]
    outer = helper.make_graph([inner], "outer", [], [helper.make_tensor_value_info("s", FLOAT, [20])])
    node = helper.make_node("If", ["c"], ["s2"], then_branch=outer, else_branch=outer)
    return _adding(node, weights=tuple(model.graph.initializer))


def _in_function() -> onnx.ModelProto:
    model = _adding(helper.make_node("Secret", [], ["s"], domain="evil"))
    imports = [helper.make_opsetid("", 17)]
    function = helper.make_function("evil", "Secret", [], ["s"], [_in_attribute(external())], imports)
    model.functions.append(function)
    return model


def _in_function_default() -> onnx.ModelProto:
    model = _in_function()
    attribute = model.functions[0].attribute_proto.add(name="value", type=onnx.AttributeProto.TENSOR)
    attribute.t.CopyFrom(external())
    del model.functions[0].node[0].attribute[:]
    model.functions[0].node[0].attribute.add(name="value", ref_attr_name="value", type=onnx.AttributeProto.TENSOR)
    return model


def _in_tensors() -> onnx.ModelProto:
    model = _adding()
    attribute = model.graph.node[0].attribute.add(name="more", type=onnx.AttributeProto.TENSORS)
    attribute.tensors.append(external())
    return model


def _in_graphs() -> onnx.ModelProto:
    model = _adding()
    attribute = model.graph.node[0].attribute.add(name="more", type=onnx.AttributeProto.GRAPHS)
    attribute.graphs.append(helper.make_graph([], "g", [], [], [external()]))
    return model


def _in_sparse() -> onnx.ModelProto:
    model = _adding()
    sparse = model.graph.sparse_initializer.add(dims=[20])
    sparse.values.CopyFrom(external())
    sparse.indices.CopyFrom(numpy_helper.from_array(np.arange(20), "i"))
    return model


def _in_sparse_indices() -> onnx.ModelProto:
    model = _adding()
    sparse = model.graph.sparse_initializer.add(dims=[20])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(20, np.float32), "s"))
    sparse.indices.CopyFrom(external())
    return model


def _in_sparse_attribute() -> onnx.ModelProto:
    node = helper.make_node("Constant", [], ["s"])
    attribute = node.attribute.add(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR)
    attribute.sparse_tensor.values.CopyFrom(external())
    return _adding(node)


def _in_training() -> onnx.ModelProto:
    model = _adding()
    model.training_info.add().algorithm.initializer.append(external())
    return model


def _in_two_parts() -> bytes:
    """The tensor in two messages, which are one to a reader: the first says where, the second what."""
    where = TensorProto(data_location=TensorProto.EXTERNAL)
    where.external_data.add(key="location", value="secret.bin")
    what = TensorProto(name="s", data_type=FLOAT, dims=[20])
    attribute = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR).SerializeToString()
    parts = b"".join(_field(5, part.SerializeToString()) for part in (where, what))
    node = helper.make_node("Constant", [], ["s"]).SerializeToString() + _field(5, attribute + parts)
    whole = _adding()
    add = whole.graph.node.pop()
    tail = _field(7, _field(1, node) + _field(1, add.SerializeToString()))
    return whole.SerializeToString() + tail


NAMING_FILES: dict[str, bytes] = {
    "initializer": _adding(weights=(external(),)).SerializeToString(),
    "initializer with a path": _adding(weights=(external("/etc/hostname"),)).SerializeToString(),
    "initializer that climbs": _adding(weights=(external("../secret.bin"),)).SerializeToString(),
    "initializer at an address": _adding(weights=(external("*/_ORT_MEM_ADDR_/*"),)).SerializeToString(),
    "initializer of the plan": _adding(weights=(external("attack.plan"),)).SerializeToString(),
    "attribute": _adding(_in_attribute(external())).SerializeToString(),
    "tensors": _in_tensors().SerializeToString(),
    "graphs": _in_graphs().SerializeToString(),
    "body": _in_body().SerializeToString(),
    "body of a body": _in_body_of_body().SerializeToString(),
    "function": _in_function().SerializeToString(),
    "default of a function": _in_function_default().SerializeToString(),
    "sparse values": _in_sparse().SerializeToString(),
    "sparse indices": _in_sparse_indices().SerializeToString(),
    "sparse attribute": _in_sparse_attribute().SerializeToString(),
    "training": _in_training().SerializeToString(),
    "two parts": _in_two_parts(),
}
"""Every place of a model where a tensor can say that it lies in a file."""


def nested(depth: int) -> bytes:
    """Branches in branches; deeper than the onnx package itself goes."""
    leaf = _branch("leaf", helper.make_node("Neg", ["x"], ["leaf"])).SerializeToString()
    graph = leaf
    for level in range(depth):
        node = helper.make_node("If", ["c"], ["y" if level == depth - 1 else f"z{level}"]).SerializeToString()
        for name, inner in (("then_branch", graph), ("else_branch", leaf)):
            attribute = onnx.AttributeProto(name=name, type=onnx.AttributeProto.GRAPH).SerializeToString()
            node += _field(5, attribute + _field(6, inner))
        graph = _branch(f"z{level}").SerializeToString() + _field(1, node)
    model = partition(
        helper.make_node("Neg", ["x"], ["unused"]), weights=(numpy_helper.from_array(np.array(True), "c"),)
    )
    return model.SerializeToString() + _field(7, _field(1, node))


def _branch(name: str, *nodes: Node) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(name, FLOAT, None)])
