"""Nodes that are only not sorted are sorted, in the graph, in bodies and in functions."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from dovetail.network.importer.importer import import_model
from dovetail.network.importer.order import sort_nodes

HEAD = '<ir_version: 10, opset_import: ["" : 21, "f" : 1]> '
UNSORTED = HEAD + "agraph (float[4] x) => (float[4] y) { y = Relu(t) t = Neg(s) s = Abs(x) }"
IN_BODIES = (
    HEAD
    + """agraph (float[4] x, bool c) => (float[4] y) {
    y = If(c) <then_branch = a () => (float[4] u) { u = Neg(r) r = Abs(t) },
               else_branch = b () => (float[4] v) { v = f.Twice(t) }>
    t = Neg(x) }
<domain: "f", opset_import: ["" : 21]>
Twice (p) => (q) { q = Add(h, h) h = Identity(p) }"""
)


def test_a_graph_is_sorted_and_what_was_given_is_left_alone() -> None:
    given = onnx.parser.parse_model(UNSORTED)
    before = given.SerializeToString()
    assert [node.op_type for node in sort_nodes(given).graph.node] == ["Abs", "Neg", "Relu"]
    assert [node.op_type for node in import_model(given).graph] == ["Abs", "Neg", "Relu"]
    assert given.SerializeToString() == before


def test_bodies_and_functions_are_sorted_too() -> None:
    model = sort_nodes(onnx.parser.parse_model(IN_BODIES))
    assert [node.op_type for node in model.graph.node] == ["Neg", "If"]
    bodies = [attribute.g for attribute in model.graph.node[1].attribute]
    assert [[node.op_type for node in body.node] for body in bodies] == [["Abs", "Neg"], ["Twice"]]
    assert [node.op_type for node in model.functions[0].node] == ["Identity", "Add"]
    import_model(model)


def test_a_sorted_model_is_not_copied() -> None:
    model = sort_nodes(onnx.parser.parse_model(UNSORTED))
    assert sort_nodes(model) is model


def test_a_model_in_memory_is_sorted_too() -> None:
    model = ir.from_proto(onnx.parser.parse_model(UNSORTED))
    assert [node.op_type for node in import_model(model).graph] == ["Abs", "Neg", "Relu"]
    assert [node.op_type for node in model.graph] == ["Relu", "Neg", "Abs"]


def test_large_weights_stay_in_place() -> None:
    weight = np.ones((200, 200), np.float32)
    model = onnx.parser.parse_model(
        HEAD + "agraph (float[200,200] x) => (float[200,200] y) { y = Relu(t) t = Add(x, w) }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    found = import_model(model.SerializeToString()).graph.initializers["w"].const_value
    assert found is not None
    np.testing.assert_array_equal(found.numpy(), weight)
