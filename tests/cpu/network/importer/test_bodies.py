"""Operators that ONNX defines by others: each one expanded by its body gives what its own kernel gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import dovetail as dt
from dovetail.loggers import ILogger, Severity
from dovetail.network.importer.bodies import expand_bodies
from dovetail.network.importer.importer import import_model
from dovetail.network.importer.kernels import find_kernel_in
from dovetail.network.importer.problems import Problems

CHANCE = np.random.default_rng(0)
X = CHANCE.normal(size=(2, 4, 6)).astype(np.float32)
S = CHANCE.uniform(0.5, 1.5, size=4).astype(np.float32)
L = CHANCE.uniform(0.5, 1.5, size=6).astype(np.float32)


class Notes(ILogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        self.messages.append(msg)


def without(*ops: str) -> Callable[[str, str, int], bool]:
    """The kernels of ``cpu`` but these."""
    find = find_kernel_in()
    return lambda op, domain, opset: op not in ops and find(op, domain, opset)


def make(body: str, opset: int) -> onnx.ModelProto:
    head = f'<ir_version: 10, opset_import: ["" : {opset}]>'
    return parser.parse_model(f"{head} agraph (float[2,4,6] x, float[4] s, float[6] l) => (float y) {{ {body} }}")


CASES = [
    ("Softplus", "y = Softplus(x)", 21),
    ("Softplus", "y = Softplus(x)", 22),
    ("Softsign", "y = Softsign(x)", 21),
    ("Elu", "y = Elu<alpha = 0.5>(x)", 22),
    ("Elu", "y = Elu(x)", 22),
    ("Selu", "y = Selu(x)", 22),
    ("HardSigmoid", "y = HardSigmoid<alpha = 0.3>(x)", 22),
    ("HardSwish", "y = HardSwish(x)", 22),
    ("Mish", "y = Mish(x)", 22),
    ("ThresholdedRelu", "y = ThresholdedRelu<alpha = 0.2>(x)", 22),
    ("Celu", "y = Celu<alpha = 0.5>(x)", 21),
    ("Celu", "y = Celu<alpha = 0.5>(x)", 28),
    ("Gelu", "y = Gelu(x)", 21),
    ("Gelu", 'y = Gelu<approximate = "tanh">(x)', 21),
    ("Swish", "y = Swish<alpha = 0.5>(x)", 24),
    ("Shrink", "y = Shrink<lambd = 0.3>(x)", 21),
    ("LeakyRelu", "y = LeakyRelu<alpha = 0.3>(x)", 21),
    ("Relu", "y = Relu(x)", 21),
    ("PRelu", "y = PRelu(x, l)", 21),
    ("Clip", "z = Constant<value_float = 0.1>() y = Clip(x, z)", 21),
    ("CastLike", "i = Constant<value_ints = [1]>() t = CastLike(x, i) y = Cast<to = 1>(t)", 21),
    ("Softmax", "y = Softmax<axis = 1>(x)", 21),
    ("LogSoftmax", "y = LogSoftmax(x)", 21),
    ("LayerNormalization", "y = LayerNormalization(x, l)", 21),
    ("LayerNormalization", "y = LayerNormalization(x, l, l)", 17),
    ("RMSNormalization", "y = RMSNormalization(x, l)", 23),
    ("GroupNormalization", "y = GroupNormalization<num_groups = 2>(x, s, s)", 21),
    ("MeanVarianceNormalization", "y = MeanVarianceNormalization<axes = [0, 2]>(x)", 21),
    ("ReduceL1", "a = Constant<value_ints = [1]>() y = ReduceL1(x, a)", 21),
    ("ReduceL2", "a = Constant<value_ints = [1]>() y = ReduceL2(x, a)", 21),
    ("ReduceSumSquare", "a = Constant<value_ints = [1]>() y = ReduceSumSquare<keepdims = 0>(x, a)", 21),
    ("ReduceLogSumExp", "a = Constant<value_ints = [1]>() y = ReduceLogSumExp(x, a)", 21),
    ("GreaterOrEqual", "t = GreaterOrEqual(x, l) y = Cast<to = 1>(t)", 21),
    ("Range", "a = Constant<value_float = 1.0>() b = Constant<value_float = 7.0>() y = Range(a, b, a)", 21),
    ("HannWindow", "n = Constant<value_int = 8>() y = HannWindow(n)", 21),
    ("CenterCropPad", "n = Constant<value_ints = [3]>() y = CenterCropPad<axes = [1]>(x, n)", 21),
]


@pytest.mark.parametrize(
    ("op", "body", "opset"), CASES, ids=[f"{op}-{opset}-{i}" for i, (op, _, opset) in enumerate(CASES)]
)
def test_a_body_gives_what_the_kernel_gives(op: str, body: str, opset: int) -> None:
    proto, notes = make(body, opset), Notes()
    expected = dt.compile(proto, providers=["cpu"])(X, S, L)
    model = import_model(proto, kernels=without(op), logger=notes)
    assert op not in {node.op_type for node in model.graph.all_nodes()}
    assert any(f"expanded 1 node(s) of {op}" in message for message in notes.messages)
    np.testing.assert_allclose(dt.compile(model, providers=["cpu"])(X, S, L), expected, rtol=1e-4, atol=1e-5)


def test_bodies_in_bodies() -> None:
    missing = ("Mish", "Softplus", "CastLike", "LayerNormalization", "Elu")
    proto = make("a = Mish(x) b = LayerNormalization(a, l) y = Elu(b)", 21)
    expected = dt.compile(proto, providers=["cpu"])(X, S, L)
    model = import_model(proto, kernels=without(*missing))
    assert not {node.op_type for node in model.graph} & set(missing)
    np.testing.assert_allclose(dt.compile(model, providers=["cpu"])(X, S, L), expected, rtol=1e-4, atol=1e-5)
    names = [value.name for node in model.graph for value in node.outputs]
    assert len(set(names)) == len(names)
    onnx.checker.check_model(ir.to_proto(model))


def test_results_that_a_node_does_not_have() -> None:
    for outputs in ("y", 'y, "", i', "y, m, i"):
        proto = make(f"{outputs} = LayerNormalization(x, l)", 21)
        model = import_model(proto, kernels=without("LayerNormalization"))
        assert [value.name for value in model.graph.outputs] == ["y"]
        assert len([node for node in model.graph if node.op_type == "LayerNormalization"]) == 0


def test_inside_control_flow() -> None:
    text = """y = If (c) <then_branch = t () => (float[2,4,6] p) { p = Elu(x) },
                          else_branch = e () => (float[2,4,6] q) { q = Mish(x) }>"""
    proto = make(text, 21)
    proto.graph.input.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    expected = dt.compile(proto, providers=["cpu"])(X, S, L, np.array(False))
    model = import_model(proto, kernels=without("Elu", "Mish"))
    assert {"Elu", "Mish"}.isdisjoint(node.op_type for node in model.graph.all_nodes())
    result = dt.compile(model, providers=["cpu"])(X, S, L, np.array(False))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_a_sequence_map_becomes_a_loop_and_keeps_what_it_captures() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
        agraph (seq(float[N]) s, float[N] k, float[N] z) => (seq(float[N]) y) {
            y = SequenceMap (s, k) <body = b (float[N] a, float[N] c) => (float[N] r) {
                q = Add(a, c) r = Mul(q, z) }> }"""
    model = ir.from_proto(parser.parse_model(text))
    for index, node in enumerate(model.graph.all_nodes()):
        node.name = f"n{index}"
    problems = Problems()
    lines = expand_bodies(model, lambda node: node.op_type != "SequenceMap", problems)
    assert lines == ["expanded 1 node(s) of SequenceMap (opset 21)"]
    assert not len(problems)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto)
    feeds: dict[str, Any] = {"s": [X[0, 0], X[0, 1]], "k": X[0, 2], "z": X[0, 3]}
    (result,) = ReferenceEvaluator(proto).run(None, feeds)
    np.testing.assert_allclose(result[1], (X[0, 1] + X[0, 2]) * X[0, 3], rtol=1e-6)


def test_a_model_is_converted_to_where_a_body_starts() -> None:
    """ReduceL2 has a body since opset 18; a model before that has its axes elsewhere."""
    proto = make("y = ReduceL2<axes = [1]>(x)", 13)
    model = import_model(proto, kernels=without("ReduceL2"))
    assert model.opset_imports[""] == 18
    expected = np.sqrt((X**2).sum(1, keepdims=True))
    np.testing.assert_allclose(dt.compile(model, providers=["cpu"])(X, S, L), expected, rtol=1e-5)


def test_nothing_is_expanded_when_there_is_a_kernel() -> None:
    notes = Notes()
    model = import_model(make("y = LayerNormalization(x, l)", 21), logger=notes)
    assert [node.op_type for node in model.graph] == ["LayerNormalization"]
    assert not any("expanded" in message for message in notes.messages)
