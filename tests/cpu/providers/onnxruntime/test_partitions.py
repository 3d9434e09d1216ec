"""Models that ONNX Runtime takes whole, in parts, and not at all: same results, from memory, a file and after refit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from dovetail.plan.walk import walk_steps
from tests.support.plugins import PlainCreator, ScalePlugin

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 8), np.float32)


def _weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32), name)


def _chain(*ops: Any, weights: list[onnx.TensorProto], opset: int = 17, dim: Any = "n") -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [dim, 8]) for n in ("x", "y")]
    graph = helper.make_graph(list(ops), "chain", ports[:1], ports[1:], weights)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("test", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _plain(opset: int = 17) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Add", ["b", "bias"], ["y"], name="third"),
    ]
    return _chain(*nodes, weights=[_weight("w", 8, 8), _weight("bias", 8)], opset=opset)


def _cut() -> tuple[onnx.ModelProto, Any]:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("TestScale", ["a"], ["b"], domain="test", factor=3.0),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("TestScale", ["c"], ["d"], domain="test", factor=0.5),
        helper.make_node("Tanh", ["d"], ["e"]),
        helper.make_node("Add", ["e", "bias"], ["y"]),
    ]
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", lambda factor: ScalePlugin(factor)), "")
    return _chain(*nodes, weights=[_weight("w", 8, 8), _weight("bias", 8)]), registry


def _kinds(engine: Any) -> list[tuple[str, str]]:
    return [(step.kind, step.provider) for program in engine.manifest.programs for step in walk_steps(program)]


def _expected(model: onnx.ModelProto, x: Any, **compile_args: Any) -> Any:
    return dt.compile(model, providers=["cpu"], **compile_args)(x)


@pytest.mark.parametrize("opset", [9, 13, 17, 21, 26, 27, 28])
def test_a_model_is_one_session_whatever_its_opset(opset: int) -> None:
    engine = dt.compile(_plain(opset))
    assert _kinds(engine) == [("partition", "onnxruntime")]
    np.testing.assert_allclose(engine(X), _expected(_plain(opset), X), rtol=1e-5, atol=1e-6)


def test_plugins_cut_a_model_and_shapes_may_change() -> None:
    model, registry = _cut()
    engine = dt.compile(model, registry=registry)
    assert [kind for kind, _ in _kinds(engine)] == ["partition", "plugin", "partition", "plugin", "partition"]
    for rows in (2, 5, 1, 5, 700, 0):
        x = RNG.standard_normal((rows, 8), np.float32)
        expected = _expected(model, x, registry=registry)
        np.testing.assert_allclose(engine(x), expected, rtol=1e-5, atol=1e-6)


def test_an_input_array_that_is_changed_or_replaced_between_runs_is_read_again() -> None:
    model, registry = _cut()
    engine = dt.compile(model, registry=registry)
    x = X.copy()
    first = engine(x)
    x *= 2
    assert not np.allclose(engine(x), first)
    results = [engine(np.full((2, 8), value, np.float32)) for value in range(6)]
    for value, result in enumerate(results):
        x = np.full((2, 8), value, np.float32)
        np.testing.assert_allclose(result, _expected(model, x, registry=registry), rtol=1e-5, atol=1e-6)


def test_results_belong_to_the_caller() -> None:
    engine = dt.compile(_plain())
    first = engine(X)
    kept = first.copy()
    for _ in range(5):
        engine(X + 1)
    np.testing.assert_array_equal(first, kept)
    first[:] = 0
    np.testing.assert_array_equal(engine(X), kept)


def test_a_saved_plan_maps_its_weights_and_needs_no_onnx(tmp_path: Path) -> None:
    model, registry = _cut()
    engine = dt.compile(model, registry=registry)
    expected = engine(X)
    path = tmp_path / "cut model.plan"
    engine.save(path)
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestScale", lambda factor: ScalePlugin(factor)), "")
    with runtime.load_engine(path) as loaded:
        np.testing.assert_array_equal(loaded(X), expected)
    np.testing.assert_array_equal(runtime.deserialize_cuda_engine(path.read_bytes())(X), expected)


def test_addresses_bound_in_a_context_are_written(tmp_path: Path) -> None:
    engine = dt.compile(_plain(), shapes={"x": (2, 8)})
    context = engine.create_execution_context()
    result = np.empty((2, 8), np.float32)
    context.set_input_shape("x", (2, 8))
    context.set_tensor_address("x", X.ctypes.data)
    context.set_tensor_address("y", result.ctypes.data)
    for _ in range(3):
        result[:] = -1
        assert context.execute_async_v3(0)
        np.testing.assert_allclose(result, _expected(_plain(), X), rtol=1e-5, atol=1e-6)
    other = np.empty((2, 8), np.float32)
    context.set_tensor_address("y", other.ctypes.data)
    context.execute_async_v3(0)
    np.testing.assert_array_equal(other, result)
    np.testing.assert_allclose(context.run([X + 1])[0], _expected(_plain(), X + 1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(other, result)


def test_a_partition_is_stored_once_for_all_profiles() -> None:
    shapes = [{"x": ((1, 8), (2, 8), (4, 8))}, {"x": ((5, 8), (6, 8), (9, 8))}]
    engine = dt.compile(_plain(), profiles=shapes)
    kinds = [record.kind for record in engine.manifest.blobs.values()]
    assert kinds.count("payload") == 1
    for rows in (3, 9):
        x = RNG.standard_normal((rows, 8), np.float32)
        np.testing.assert_allclose(engine(x), _expected(_plain(), x), rtol=1e-5, atol=1e-6)


def test_control_flow_that_it_can_run_is_taken_whole() -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, ["x"], [f"{name}_y"])], name, [], [out])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("then", "Neg"), else_branch=branch("else", "Abs")),
    ]
    model = _chain(*nodes, weights=[numpy_helper.from_array(np.zeros((), np.float32), "zero")])
    engine = dt.compile(model)
    assert _kinds(engine) == [("partition", "onnxruntime")]
    for x in (np.ones((2, 8), np.float32), -np.ones((2, 8), np.float32)):
        np.testing.assert_array_equal(engine(x), _expected(model, x))


def test_what_it_has_no_kernel_for_goes_to_the_next_provider_and_is_told() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Swish", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    model = _chain(*nodes, weights=[], opset=24)
    engine = dt.compile(model)
    np.testing.assert_allclose(engine(X), _expected(model, X), rtol=1e-5, atol=1e-6)


def test_a_layer_can_be_given_to_a_provider_by_name() -> None:
    config = dt.BuilderConfig()
    config.layer_providers = {"sec*": "cpu"}
    engine = dt.compile(_plain(), config=config)
    assert [provider for _, provider in _kinds(engine)] == ["onnxruntime", "cpu", "onnxruntime"]
    np.testing.assert_allclose(engine(X), _expected(_plain(), X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{"threads": "-1"}, {"threads": "many"}, {"pool": "mine"}, {"colour": "red"}])
def test_wrong_options_are_named(options: dict[str, str]) -> None:
    from dovetail.provider.loader import get_provider

    with pytest.raises(dt.ProviderError, match="onnxruntime"):
        get_provider("onnxruntime", options)


def test_a_half_precision_model_is_one_partition() -> None:
    weight = numpy_helper.from_array(RNG.standard_normal((8, 8)).astype(np.float16), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    model = _chain(*nodes, weights=[weight])
    for port in (model.graph.input[0], model.graph.output[0]):
        port.type.tensor_type.elem_type = TensorProto.FLOAT16
    engine = dt.compile(model)
    assert _kinds(engine) == [("partition", "onnxruntime")]
    x = X.astype(np.float16)
    np.testing.assert_allclose(engine(x), _expected(model, x), rtol=2e-2, atol=2e-3)


def test_users_sessions_go_on_beside_a_whole_model(tmp_path: Path) -> None:
    """Only models in several parts make the pool that ONNX Runtime wants everybody to share; hence a new process."""
    code = (
        "import sys, numpy as np, onnxruntime, dovetail\n"
        "engine = dovetail.compile(sys.stdin.buffer.read())\n"
        "engine(np.zeros((2, 8), np.float32))\n"
        "engine.save(sys.argv[1])\n"
        "x = np.ones((2, 8), np.float32)\n"
        "model = dovetail.load(sys.argv[1])\n"
        "session = onnxruntime.InferenceSession(open(sys.argv[2], 'rb').read())\n"
        "np.testing.assert_allclose(session.run(None, {'x': x})[0], model(x), rtol=1e-5)\n"
    )
    data = _plain().SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    paths = [str(tmp_path / name) for name in ("m.plan", "m.onnx")]
    done = subprocess.run([sys.executable, "-c", code, *paths], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_node_that_only_the_host_takes_is_told_and_is_an_error_when_strict() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.BOOL),
        helper.make_node("ReduceMax", ["a"], ["b"], name="odd"),
        helper.make_node("Cast", ["b"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    model = _chain(*nodes, weights=[], opset=20)
    lines: list[str] = []

    class Listener(dt.ILogger):
        def log(self, severity: Any, msg: str) -> None:
            lines.append(msg)

    dt.compile(model, providers=["onnxruntime"], logger=Listener())
    assert sum("'odd' (ReduceMax)" in line and "go to 'cpu'" in line for line in lines) == 1
    with pytest.raises(dt.UnsupportedOpError, match="add 'cpu' to the providers"):
        dt.compile(model, providers=["onnxruntime"], strict=True)
    assert dt.compile(model, strict=True) is not None
