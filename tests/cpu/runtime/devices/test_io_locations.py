"""Locations of engine inputs and outputs: decided by types and by the caller, never by the steps that fell back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, parser

import dovetail as dt
from dovetail.errors import BuildError, InputError
from dovetail.plugin import as_array
from dovetail.provider.devices import MemoryAccess
from dovetail.runtime.embedded.context import EmbeddedContext
from dovetail.session import InferenceSession
from dovetail.testing import HostDevice, host_device
from tests.support.device_models import X, build, chain, expected, make_model
from tests.support.plugins import PlainCreator, ScalePlugin

DEVICE, HOST = dt.TensorLocation.DEVICE, dt.TensorLocation.HOST
ALL_OPS = ("MatMul", "Relu", "Softmax", "Add")


def locations(engine: dt.Engine) -> dict[str, dt.TensorLocation]:
    return {name: engine.get_tensor_location(name) for name in engine.tensor_names}


def parse(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')


def run_by_address(
    engine: dt.Engine, device: HostDevice, arrays: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Run with an address for each tensor, in memory of the kind that the engine reports."""
    context = engine.create_execution_context()
    bound: dict[str, Any] = {}
    for name, array in arrays.items():
        bound[name] = array if engine.get_tensor_location(name) is HOST else device.to_device(array)
        context.set_input_shape(name, array.shape)
    for name in engine.output_names:
        dtype = np.dtype(engine.tensor(name).dtype)
        is_host = engine.get_tensor_location(name) is HOST
        bound[name] = np.empty(shapes[name], dtype) if is_host else device.empty(shapes[name], dtype)
    for name, array in bound.items():
        context.set_tensor_address(name, array.ctypes.data if isinstance(array, np.ndarray) else array.address)
    context.execute_async_v3(0)
    found = {name: bound[name] for name in engine.output_names}
    return {n: a if isinstance(a, np.ndarray) else device.to_host(a) for n, a in found.items()}


# one unsupported operator


@pytest.mark.parametrize("unsupported", [*ALL_OPS, "all"])
def test_an_unsupported_operator_moves_no_input_or_output(unsupported: str) -> None:
    """Wherever the operator is: first, in the middle, last, or the only ones."""
    ops = [] if unsupported == "all" else [op for op in ALL_OPS if op != unsupported]
    with host_device(ops=ops) as device:
        engine = build(chain())
        assert locations(engine) == {"x": DEVICE, "y": DEVICE}
        assert {engine.get_tensor_memory(name) for name in "xy"} == {"host_device"}
        found = run_by_address(engine, device, {"x": X}, {"y": X.shape})
        np.testing.assert_allclose(found["y"], expected(chain(), X), rtol=1e-5)
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-5)
        np.testing.assert_allclose(engine(device.to_device(X)), expected(chain(), X), rtol=1e-5)


@pytest.mark.parametrize("is_open", [False, True])
def test_profiles_and_open_engines_have_the_same_locations(is_open: bool) -> None:
    with host_device(ops=["Relu"]) as device:
        config = dt.BuilderConfig()
        for rows in () if is_open else (4, 9):
            profile = dt.OptimizationProfile()
            profile.set_shape("x", (1, 8), (rows, 8), (rows, 8))
            config.add_optimization_profile(profile)
        engine = build(chain(), config=config)
        assert locations(engine) == {"x": DEVICE, "y": DEVICE}
        for index in range(engine.num_optimization_profiles):
            context = engine.create_execution_context()
            context.set_optimization_profile_async(index)
            source, target = device.to_device(X), device.empty(X.shape, np.float32)
            context.set_input_shape("x", X.shape)
            context.execute_v2([source.address, target.address]) if is_open else None
            context.set_tensor_address("x", source.address)
            context.set_tensor_address("y", target.address)
            context.execute_async_v3(0)
            np.testing.assert_allclose(device.to_host(target), expected(chain(), X), rtol=1e-5)


BODIES = {
    "if": """(float[2,3] x, bool c) => (float[2,3] y)
        { y = If (c) <then_branch = t () => (float[2,3] a) { b = Sin(x) a = Relu(b) },
                      else_branch = e () => (float[2,3] d) { d = Neg(x) }> }""",
    "loop": """(float[2,3] x, int64 n) => (float[2,3] y)
        <bool on = {1}>
        { y = Loop (n, on, x) <body = b (int64 i, bool c, float[2,3] v) => (bool k, float[2,3] w)
            { k = Identity(c) s = Sin(v) w = Relu(s) }> }""",
}


@pytest.mark.parametrize("ops", [["Relu"], ["Sin"], [], ["Relu", "Sin", "Neg"]])
@pytest.mark.parametrize("kind", BODIES)
def test_bodies_of_control_flow_change_no_location(kind: str, ops: list[str]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    second = np.array(True) if kind == "if" else np.array(3, np.int64)
    with host_device(ops=ops) as device:
        engine = build(parse(BODIES[kind]))
        assert engine.get_tensor_location("x") is DEVICE
        assert engine.get_tensor_location("y") is DEVICE
        name = engine.input_names[1]
        shape = {name: second, "x": x}
        found = run_by_address(engine, device, {n: shape[n] for n in engine.input_names}, {"y": (2, 3)})
        np.testing.assert_allclose(found["y"], expected(parse(BODIES[kind]), x, second), rtol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "(float[2,3] x) => (float[2,3] y) { y = Identity(x) }",
        "(float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Identity(x) z = Sin(x) }",
        "(float[2,3] x) => (float[2] c, float[2,3] y) <float[2] w = {1, 2}> { c = Identity(w) y = Sin(x) }",
        "(float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Sin(x) z = Identity(y) }",
        "(float[2,3] x) => (int64[2] s) { s = Shape(x) }",
    ],
    ids=["passthrough", "passthrough and a step", "initializer", "one value twice", "shape only"],
)
@pytest.mark.parametrize("ops", [[], ["Sin", "Identity", "Shape"]], ids=["none", "some"])
def test_outputs_without_a_step_are_on_the_device(text: str, ops: list[str]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = parse(text)
    wanted = dt.compile(model, providers=["cpu"]).run(x)
    with host_device(ops=ops) as device:
        engine = build(model)
        assert set(locations(engine).values()) == {DEVICE}
        found = run_by_address(engine, device, {"x": x}, {name: array.shape for name, array in wanted.items()})
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-6)
            np.testing.assert_allclose(engine.run(x)[name], array, rtol=1e-6)


@pytest.mark.parametrize("ops", [["Relu", "Cast"], [], ["NonZero", "Relu"]])
def test_an_output_whose_shape_the_run_decides_is_on_the_device(ops: list[str]) -> None:
    model = parse("(float[n,8] x) => (int64[2,m] y) { a = Relu(x) y = NonZero(a) }")

    class Outputs(dt.IOutputAllocator):
        """Allocates on the device."""

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            self.array = device.empty((max(size, 1),), np.uint8)
            return self.array.address

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(shape)

    with host_device(ops=ops) as device:
        engine = build(model)
        assert locations(engine) == {"x": DEVICE, "y": DEVICE}
        context, outputs, source = engine.create_execution_context(), Outputs(), device.to_device(X)
        context.set_input_shape("x", X.shape)
        context.set_tensor_address("x", source.address)
        context.set_output_allocator("y", outputs)
        context.execute_async_v3(0)
        wanted = expected(model, X)
        assert outputs.shape == wanted.shape
        made = device.array_at(outputs.array.address, outputs.shape, np.int64)
        np.testing.assert_array_equal(device.to_host(made), wanted)


@dt.layer("LocationScale")
def location_scale(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x * np.float32(2)


@pytest.mark.parametrize("place", ["first", "last", "only"])
def test_a_python_layer_moves_no_input_or_output(place: str) -> None:
    layer = ("x" if place != "last" else "a", "y" if place != "first" else "a")
    nodes = [helper.make_node("LocationScale", [layer[0]], [layer[1]], domain="trt.plugins")]
    if place == "first":
        nodes.append(helper.make_node("Relu", ["a"], ["y"]))
    elif place == "last":
        nodes.insert(0, helper.make_node("Relu", ["x"], ["a"]))
    model = make_model(nodes, {"x": [3, 8]}, {"y": [3, 8]})
    model.opset_import.append(helper.make_opsetid("trt.plugins", 1))
    with host_device() as device:
        engine = build(model)
        assert locations(engine) == {"x": DEVICE, "y": DEVICE}
        found = run_by_address(engine, device, {"x": X}, {"y": X.shape})
        np.testing.assert_allclose(found["y"], expected(model, X), rtol=1e-6)


# types and requests


def test_shape_inputs_and_small_types_are_on_the_host() -> None:
    text = """(float[n,8] x, int64[2] s, int4[n] q) => (float[p,q] y, float[n] z, int4[n] r)
        { y = Reshape(x, s) z = Cast<to = 1>(q) r = Identity(q) }"""
    for ops in (None, [], ["Reshape"]):
        with host_device(ops=ops):
            found = locations(build(parse(text)))
            assert found == {"x": DEVICE, "s": HOST, "q": HOST, "y": DEVICE, "z": DEVICE, "r": HOST}


def test_strings_and_sequences_are_on_the_host() -> None:
    text = """(float[4] x, string[2] t) => (string[2] u, seq(float[2]) s, float[2] y)
        { u = Identity(t) s = SplitToSequence<axis=0>(x) i = Constant<value_int=0>() y = SequenceAt(s, i) }"""
    with host_device(ops=["Relu"]):
        engine = build(parse(text))
        assert locations(engine) == {"x": DEVICE, "t": HOST, "u": HOST, "s": HOST, "y": DEVICE}


def test_the_first_provider_decides() -> None:
    with host_device(), host_device(name="second"):
        assert set(locations(dt.compile(chain(), providers=["cpu", "host_device"])).values()) == {HOST}
        engine = build(chain(), "second", "host_device")
        assert {engine.get_tensor_memory(name) for name in "xy"} == {"second"}


def test_requests_go_before_the_first_provider() -> None:
    config = dt.BuilderConfig()
    config.io_memory = {"x": "host"}
    for ops in (None, [], ["MatMul"]):
        with host_device(ops=ops):
            assert locations(build(chain(), config=config)) == {"x": HOST, "y": DEVICE}


def test_an_engine_of_host_steps_accepts_streams_of_its_device() -> None:
    with host_device(ops=[]) as device:
        for text in (
            "(float[3,8] x) => (float[3,8] y) { y = Sin(x) }",
            "(string[2] x) => (string[2] y) { y = Identity(x) }",
        ):
            engine, stream = build(parse(text)), device.create_stream()
            assert stream is not None
            assert engine.device_names == ["host_device"]
            context = engine.create_execution_context(streams={"host_device": stream.handle})
            context.use_streams({"host_device": 0})


# addresses of the wrong kind


def test_a_host_address_for_a_device_tensor_raises() -> None:
    with host_device(ops=["Relu"]) as device:
        context = build(chain()).create_execution_context()
        array, target = X.copy(), device.empty(X.shape, np.float32)
        with pytest.raises(InputError, match=r"'x'.*wrong kind of memory.*'host_device'.*host memory"):
            context.set_tensor_address("x", array.ctypes.data)
        with pytest.raises(InputError, match=r"'x'.*wrong kind of memory"):
            context.execute_v2([array.ctypes.data, target.address])
        assert context.get_tensor_address("x") == 0


def test_a_device_address_for_a_host_tensor_raises() -> None:
    text = "(float[n,8] x, int64[2] s) => (float[p,q] y) { y = Reshape(x, s) }"
    with host_device() as device:
        context = build(parse(text)).create_execution_context()
        shape = device.to_device(np.array([2, 12]))
        with pytest.raises(InputError, match=r"'s'.*wrong kind of memory.*host memory.*'host_device'"):
            context.set_tensor_address("s", shape.address)


def test_an_output_allocator_that_gives_host_memory_raises() -> None:
    class Outputs(dt.IOutputAllocator):
        """Allocates on the host."""

        memory = np.empty(4096, np.uint8)

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            return self.memory.ctypes.data

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            return

    for text in (
        "(float[3,8] x) => (float[3,8] y) { y = Sin(x) }",
        "(float[3,8] x) => (int64[2,m] y) { y = NonZero(x) }",
    ):
        with host_device() as device:
            context, source = build(parse(text)).create_execution_context(), device.to_device(X)
            context.set_tensor_address("x", source.address)
            context.set_output_allocator("y", Outputs())
            with pytest.raises(InputError, match=r"'y'.*wrong kind of memory"):
                context.execute_async_v3(0)


def test_memory_that_both_can_use_is_bound_to_either() -> None:
    with host_device() as device:
        context = build(chain()).create_execution_context()
        array = X.copy()
        device.find_access = lambda address: MemoryAccess.HOST | MemoryAccess.DEVICE  # type: ignore[method-assign]
        assert context.set_tensor_address("x", array.ctypes.data)
        device.find_access = lambda address: None  # type: ignore[assignment, method-assign]
        assert context.set_tensor_address("y", array.ctypes.data)


# a search over fallback sets

UNARY = ("Relu", "Neg", "Abs", "Sin", "Identity")
BINARY = ("Add", "Mul", "Sub")


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Graphs of float operators with inputs that pass through, constants, and a reshape by an input."""
    names, nodes = ["x", "z", "w"], []
    for number in range(draw(st.integers(1, 6))):
        is_binary = draw(st.booleans())
        op = draw(st.sampled_from(BINARY if is_binary else UNARY))
        inputs = [draw(st.sampled_from(names)) for _ in range(2 if is_binary else 1)]
        nodes.append(helper.make_node(op, inputs, [f"v{number}"]))
        names.append(f"v{number}")
    outputs = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    kinds = dict.fromkeys(["o0", "o1", "o2"], TensorProto.FLOAT)
    made: dict[str, Any] = {}
    for number, name in enumerate(outputs):
        nodes.append(helper.make_node("Identity", [name], [f"o{number}"]))
        made[f"o{number}"] = ["n", 8]
    inputs: dict[str, Any] = {"x": ["n", 8], "z": ["n", 8]}
    if draw(st.booleans()):
        inputs["s"], kinds["s"] = [2], TensorProto.INT64
        nodes.append(helper.make_node("Reshape", [draw(st.sampled_from(["x", "z"])), "s"], ["r"]))
        made["r"] = ["p", "q"]
    if draw(st.booleans()):
        kinds["k"] = TensorProto.INT64
        nodes.append(helper.make_node("NonZero", [draw(st.sampled_from(names))], ["k"]))
        made["k"] = [2, "m"]
    weight = np.arange(8, dtype=np.float32)[None]
    return make_model(nodes, inputs, made, {"w": weight}, types=kinds)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(model=graphs(), data=st.data())
def test_locations_never_depend_on_the_fallback_set(model: onnx.ModelProto, data: st.DataObject) -> None:
    used = sorted({node.op_type for node in model.graph.node})
    supported: list[Collection[str]] = [used, []]
    supported += [data.draw(st.lists(st.sampled_from(used), unique=True)) for _ in range(2)]
    arrays = {"x": X, "z": -X, "s": np.array([8, 3])}
    given_arrays = [arrays[value.name] for value in model.graph.input]
    wanted = dt.compile(model, providers=["cpu"]).run(*given_arrays)
    found = []
    for ops in supported:
        with host_device(ops=ops, compiles=data.draw(st.booleans())) as device:
            engine = build(model)
            found.append(locations(engine))
            on_device = [
                device.to_device(array) if engine.get_tensor_location(name) is DEVICE else array
                for name, array in zip(engine.input_names, given_arrays, strict=True)
            ]
            for inputs in (given_arrays, on_device):
                for name, result in engine.run(*inputs).items():
                    np.testing.assert_allclose(result, wanted[name], rtol=1e-5, atol=1e-6)
            kept = engine.run_on_device(*on_device)
            results = kept if isinstance(kept, dict) else {engine.output_names[0]: kept}
            for name, result in results.items():
                assert isinstance(result, dt.DeviceTensor)
                np.testing.assert_allclose(result.numpy(), wanted[name], rtol=1e-5, atol=1e-6)
    assert all(each == found[0] for each in found)
    assert {name for name, place in found[0].items() if place is HOST} <= {"s"}


def test_a_session_binding_of_device_memory_as_host_memory_raises(tmp_path: Any) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(chain(), path)
    with host_device(ops=["Relu"]) as device:
        session = InferenceSession(path, providers=["host_device", "cpu"])
        binding, source, array = session.io_binding(), device.to_device(X), X.copy()
        with pytest.raises(InputError, match=r"'x'.*wrong kind of memory.*'host_device'"):
            binding.bind_input("x", "cpu", 0, np.float32, X.shape, source.address)
        with pytest.raises(InputError, match=r"'y'.*wrong kind of memory"):
            binding.bind_output("y", "cpu", 0, np.float32, X.shape, source.address)
        target = np.empty_like(X)
        binding.bind_input("x", "cpu", 0, np.float32, X.shape, array.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, X.shape, target.ctypes.data)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(target, expected(chain(), X), rtol=1e-5)


def test_the_embedded_runtime_tells_host_from_device_memory() -> None:
    """The calls of ``dovetail/runtime.hpp``: memory is where the tensor is, or of the host and then copied."""
    with host_device(ops=["Relu"]) as device:
        context = EmbeddedContext(build(chain()))
        source, array, target = device.to_device(X), X.copy(), np.empty_like(X)
        with pytest.raises(InputError, match=r"'x'.*wrong kind of memory.*got .* in memory of 'host_device'"):
            context.set_input(0, source.address, X.nbytes, X.shape, is_there=False)
        with pytest.raises(InputError, match=r"'y'.*wrong kind of memory"):
            context.set_output(1, source.address, X.nbytes, is_there=False)
        context.set_input(0, array.ctypes.data, X.nbytes, X.shape, is_there=True)
        with pytest.raises(InputError, match=r"'x'.*wrong kind of memory.*host memory"):
            context.run(0)
        context.set_input(0, source.address, X.nbytes, X.shape, is_there=True)
        context.set_output(1, target.ctypes.data, X.nbytes, is_there=False)
        context.run(0)
        np.testing.assert_allclose(target, expected(chain(), X), rtol=1e-5)
        context.set_input(0, array.ctypes.data, X.nbytes, X.shape, is_there=False)
        context.run(0)
        np.testing.assert_allclose(target, expected(chain(), X), rtol=1e-5)


class AddInPlace(ScalePlugin, dt.IPluginV3OneBuildV2):
    """Adds its factor in place, on the host."""

    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "AddInPlace"

    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
        assert inputs[0] == outputs[0]
        as_array(outputs[0], output_desc[0])[...] += np.float32(self.factor)


def test_a_host_plugin_that_writes_in_place_leaves_its_tensors_on_the_device() -> None:
    with host_device() as device:
        builder = dt.Builder()
        builder.get_plugin_registry().register_creator(PlainCreator("AddInPlace", AddInPlace), "")
        network = builder.create_network()
        layer = network.add_plugin_v3([network.add_input("x", dt.float32, (3, 8))], [], AddInPlace(5.0))
        layer.get_output(0).name = "y"
        network.mark_output(layer.get_output(0))
        config = builder.create_builder_config()
        config.providers = ["host_device", "cpu"]
        config.set_preview_feature(dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
        engine = builder.build_engine_with_config(network, config)
        assert locations(engine) == {"x": DEVICE, "y": DEVICE}
        context, both = engine.create_execution_context(), device.to_device(X)
        for name in "xy":  # one address for both, as for an output that shares memory with its input
            context.set_tensor_address(name, both.address)
        for times in (1, 2):
            context.execute_async_v3(0)
            np.testing.assert_allclose(device.to_host(both), X + 5 * times, rtol=1e-5)
        np.testing.assert_allclose(engine(X), X + 5, rtol=1e-5)


def test_a_requested_alias_of_a_host_step_is_refused_unless_both_are_on_the_host() -> None:
    text = "(float[1,4,8] past, float[1,1,8] new) => (float[1,4,8] present) { present = TensorScatter(past, new) }"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 24]> g {text}')
    config = dt.BuilderConfig()
    config.aliases = {"present": "past"}
    with host_device(ops=["Relu"]):
        with pytest.raises(BuildError, match=r"(?s)'present' cannot be written over input 'past'.*config\.io_memory"):
            build(model, config=config)
        config.io_memory = {"past": "host", "present": "host"}
        engine = build(model, config=config)
        assert engine.get_aliased_input_tensor("present") == "past"
        assert locations(engine) == {"past": HOST, "new": DEVICE, "present": HOST}
        past, new = np.zeros((1, 4, 8), np.float32), np.ones((1, 1, 8), np.float32)
        np.testing.assert_array_equal(engine(past.copy(), new), expected(model, past, new))


def test_the_location_of_a_network_tensor_is_kept() -> None:
    for ops in (None, []):
        with host_device(ops=ops):
            network = dt.Builder().create_network()
            x = network.add_input("x", dt.float32, (3, 8))
            x.location = HOST
            y = network.add_activation(x, dt.ActivationType.RELU).get_output(0)
            y.name = "y"
            network.mark_output(y)
            engine = dt.compile(network, providers=["host_device", "cpu"])
            assert locations(engine) == {"x": HOST, "y": DEVICE}
            np.testing.assert_allclose(engine(X), np.maximum(X, 0))
