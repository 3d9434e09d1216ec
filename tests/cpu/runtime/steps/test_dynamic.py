"""Shapes that only the run tells: size tensors, shape inputs, output allocators, empty tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from tests.support.dynamic_plugins import FillPlugin, PositivePlugin
from tests.support.plugins import PlainCreator, ScalePlugin


def _load(builder: Any, network: Any, config: Any, *creators: Any) -> Any:
    runtime = dt.Runtime()
    for creator in creators:
        runtime.get_plugin_registry().register_creator(creator, "")
    return runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))


def _positive_engine(calls: list | None = None) -> Any:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1,))
    layer = network.add_plugin_v3([x], [], PositivePlugin(2.0))
    scaled = network.add_plugin_v3([layer.get_output(0)], [], ScalePlugin(10.0)).get_output(0)
    negated = network.add_unary(scaled, dt.UnaryOperation.NEG).get_output(0)
    for tensor, name in ((layer.get_output(0), "y"), (layer.get_output(1), "count"), (negated, "w")):
        tensor.name = name
        network.mark_output(tensor)
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (0,), (8,), (32,))
    config.add_optimization_profile(profile)
    return _load(
        builder,
        network,
        config,
        PlainCreator("TestPositive", lambda factor: PositivePlugin(factor, calls)),
        PlainCreator("TestScale", ScalePlugin),
    )


@pytest.mark.parametrize("count", [0, 1, 7, 32])
def test_a_size_tensor_decides_the_shape_of_what_follows(count: int) -> None:
    engine = _positive_engine()
    x = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    result = engine(x)
    assert result["count"] == (x > 0).sum()
    np.testing.assert_allclose(result["y"], x[x > 0] * 2, rtol=1e-6)
    np.testing.assert_allclose(result["w"], x[x > 0] * -20, rtol=1e-6)


def test_data_dependent_dims_are_wildcards_in_descriptors() -> None:
    calls: list = []
    engine = _positive_engine(calls)
    engine(np.ones(4, np.float32))
    told = next(detail for name, detail in calls if name == "on_shape_change")
    assert tuple(told[0].dims) == (4,)
    assert tuple(told[1].dims) == (-1,)
    assert next(detail for name, detail in calls if name == "enqueue") == [(-1,), ()]


class _Allocator(dt.IOutputAllocator):
    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)
        self.shape: tuple[int, ...] | None = None
        self.sizes: list[int] = []

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        self.sizes.append(size)
        self.memory = np.empty(max(size, 1), np.uint8)
        return self.memory.ctypes.data

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        self.shape = tuple(shape)


def test_output_allocators_are_told_size_then_shape() -> None:
    context = _positive_engine().create_execution_context()
    x = np.array([1.0, -2.0, 3.0], np.float32)
    count = np.empty((), np.int64)
    allocators = {"y": _Allocator(), "w": _Allocator()}
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("count", count.ctypes.data)
    for name, allocator in allocators.items():
        context.set_output_allocator(name, allocator)
    assert context.get_max_output_size("y") == 12
    assert context.execute_async_v3(0)
    assert count == 2
    assert allocators["y"].shape == (2,)
    y = allocators["y"].memory.view(np.float32)[:2]
    np.testing.assert_allclose(y, [2.0, 6.0])
    np.testing.assert_allclose(allocators["w"].memory.view(np.float32)[:2], [-20.0, -60.0])


def test_without_an_allocator_memory_of_the_upper_bound_serves() -> None:
    context = _positive_engine().create_execution_context()
    x = np.array([1.0, -2.0, 3.0], np.float32)
    buffers = {"y": np.zeros(3, np.float32), "w": np.zeros(3, np.float32), "count": np.empty((), np.int64)}
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    for name, buffer in buffers.items():
        context.set_tensor_address(name, buffer.ctypes.data)
    context.execute_async_v3(0)
    np.testing.assert_allclose(buffers["y"][:2], [2.0, 6.0])


def test_a_size_over_its_bound_is_an_error() -> None:
    class Liar(PositivePlugin):
        def enqueue(self, *args: Any) -> None:
            super().enqueue(*args)
            np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * 1).from_address(args[3][1]))[0] = 99

    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (4,))
    layer = network.add_plugin_v3([x], [], Liar())
    network.mark_output(layer.get_output(0))
    config, creator = builder.create_builder_config(), PlainCreator("TestPositive", Liar)
    with pytest.raises(dt.PluginError, match=r"layer '.*out of its bound"):
        _load(builder, network, config, creator)
    config.run_plugins = False
    engine = _load(builder, network, config, creator)
    with pytest.raises(dt.PluginError, match="out of its bound"):
        engine(np.ones(4, np.float32))


def _fill_engine(source: str) -> Any:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1, 2))
    if source == "input":
        shape = network.add_input("s", dt.int64, (2,))
    elif source == "constant":
        shape = network.add_constant((2,), np.array([3, 5], np.int64)).get_output(0)
    else:
        dims = network.add_shape(x).get_output(0)
        shape = network.add_elementwise(dims, dims, dt.ElementWiseOperation.SUM).get_output(0)
    layer = network.add_plugin_v3([x], [shape], FillPlugin())
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 2), (4, 2), (8, 2))
    if source == "input":
        profile.set_shape_input("s", (1, 1), (2, 2), (8, 8))
    config.add_optimization_profile(profile)
    return _load(builder, network, config, PlainCreator("TestFill", FillPlugin))


def test_shape_inputs_from_a_network_input() -> None:
    engine = _fill_engine("input")
    assert engine.is_shape_inference_io("s")
    for shape in ((2, 3), (8, 8), (1, 5)):
        y = engine(np.full((4, 2), 3.0, np.float32), np.array(shape, np.int64))
        assert y.shape == shape
        assert (y == 3.0).all()


def test_shape_inputs_from_a_constant_and_from_shapes() -> None:
    x = np.full((4, 2), 3.0, np.float32)
    assert _fill_engine("constant")(x).shape == (3, 5)
    assert _fill_engine("computed")(x).shape == (8, 4)


def test_zero_size_tensors_have_valid_addresses() -> None:
    calls: list = []

    class Addresses(ScalePlugin):
        tactics = ()

        def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
            calls.append((list(inputs), list(outputs)))

    builder = dt.Builder()
    network = builder.create_network()
    layer = network.add_plugin_v3([network.add_input("x", dt.float32, (0, 3))], [], Addresses())
    network.mark_output(layer.get_output(0))
    engine = _load(builder, network, builder.create_builder_config(), PlainCreator("TestScale", Addresses))
    del calls[:]
    assert engine(np.empty((0, 3), np.float32)).shape == (0, 3)
    assert all(address for part in calls[-1] for address in part)


def test_a_shape_input_that_only_the_run_knows_is_no_dimension_of_an_input() -> None:
    """Unknown numbers get names while building, and never the name that a dimension of an input has already."""
    builder = dt.Builder()
    network = builder.create_network()
    x, numbers = network.add_input("x", dt.float32, (-1, -1)), network.add_input("f", dt.float32, (1,))
    known = network.add_constant((1,), np.array([5], np.int64)).get_output(0)
    shape = network.add_concatenation([network.add_cast(numbers, dt.int64).get_output(0), known])
    shape.axis = 0
    network.mark_output(network.add_plugin_v3([x], [shape.get_output(0)], FillPlugin()).get_output(0))
    builder.get_plugin_registry().register_creator(PlainCreator("TestFill", FillPlugin), "")
    engine = dt.compile(network, registry=builder.get_plugin_registry())
    for rows in (4, 1):
        assert engine(np.ones((2, 3), np.float32), np.array([rows], np.float32)).shape == (rows, 5)


class EqualPlugin(FillPlugin):
    """Two rows, or three when its shape input says one: a shape that needs EQUAL."""

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestEqual"

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        is_one = exprBuilder.operation(dt.DimensionOperation.EQUAL, shape_inputs[0][0], exprBuilder.constant(1))
        rows = exprBuilder.operation(dt.DimensionOperation.SUM, is_one, exprBuilder.constant(2))
        return [dt.DimsExprs([rows, inputs[0][1]])]


def test_shapes_that_compare_contents_need_the_contents() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x, numbers = network.add_input("x", dt.float32, (-1, 3)), network.add_input("s", dt.int64, (1,))
    network.mark_output(network.add_plugin_v3([x], [numbers], EqualPlugin()).get_output(0))
    builder.get_plugin_registry().register_creator(PlainCreator("TestEqual", EqualPlugin), "")
    engine = dt.compile(network, registry=builder.get_plugin_registry())
    assert engine.is_shape_inference_io("s")
    context = engine.create_execution_context()
    context.set_input_shape("x", (4, 3))
    assert context.infer_shapes() == ["s"]
    assert engine(np.ones((4, 3), np.float32), np.array([1])).shape == (3, 3)
    assert engine(np.ones((4, 3), np.float32), np.array([7])).shape == (2, 3)


def test_a_packed_plugin_after_a_data_dependent_one_is_told_why_it_cannot() -> None:
    class OnlyPacked(ScalePlugin):
        formats = (dt.TensorFormat.CHW32,)

    builder = dt.Builder()
    network = builder.create_network()
    positive = network.add_plugin_v3([network.add_input("x", dt.float32, (8,))], [], PositivePlugin()).get_output(0)
    network.mark_output(network.add_plugin_v3([positive], [], OnlyPacked()).get_output(0))
    with pytest.raises(dt.BuildError, match="only LINEAR is proposed where the run alone tells a shape"):
        builder.build_serialized_network(network, builder.create_builder_config())


def test_a_wrong_shape_is_told_with_what_the_profile_allows() -> None:
    context = _positive_engine().create_execution_context()
    with pytest.raises(dt.InputError, match=r"expected \(0\.\.32\), got \(4, 5\)"):
        context.set_input_shape("x", (4, 5))


def test_the_memory_of_what_non_zero_finds_has_a_bound() -> None:
    network = dt.Network()
    x = network.add_input("x", dt.float32, (-1, 5))
    layer = network.add_non_zero(x)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    engine = dt.compile(network, shapes={"x": ((1, 5), (2, 5), (4, 5))})
    context = engine.create_execution_context()
    context.set_input_shape("x", (3, 5))
    assert context.get_max_output_size("y") == 2 * 15 * 4
    assert context.get_tensor_shape("y") == (2, -1)


@pytest.mark.parametrize(("limit", "most"), [(3, 3), (50, 7)])
def test_the_memory_of_what_a_suppression_keeps_has_a_bound(limit: int, most: int) -> None:
    network = dt.Network()
    boxes = network.add_input("boxes", dt.float32, (-1, 7, 4))
    scores = network.add_input("scores", dt.float32, (-1, 7, 2))
    kept = network.add_constant((), np.array(limit, np.int32)).get_output(0)
    layer = network.add_nms(boxes, scores, kept)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    shapes = {"boxes": ((1, 7, 4), (1, 7, 4), (4, 7, 4)), "scores": ((1, 7, 2), (1, 7, 2), (4, 7, 2))}
    context = dt.compile(network, shapes=shapes).create_execution_context()
    context.set_input_shape("boxes", (3, 7, 4))
    context.set_input_shape("scores", (3, 7, 2))
    assert context.get_tensor_shape("y") == (-1, 3)
    assert context.get_max_output_size("y") == 3 * 2 * most * 3 * 4


@pytest.mark.parametrize(
    ("op", "axis", "most"), [("Unique", 0, 3 * 5), ("Unique", None, 15), ("Compress", 1, 3 * 5), ("Compress", None, 15)]
)
def test_the_memory_of_what_is_counted_along_an_axis_has_a_bound(op: str, axis: int | None, most: int) -> None:
    inputs = ["x", "keep"] if op == "Compress" else ["x"]
    attributes = {} if axis is None else {"axis": axis}
    node = onnx.helper.make_node(op, inputs, ["y"], **attributes)
    types = {"x": (onnx.TensorProto.FLOAT, ["n", 5]), "keep": (onnx.TensorProto.BOOL, ["k"])}
    given = [onnx.helper.make_tensor_value_info(name, *types[name]) for name in inputs]
    graph = onnx.helper.make_graph([node], "g", given, [onnx.helper.make_tensor_value_info("y", 1, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    context = dt.compile(model).create_execution_context()
    context.set_input_shape("x", (3, 5))
    if op == "Compress":
        context.set_input_shape("keep", (5,))
    assert context.get_max_output_size("y") == most * 4
