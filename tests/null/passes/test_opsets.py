"""Raising the opset of a model: what may stay, what is written anew, and what stops it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from dovetail.passes._graph import interface_of
from dovetail.passes.opsets import _HARMLESS, _changes, explain_opset, model_opset, raise_opset
from tests.support.pass_graphs import make, ops, sample_inputs


def test_operators_that_only_got_more_types() -> None:
    model = make("g (float[n, 4] x) => (float[4, n] y) { a = Relu(x) b = Cast<to = 1>(a) y = Transpose(b) }", 13)
    assert explain_opset(model, 23) is None
    assert raise_opset(model, 23)
    assert model_opset(model) == 23
    assert ops(model) == ["Relu", "Cast", "Transpose"]


def test_axes_become_an_input() -> None:
    model = make("g (float[n, 4] x) => (float[n, 1] y) { y = ReduceMax<axes = [-1]>(x) }", 13)
    before = interface_of(model)
    assert raise_opset(model, 20)
    node = model.graph[0]
    assert "axes" not in node.attributes
    axes = node.inputs[1]
    assert axes is not None
    assert axes.const_value is not None
    assert axes.const_value.numpy().tolist() == [-1]
    assert interface_of(model) == before


def test_split_says_how_many() -> None:
    model = make("g (float[4] x) => (float[2] y, float[2] z) { y, z = Split(x) }", 13)
    assert raise_opset(model, 18)
    assert model.graph[0].attributes["num_outputs"].as_int() == 2


GRID = "g (float[1, 1, 2, 2] x, float[1, 1, 1, 2] p) => (float[1, 1, 1, 1] y) { y = GridSample(x, p) }"
GROUPS = """g (float[1, 4, 2] x, float[2] s, float[2] b) => (float[1, 4, 2] y)
{ y = GroupNormalization<num_groups = 2>(x, s, b) }"""
POOL = "g (float[1, 1, 4] x) => (float[1, 1, 3] y) { y = AveragePool<kernel_shape = [2], ceil_mode = 1>(x) }"
SOFTMAX = "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax(x) }"


@pytest.mark.parametrize(
    ("text", "opset", "version", "op"),
    [
        (GRID, 16, 20, "GridSample"),
        (GROUPS, 18, 21, "GroupNormalization"),
        (POOL, 20, 22, "AveragePool"),
        (SOFTMAX, 11, 13, "Softmax"),
    ],
)
def test_operators_that_became_others(text: str, opset: int, version: int, op: str) -> None:
    model = make(text, opset)
    reason = explain_opset(model, version)
    assert reason is not None
    assert op in reason
    assert not raise_opset(model, version)
    assert model_opset(model) == opset


def test_an_old_model() -> None:
    """What was an attribute in opset 11 is an input, and what was the same under another name is it still."""
    body = """a, b = Split<axis = 1, split = [1, 3]>(x) c = Unsqueeze<axes = [0]>(b) d = Squeeze<axes = [0]>(c)
    e = ReduceSum<axes = [1], keepdims = 1>(d) f = Softmax<axis = 1>(d) g = Add(e, f) y = Add(a, g)"""
    model = make(f"g (float[n, 4] x) => (float[n, 3] y) {{ {body} }}", 11)
    inputs = sample_inputs(model)
    before = ReferenceEvaluator(ir.to_proto(model)).run(None, inputs)
    assert raise_opset(model, 23)
    np.testing.assert_allclose(before[0], ReferenceEvaluator(ir.to_proto(model)).run(None, inputs)[0], rtol=1e-6)
    assert not any({"axes", "split"} & node.attributes.keys() for node in model.graph)


def test_a_node_that_nobody_could_run_there() -> None:
    model = make("g (float[4] x) => (float[4] y) { y = Relu(x) }", 13)
    assert not raise_opset(model, 14, serves=lambda node, version: version < 14)
    assert model_opset(model) == 13


def test_never_down() -> None:
    model = make("g (float[4] x) => (float[4] y) { y = Relu(x) }", 20)
    assert raise_opset(model, 14)
    assert model_opset(model) == 20


def test_an_opset_of_the_future() -> None:
    model = make("g (float[4] x) => (float[4] y) { y = Relu(x) }", 20)
    reason = explain_opset(model, 999)
    assert reason is not None
    assert "999" in reason


def test_bodies_count() -> None:
    text = """g (float[1, 1, 2, 2] x, float[1, 1, 1, 2] p, bool c) => (float[1, 1, 1, 1] y) {
    y = If (c) <then_branch = t () => (float[1, 1, 1, 1] a) { a = GridSample(x, p) },
                else_branch = e () => (float[1, 1, 1, 1] b) { b = ReduceSum(x) }> }"""
    assert not raise_opset(make(text, 16), 20)


@pytest.mark.parametrize(("op", "version"), [(op, version) for op in _HARMLESS for version in _HARMLESS[op]])
def test_the_table_names_versions_that_exist_and_need_it(op: str, version: int) -> None:
    assert onnx.defs.get_schema(op, version, "").since_version == version
    assert onnx.defs.get_schema(op, version - 1, "").since_version < version
    assert (op, version) not in _changes(op, version - 1, version)
