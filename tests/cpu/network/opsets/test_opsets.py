"""Models of every opset, compiled and run on the ``cpu`` provider, against NumPy, and against ONNX's own evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import dovetail as dt
from dovetail.errors import UnsupportedOpError
from dovetail.loggers import ILogger, Severity
from dovetail.network.importer.importer import import_model
from dovetail.network.opsets.convert import convert_opset
from tests.support.plugins import PlainCreator, ScalePlugin

X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
NEWEST = onnx.defs.onnx_opset_version()


class Notes(ILogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        self.messages.append(msg)


def make(text: str, opset: int) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def run(model: onnx.ModelProto, *feeds: Any) -> Any:
    return dt.compile(model, providers=["cpu"])(*feeds)


CHAIN = "agraph (float[2,3,4] x) => (float[2,3,4] y) { a = Relu(x) b = Sigmoid(a) c = Tanh(b) y = MatMul(c, w) }"


@pytest.mark.parametrize("opset", range(1, NEWEST + 1))
def test_a_chain_at_every_opset(opset: int) -> None:
    weights = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
    model = make(CHAIN, opset)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    expected = np.tanh(1 / (1 + np.exp(-np.maximum(X, 0)))) @ weights
    np.testing.assert_allclose(run(model, X), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 25, NEWEST])
def test_convolution_and_normalisation_at_every_opset(opset: int) -> None:
    chance = np.random.default_rng(2)
    image = chance.normal(size=(1, 2, 6, 6)).astype(np.float32)
    text = """agraph (float[1,2,6,6] x) => (float y) {
        c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w)
        n = BatchNormalization(c, s, b, m, v)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(n)
        y = GlobalAveragePool(p) }"""
    model = make(text, opset)
    if opset < 7:
        model.graph.node[1].attribute.append(helper.make_attribute("is_test", 1))
    if opset < 6:
        model.graph.node[1].attribute.append(helper.make_attribute("consumed_inputs", [0, 0, 0, 1, 1]))
    arrays = {"w": chance.normal(size=(3, 2, 3, 3)), "s": [1.5, 2, 0.5], "b": [0.1, 0.2, 0.3], "m": [0, 1, 2]}
    for name, array in {**arrays, "v": [1, 2, 3]}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    newest = onnx.ModelProto()
    newest.CopyFrom(model)
    newest.opset_import[0].version = 21
    newest.graph.node[1].ClearField("attribute")
    (expected,) = ReferenceEvaluator(newest).run(None, {"x": image})
    np.testing.assert_allclose(run(model, image), expected, rtol=1e-4, atol=1e-5)


OLD = {
    "Abs": ("Abs<consumed_inputs = [0]>(x)", lambda: np.abs(X)),
    "Clip": ("Clip<min = 0.0, max = 1.0, consumed_inputs = [0]>(x)", lambda: np.clip(X, 0, 1)),
    "LeakyRelu": ("LeakyRelu<alpha = 0.5, consumed_inputs = [0]>(x)", lambda: np.where(X < 0, 0.5 * X, X)),
    "Cast": ('Cast<to = "INT32">(x)', lambda: X.astype(np.int32)),
    "Dropout": ("Dropout<ratio = 0.5, is_test = 1>(x)", lambda: X),
    "Pad": (
        "Pad<paddings = [0, 0, 1, 0, 0, 2], value = 3.0>(x)",
        lambda: np.pad(X, [(0, 0), (0, 0), (1, 2)], constant_values=3),
    ),
    "Reshape": ("Reshape<shape = [4, -1]>(x)", lambda: X.reshape(4, -1)),
    "Concat": ("Concat(x, x)", lambda: np.concatenate([X, X], 1)),
    "Sum": ("Sum<consumed_inputs = [0, 0]>(x, x)", lambda: X + X),
    "GlobalLpPool": ("GlobalLpPool(x)", lambda: np.sqrt((X**2).sum(2, keepdims=True))),
    "LpPool": (
        "LpPool<kernel_shape = [2], strides = [2]>(x)",
        lambda: np.sqrt((X.reshape(2, 3, 2, 2) ** 2).sum(3)),
    ),
    "InstanceNormalization": (
        "InstanceNormalization<consumed_inputs = [0, 0, 0]>(x, s, s)",
        lambda: (X - X.mean(2, keepdims=True)) / np.sqrt(X.var(2, keepdims=True) + 1e-5) * S[:, None] + S[:, None],
    ),
}
S = np.array([1, 2, 3], np.float32)


@pytest.mark.parametrize("op", OLD)
def test_the_first_form_of_an_operator(op: str) -> None:
    call, expected = OLD[op]
    kind = "int32" if op == "Cast" else "float"
    text = f"agraph (float[2,3,4] x) => ({kind} y) <float[3] s = {{1, 2, 3}}> {{ y = {call} }}"
    np.testing.assert_allclose(run(make(text, 1), X), expected(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(("axis", "shape"), [(1, (3,)), (0, (2, 3)), (None, (4,)), (-2, (3,)), (0, (2,))])
@pytest.mark.parametrize("opset", [1, 6])
def test_broadcasting_along_an_axis(op: str, axis: int | None, shape: tuple[int, ...], opset: int) -> None:
    other = np.random.default_rng(3).uniform(1, 2, size=shape).astype(np.float32)
    attributes = "broadcast = 1" + ("" if axis is None else f", axis = {axis}")
    dims = ",".join(map(str, shape))
    model = make(f"agraph (float[2,3,4] x, float[{dims}] z) => (float y) {{ y = {op}<{attributes}>(x, z) }}", opset)
    start = 3 - len(shape) if axis is None else axis % 3
    wide = other.reshape((*shape, *[1] * (3 - start - len(shape))))
    expected = {"Add": X + wide, "Sub": X - wide, "Mul": X * wide, "Div": X / wide}[op]
    np.testing.assert_allclose(run(model, X, other), expected, rtol=1e-6)


@pytest.mark.parametrize(("op", "function"), [("Less", np.less), ("Greater", np.greater), ("Pow", np.power)])
def test_comparing_along_an_axis(op: str, function: Any) -> None:
    other = np.array([0.5, 1, 2], np.float32)
    kind = "float" if op == "Pow" else "bool"
    model = make(f"agraph (float[2,3,4] x, float[3] z) => ({kind} y) {{ y = {op}<broadcast = 1, axis = 1>(x, z) }}", 1)
    np.testing.assert_allclose(run(model, np.abs(X), other), function(np.abs(X), other[:, None]), rtol=1e-5)


def test_logic_along_an_axis() -> None:
    first, second = X > 0, np.array([True, False, True])
    model = make("agraph (bool[2,3,4] x, bool[3] z) => (bool y) { y = Xor<broadcast = 1, axis = 1>(x, z) }", 1)
    np.testing.assert_array_equal(run(model, first, second), first ^ second[:, None])


@pytest.mark.parametrize("opset", [1, 6])
def test_slopes_belonged_to_the_channels(opset: int) -> None:
    model = make("agraph (float[2,3,4] x, float[3] s) => (float y) { y = PRelu(x, s) }", opset)
    np.testing.assert_allclose(run(model, X, S), np.where(X < 0, X * S[:, None], X), rtol=1e-6)


def test_other_parameters_that_became_inputs() -> None:
    model = make("agraph (float[2,3,4] x) => (float y) <int64 t = {3}, int64 a = {1}> { y = Tile(x, t, a) }", 1)
    np.testing.assert_array_equal(run(model, X), np.tile(X, (1, 3, 1)))
    model = make(
        "agraph (float[2,3,4] x) => (float y, float z) <int64[2] s = {1, 3}> { y, z = Split<axis = 2>(x, s) }", 1
    )
    parts = run(model, X)
    np.testing.assert_array_equal(parts["z"], X[:, :, 1:])
    image = X[None]
    text = "agraph (float[1,2,3,4] x) => (float y) { y = Upsample<height_scale = 2.0, width_scale = 3.0>(x) }"
    np.testing.assert_array_equal(run(make(text, 1), image), image.repeat(2, 2).repeat(3, 3))
    text = "agraph (float[1,2,3,4] x) => (float y) { y = Upsample<scales = [1.0, 1.0, 2.0, 3.0]>(x) }"
    np.testing.assert_array_equal(run(make(text, 7), image), image.repeat(2, 2).repeat(3, 3))


def test_a_gemm_of_old() -> None:
    text = "agraph (float[2,3] a, float[3,4] b, float[4] c) => (float y) { y = Gemm<broadcast = 1>(a, b, c) }"
    a, b, c = X[:, :, 0], X[0], X[0, 0]
    np.testing.assert_allclose(run(make(text, 1), a, b, c), a @ b + c, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_of_old(op: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    chance = np.random.default_rng(4)
    x, w, r = (
        chance.normal(size=size).astype(np.float32) for size in ((3, 2, 4), (1, gates * 5, 4), (1, gates * 5, 5))
    )
    text = f"""agraph (float[3,2,4] x, float[1,{gates * 5},4] w, float[1,{gates * 5},5] r) => (float y) {{
        y, h = {op}<hidden_size = 5>(x, w, r) }}"""
    (expected,) = ReferenceEvaluator(make(text, 14)).run(None, {"x": x, "w": w, "r": r})
    np.testing.assert_allclose(run(make(text, 1), x, w, r), expected, rtol=1e-4, atol=1e-5)


def test_old_forms_in_bodies() -> None:
    text = """agraph (float[2,3,4] x, float[3] z, bool c) => (float[2,3,4] y) {
        y = If (c) <then_branch = t () => (float[2,3,4] p) { p = Add<broadcast = 1, axis = 1>(x, z) },
                    else_branch = e () => (float[2,3,4] q) { q = Neg<consumed_inputs = [0]>(x) }> }"""
    model = make(text, 5)
    np.testing.assert_allclose(run(model, X, S, np.array(True)), X + S[:, None], rtol=1e-6)
    np.testing.assert_allclose(run(model, X, S, np.array(False)), -X)


def test_a_plugin_among_old_operators_is_left_alone() -> None:
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("Scale", ScalePlugin), "")
    text = (
        "agraph (float[2,3,4] x) => (float[2,3,4] y) { a = Relu<consumed_inputs = [0]>(x) y = Scale<factor = 2.0>(a) }"
    )
    notes = Notes()
    model = import_model(make(text, 1), registry=registry, logger=notes)
    assert [node.op_type for node in model.graph] == ["Relu", "PluginV3"]
    assert any("converted from opset 1 to 9" in text for text in notes.messages)


@pytest.mark.parametrize(
    ("text", "opset", "words"),
    [
        ("agraph (float[2,3] x, float t, float a) => (float y) { y = Tile(x, t, a) }", 1, "must be a constant"),
        ('agraph (float[2,3] x) => (float y) { y = Cast<to = "FLOAT99">(x) }', 1, "there is no type 'FLOAT99'"),
        (
            "agraph (float[2,3,4] x, float[3] s) => (float y) { y = BatchNormalization<spatial = 0>(x, s, s, s, s) }",
            7,
            "spatial = 0",
        ),
        ("agraph (float[2,3,4] x) => (float y) { y = LpPool<kernel_shape = [2], p = 1.5>(x) }", 1, "p = 1.5"),
    ],
)
def test_old_forms_without_a_new_one(text: str, opset: int, words: str) -> None:
    with pytest.raises(UnsupportedOpError, match=words) as caught:
        import_model(make(text, opset))
    assert f"opset {opset}" in str(caught.value)


def test_a_rank_that_is_not_known() -> None:
    text = "agraph (float x, float[3] z) => (float y) { y = Add<broadcast = 1, axis = 1>(x, z) }"
    model = make(text, 6)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedOpError, match="must have a known rank"):
        import_model(model)


# ONNX's own converter


def only(*ops: str, since: int) -> Any:
    """Kernels for everything, but for these only from an opset on."""
    return lambda op, domain, opset: op not in ops or opset >= since


def test_the_converter_is_used_where_no_kernel_serves_an_opset() -> None:
    notes = Notes()
    text = "agraph (float[2,3,4] x) => (float[2,3] y) { a = Relu(x) y = ReduceSum<axes = [2], keepdims = 0>(a) }"
    model = import_model(make(text, 11), logger=notes, kernels=only("ReduceSum", since=13))
    assert model.opset_imports[""] == 13
    assert [node.op_type for node in model.graph][-1] == "ReduceSum"
    assert any("from opset 11 to 13" in message and "ReduceSum" in message for message in notes.messages)
    np.testing.assert_allclose(dt.compile(model, providers=["cpu"])(X), np.maximum(X, 0).sum(2), rtol=1e-5)


def test_the_converter_gets_neither_weights_nor_foreign_nodes() -> None:
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("Scale", ScalePlugin), "")
    text = """agraph (float[2,3,4] x) => (float y) {
        a = Mul(x, w) b = Scale<factor = 2.0>(a) y = ReduceSum<axes = [2]>(b) }"""
    proto = make(text, 11)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((500, 2, 3, 4), np.float32), "w"))
    proto.graph.node[0].metadata_props.add(key="note", value="kept")
    model = import_model(proto, registry=registry, kernels=only("ReduceSum", since=13))
    assert [node.op_type for node in model.graph if node.op_type != "Constant"] == ["Mul", "PluginV3", "ReduceSum"]
    assert next(iter(model.graph.initializers)) == "w"
    assert model.graph.inputs[0].name == "x"
    assert len(model.graph.inputs) == 1
    assert model.graph[0].metadata_props["note"] == "kept"


def test_what_changes_in_silence_is_not_given_to_the_converter() -> None:
    text = """agraph (float[1,4,2] x, float[2] s) => (float y) {
        a = GroupNormalization<num_groups = 2>(x, s, s) y = Identity(a) }"""
    with pytest.raises(UnsupportedOpError) as caught:
        import_model(make(text, 18), kernels=only("Identity", since=21))
    assert "GroupNormalization means something else at opset 21" in str(caught.value)
    assert "node 'Identity' (Identity, opset 18): no provider has a kernel for it" in str(caught.value)


def test_the_converter_s_words_are_passed_on() -> None:
    import onnx_ir as ir

    model = ir.from_proto(make("agraph (float[2] x) => (float[2] y) { y = Relu(x) }", 13))
    for node in model.graph:
        node.op_type = "NoSuchOperator"
        node.name = "n"
    with pytest.raises(UnsupportedOpError, match="opset 13 to 15"):
        convert_opset(model, 15, lambda node: False)


def test_weights_of_several_types_survive(tmp_path: Any) -> None:
    proto = make(
        "agraph (float[2,3,4] x) => (float y) { a = Cast<to = 1>(w) b = ReduceSum<axes = [0]>(a) y = Add(x, b) }", 11
    )
    array = np.random.default_rng(5).integers(-5, 5, size=(9000, 4)).astype(np.int8)
    proto.graph.initializer.append(numpy_helper.from_array(array, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    model = import_model(path, kernels=only("ReduceSum", since=13))
    value = model.graph.initializers["w"].const_value
    assert value is not None
    np.testing.assert_array_equal(value.numpy(), array)
    assert int(value.dtype) == TensorProto.INT8
