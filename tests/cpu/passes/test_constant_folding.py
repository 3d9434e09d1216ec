"""Constant folding: the same numbers with fewer nodes, and nothing folded that must stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator

from dovetail.network.importer.importer import import_model
from dovetail.passes import standard_passes
from dovetail.passes.base import run_passes
from dovetail.passes.clone import clone_model
from dovetail.passes.constant_folding import ConstantFolding

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
WEIGHTS = "<float[4] w = {1, 2, 3, 4}, float[4] v = {0.5, 0.5, 0.5, 0.5}, int64[2] s = {2, 6}>"


def make(text: str) -> ir.Model:
    return import_model(parser.parse_model(HEADER + text))


def run(model: ir.Model, **inputs: Any) -> list[Any]:
    proto = onnx.load_from_string(ir.to_proto(model).SerializeToString())
    return list(ReferenceEvaluator(proto).run(None, inputs))


def ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def fold(model: ir.Model, **options: Any) -> list[str]:
    """Fold, check that numbers and interface stay, and say what changed."""
    before = clone_model(model)
    result = run_passes(model, [ConstantFolding(**options)], check=True)
    inputs = {str(value.name): sample(value) for value in model.graph.inputs}
    for first, second in zip(run(before, **inputs), run(model, **inputs), strict=True):
        np.testing.assert_array_equal(first, second)
    return result.changed


def sample(value: ir.Value) -> Any:
    """Numbers for an input: its dynamic dims are 3."""
    assert value.dtype is not None
    shape = [dim if isinstance(dim, int) else 3 for dim in value.shape or ()]
    numbers = np.random.default_rng(3).standard_normal(shape)
    return (numbers > 0 if value.dtype == ir.DataType.BOOL else numbers).astype(value.dtype.numpy())


def test_a_chain_of_constants_becomes_one_weight() -> None:
    model = make(
        f"agraph (float[N,4] x) => (float[N,4] y) {WEIGHTS} {{ a = Add(w, v) b = Sqrt(a) c = Mul(b, w) y = Mul(x, c) }}"
    )
    changed = fold(model)
    assert ops(model) == ["Mul"]
    assert len(changed) == 3
    assert changed[0] == "constant_folding: folded 'Add' (Add)"
    value = model.graph.initializers["c"]
    assert (value.dtype, value.shape) == (ir.DataType.FLOAT, [4])


def test_constant_nodes_become_weights() -> None:
    model = make("agraph (float[N,2] x) => (float[N,2] y) { c = Constant<value_floats = [1.0, 2.0]>() y = Add(x, c) }")
    fold(model)
    assert ops(model) == ["Add"]
    assert list(model.graph.initializers) == ["c"]


def test_what_depends_on_inputs_stays() -> None:
    model = make(f"agraph (float[4] x) => (float[4] y) {WEIGHTS} {{ a = Add(x, w) b = Mul(a, v) y = Relu(b) }}")
    assert fold(model) == []
    assert ops(model) == ["Add", "Mul", "Relu"]


def test_shapes_of_fixed_inputs_are_constants() -> None:
    model = make(
        """agraph (float[3,4] x) => (float[A] y)
        { s = Shape(x) p = ReduceProd<keepdims = 1>(s) y = Reshape(x, p) }"""
    )
    fold(model)
    assert ops(model) == ["Reshape"]


def test_shapes_of_dynamic_inputs_are_not() -> None:
    model = make("agraph (float[N,4] x) => (int64[2] y) { s = Shape(x) y = Add(s, s) }")
    assert fold(model) == []


@pytest.mark.parametrize("kept", ["w", "v"])
def test_weights_to_keep_and_all_that_depends_on_them_stay(kept: str) -> None:
    model = make(
        f"""agraph (float[4] x) => (float[4] y) {WEIGHTS}
        {{ a = Add(w, v) b = Sqrt(a) c = Neg({"v" if kept == "w" else "w"}) d = Add(b, c) y = Mul(x, d) }}"""
    )
    changed = fold(model, keep=frozenset([kept]))
    assert changed == ["constant_folding: folded 'Neg' (Neg)"]
    assert ops(model) == ["Add", "Sqrt", "Add", "Mul"]
    assert kept in model.graph.initializers


def test_the_shape_of_a_kept_weight_may_be_folded() -> None:
    model = make(
        f"agraph (float[4] x) => (int64[1] y, float[4] z) {WEIGHTS} {{ n = Shape(w) y = Add(n, n) z = Mul(x, w) }}"
    )
    assert len(fold(model, keep=frozenset("w"))) == 1


def test_contents_of_kept_integers_are_not_used() -> None:
    model = make(f"agraph (float[3,4] x) => (float[A,B] y) {WEIGHTS} {{ t = Neg(s) u = Neg(t) y = Reshape(x, u) }}")
    twin = clone_model(model)
    assert len(fold(model)) == 2
    assert fold(twin, keep=frozenset("s")) == []


@pytest.mark.parametrize(
    "text",
    [
        "agraph (float[4] x) => (float[4] y) { r = RandomNormal<shape = [4]>() y = Add(x, r) }",
        f"agraph (float[4] x) => (float[4] y) {WEIGHTS} {{ r = RandomUniformLike(w) y = Add(x, r) }}",
        f"agraph (float[4] x) => (float[4] y) {WEIGHTS} {{ r = Bernoulli(v) y = Add(x, r) }}",
        f"agraph (float[4] x) => (float[4] y) {WEIGHTS} {{ r, m = Dropout(v) y = Add(x, r) }}",
    ],
)
def test_random_operators_stay(text: str) -> None:
    model = make(text)
    result = ConstantFolding()(model)
    assert result.changed == []
    assert len(model.graph) == 2


def test_quantized_weights_stay_compact() -> None:
    model = make(
        """agraph (float[4] x) => (float[4] y)
        <float[4] w = {1, 2, 3, 4}, float s = {0.5}, int8 z = {0}>
        { q = QuantizeLinear(w, s, z) d = DequantizeLinear(q, s, z) y = Mul(x, d) }"""
    )
    fold(model)
    assert ops(model) == ["DequantizeLinear", "Mul"]
    assert model.graph.initializers["q"].dtype == ir.DataType.INT8


def test_graph_outputs_stay_nodes() -> None:
    model = make(f"agraph (float[4] x) => (float[4] y, float[4] z) {WEIGHTS} {{ a = Neg(w) y = Neg(a) z = Add(x, a) }}")
    fold(model)
    assert ops(model) == ["Neg", "Add"]
    assert [value.name for value in model.graph.outputs] == ["y", "z"]


def test_large_results_are_left_alone() -> None:
    text = """agraph (float[1] x) => (float[A,B] y)
        <int64[2] s = {4096, 4096}> { c = ConstantOfShape(s) y = Add(x, c) }"""
    model = make(text)
    assert ConstantFolding()(model).changed == []
    assert len(ConstantFolding(max_growth_bytes=128 << 20)(model).changed) == 1


@pytest.mark.parametrize(
    "node",
    [
        "ConstantOfShape(huge)",
        "Expand(one, huge)",
        "Tile(one, huge)",
        "Range(zero, far, step)",
        "Pad(one, pads)",
        "MatMul(column, row)",
        "Add(column, row)",
    ],
)
def test_results_that_would_fill_the_memory_are_never_made(node: str) -> None:
    model = make(
        f"""agraph (float[1] x) => (float y)
        <int64[1] huge = {{1099511627776}}, float[1] one = {{1}}, int64 zero = {{0}}, int64 far = {{1099511627776}},
         int64 step = {{1}}, int64[2] pads = {{0, 1099511627776}}, float[1,1] column = {{1}}, float[1,1] row = {{1}}>
        {{ c = {node} d = CastLike(c, x) y = Add(x, d) }}"""
    )
    rows = np.ones((1 << 20, 1), np.float32)
    for name, array in (("column", rows), ("row", rows.T)):
        value = model.graph.initializers[name]
        value.const_value, value.shape = ir.tensor(array, name=name), ir.Shape(array.shape)
    twin = clone_model(model)
    twin.graph[0].outputs[0].shape = None
    assert ConstantFolding()(model).changed == []
    assert ConstantFolding()(twin).changed == []


def test_weights_may_be_large_when_they_do_not_grow() -> None:
    model = make("agraph (float[1] x) => (float[A,B] y) <float[1,1] w = {1}> { t = Transpose(w) y = Add(x, t) }")
    array = np.zeros((1 << 12, 1 << 11), np.float32)
    value = model.graph.initializers["w"]
    value.const_value, value.shape = ir.tensor(array, name="w"), ir.Shape(array.shape)
    model.graph[0].outputs[0].shape = ir.Shape(array.T.shape)
    assert len(ConstantFolding()(model).changed) == 1


def test_a_large_constant_node_becomes_a_weight() -> None:
    tensor = helper.make_tensor(
        "t", onnx.TensorProto.FLOAT, [1 << 23], np.zeros(1 << 23, np.float32).tobytes(), raw=True
    )
    nodes = [helper.make_node("Constant", [], ["c"], value=tensor), helper.make_node("Add", ["x", "c"], ["y"])]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    proto = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21)])
    model = import_model(proto)
    assert len(ConstantFolding()(model).changed) == 1
    assert list(model.graph.initializers) == ["c"]


def test_bodies_are_folded_and_control_flow_stays() -> None:
    model = make(
        f"""agraph (float[4] x, bool c) => (float[4] y) {WEIGHTS}
        {{ y = If (c) <then_branch = t () => (float[4] p) {{ a = Add(w, v) b = Neg(a) p = Add(x, b) }},
                       else_branch = e () => (float[4] q) {{ q = Mul(x, w) }}> }}"""
    )
    assert len(fold(model)) == 2
    body = model.graph[0].attributes["then_branch"].as_graph()
    assert [node.op_type for node in body] == ["Add"]
    assert "b" in body.initializers


def test_a_body_that_reads_a_kept_weight_makes_its_node_depend_on_it() -> None:
    model = make(
        """agraph (float[4] x) => (float[4] y) <bool c = {1}, float[4] w = {1, 2, 3, 4}, float[4] v = {1, 1, 1, 1}>
        { t = If (c) <then_branch = t () => (float[4] p) { p = Neg(w) },
                       else_branch = e () => (float[4] q) { q = Neg(v) }>
           u = Neg(t) y = Add(x, u) }"""
    )
    fold(model, keep=frozenset("w"))
    assert ops(model) == ["If", "Neg", "Add"]


def test_a_node_that_fails_is_left_to_fail_when_it_runs() -> None:
    model = make(
        """agraph (float[4] x) => (float[A] y) <float[2] w = {1, 2}, int64[1] i = {7}>
        { g = Gather<axis = 0>(w, i) y = Add(x, g) }"""
    )
    assert ConstantFolding()(model).changed == []


def test_notes_survive() -> None:
    model = make(f"agraph (float[4] x) => (float[4] y) {WEIGHTS} {{ a = Neg(w) b = Add(x, a) y = Neg(b) }}")
    model.graph[0].outputs[0].metadata_props["note"] = "a"
    model.graph[1].metadata_props["dovetail.layer"] = "add"
    model.graph[1].meta["dovetail.plugin"] = marker = object()
    fold(model)
    assert model.graph.initializers["a"].metadata_props["note"] == "a"
    assert model.graph[0].metadata_props["dovetail.layer"] == "add"
    assert model.graph[0].meta["dovetail.plugin"] is marker


def test_folding_twice_changes_nothing_more() -> None:
    model = make(f"agraph (float[4] x) => (float[4] y) {WEIGHTS} {{ a = Add(w, v) b = Sqrt(a) y = Mul(x, b) }}")
    assert run_passes(model, standard_passes(keep=frozenset()), check=True).changed
    assert run_passes(model, standard_passes(keep=frozenset()), check=True).changed == []
