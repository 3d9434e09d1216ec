"""Runs by address whose buffers change: only what moved is bound again, and everything else holds as before."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail as dt
from dovetail.plugin import address_of
from tests.cpu.runtime.steps.test_dynamic import _Allocator, _fill_engine, _positive_engine
from tests.cpu.runtime.test_aliasing import InPlace
from tests.support.device_models import X, build, chain, expected
from tests.support.dynamic_plugins import FillPlugin
from tests.support.plugins import PlainCreator, ScalePlugin, build_engine

SHAPE = (2, 3)


def _engine(*, provider: str = "cpu", calls: list | None = None, plugin: Any = None, dynamic: bool = False) -> Any:
    """z = x + y, through a plugin that scales when there is one."""
    builder = dt.Builder()
    network = builder.create_network()
    dims = (-1, 3) if dynamic else SHAPE
    x, y = (network.add_input(name, dt.float32, dims) for name in "xy")
    z = network.add_elementwise(x, y, dt.ElementWiseOperation.SUM).get_output(0)
    if plugin is not None:
        z = network.add_plugin_v3([z], [], plugin).get_output(0)
    z.name = "z"
    network.mark_output(z)
    config = builder.create_builder_config()
    config.providers = (provider, "cpu") if provider != "cpu" else ("cpu",)
    if dynamic:
        for low, high in ((1, 4), (3, 8)):
            profile = builder.create_optimization_profile()
            for name in "xy":
                profile.set_shape(name, (low, 3), (low, 3), (high, 3))
            config.add_optimization_profile(profile)
    runtime = dt.Runtime()
    creator = PlainCreator("TestScale", lambda factor: ScalePlugin(factor, calls))
    runtime.get_plugin_registry().register_creator(creator, "")
    return runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))


def _buffers(number: float, shape: tuple[int, ...] = SHAPE) -> list[Any]:
    return [np.full(shape, number, np.float32), np.full(shape, 10 * number, np.float32), np.zeros(shape, np.float32)]


def _bind(context: Any, buffers: list[Any]) -> None:
    context.set_tensor_addresses([address_of(buffer) for buffer in buffers])


@pytest.mark.parametrize("provider", ["cpu", "onnxruntime"])
@pytest.mark.parametrize("plugin", [None, ScalePlugin(1.0)], ids=["kernel", "plugin"])
@pytest.mark.parametrize("count", [2, 20], ids=["few", "more than views are kept of"])
def test_every_run_reads_and_writes_the_buffers_it_was_given(provider: str, plugin: Any, count: int) -> None:
    context = _engine(provider=provider, plugin=plugin).create_execution_context()
    sets = [_buffers(number) for number in range(1, count + 1)]
    for turn in range(3):
        for number, buffers in enumerate(sets, 1):
            buffers[0] += turn
            buffers[2][...] = 0
            _bind(context, buffers)
            assert context.execute_async_v3(0)
            np.testing.assert_array_equal(buffers[2], 11 * number + sum(range(turn + 1)))


def test_one_tensor_can_move_alone() -> None:
    context = _engine().create_execution_context()
    one, two = _buffers(1), _buffers(2)
    _bind(context, one)
    context.execute_async_v3(0)
    for position, name, total in ((2, "z", 11), (0, "x", 12), (1, "y", 22)):
        context.set_tensor_address(name, address_of(two[position]))
        context.execute_async_v3(0)
        np.testing.assert_array_equal(two[2], total)
    np.testing.assert_array_equal(one[2], 11)


def test_plugins_are_told_of_every_move_once() -> None:
    calls: list = []
    context = _engine(calls=calls, plugin=ScalePlugin(1.0)).create_execution_context()
    one, two = _buffers(1), _buffers(2)

    def run_with(buffers: list[Any]) -> list[str]:
        del calls[:]
        _bind(context, buffers)
        context.execute_async_v3(0)
        return [name for name, _ in calls]

    assert run_with(one) == ["on_shape_change", "enqueue"]
    assert run_with(two) == ["on_shape_change", "enqueue"]
    assert tuple(next(detail for name, detail in calls if name == "on_shape_change")[0].dims) == SHAPE
    assert run_with(two) == ["enqueue"]
    assert run_with(one) == ["on_shape_change", "enqueue"]


def test_plugins_of_a_profiled_run_get_the_new_addresses() -> None:
    context = _engine(plugin=ScalePlugin(3.0)).create_execution_context()
    one, two = _buffers(1), _buffers(2)
    _bind(context, one)
    context.execute_async_v3(0)
    context.profiler = dt.Profiler()
    _bind(context, two)
    context.execute_async_v3(0)
    np.testing.assert_array_equal(one[2], 33)
    np.testing.assert_array_equal(two[2], 66)


def test_a_bad_address_is_an_error_until_it_is_a_good_one() -> None:
    context = _engine().create_execution_context()
    one, two = _buffers(1), _buffers(2)
    _bind(context, one)
    context.execute_async_v3(0)
    context.set_tensor_address("x", address_of(two[0]))
    context.set_tensor_address("z", 0)
    for _ in range(2):
        with pytest.raises(dt.InputError, match="null address"):
            context.execute_async_v3(0)
    context.set_tensor_address("z", address_of(two[2]))
    context.execute_async_v3(0)
    np.testing.assert_array_equal(two[2], 12)
    np.testing.assert_array_equal(one[2], 11)


def test_addresses_are_counted_and_checked() -> None:
    context = _engine().create_execution_context()
    buffers = _buffers(1)
    addresses = [address_of(buffer) for buffer in buffers]
    with pytest.raises(dt.InputError, match=r"wrong number of bindings.*3 \(x, y, z\)"):
        context.set_tensor_addresses(addresses[:2])
    for bad in (-1, 1.5, "4096", None):
        for _ in range(2):
            with pytest.raises(dt.UsageError, match="tensor 'z': not an address"):
                context.set_tensor_addresses([*addresses[:2], bad])
    assert context.set_tensor_addresses(tuple(np.array(addresses)))
    assert [context.get_tensor_address(name) for name in "xyz"] == addresses
    context.execute_v2(addresses)
    np.testing.assert_array_equal(buffers[2], 11)


def test_runs_with_arrays_between_runs_by_address() -> None:
    engine = _engine(plugin=ScalePlugin(1.0))
    context = engine.create_execution_context()
    one, two = _buffers(1), _buffers(2)
    for _ in range(2):
        for buffers in (one, two):
            buffers[2][...] = 0
            _bind(context, buffers)
            context.execute_async_v3(0)
            (result,) = context.run([np.full(SHAPE, 5, np.float32), np.full(SHAPE, 6, np.float32)])
            np.testing.assert_array_equal(result, 11)
        np.testing.assert_array_equal(one[2], 11)
        np.testing.assert_array_equal(two[2], 22)


def test_an_output_that_shares_memory_moves_with_its_input() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    y = network.add_plugin_v3([network.add_input("x", dt.float32, SHAPE)], [], InPlace(5.0)).get_output(0)
    y.name = "y"
    network.mark_output(y)
    config = builder.create_builder_config()
    config.set_preview_feature(dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestInPlace", InPlace), "")
    engine = runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))
    context = engine.create_execution_context()
    one, two = np.zeros(SHAPE, np.float32), np.zeros(SHAPE, np.float32)
    context.execute_v2([address_of(one)] * 2)
    context.execute_v2([address_of(two)] * 2)
    for name in "xy":
        context.set_tensor_address(name, address_of(one))
        with pytest.raises(dt.InputError, match="shares memory with input 'x'"):
            context.execute_async_v3(0)
        context.execute_v2([address_of(two)] * 2)
    np.testing.assert_array_equal(one, 5)
    np.testing.assert_array_equal(two, 15)


def test_contents_of_a_moved_shape_input_decide_shapes() -> None:
    context = _fill_engine("input").create_execution_context()
    x, room = np.full((4, 2), 3.0, np.float32), np.zeros(64, np.float32)
    context.set_input_shape("x", x.shape)
    kept = []
    for shape in ((2, 3), (8, 8), (1, 5), (2, 3)):
        kept.append(np.array(shape, np.int64))
        room[...] = 0
        context.set_tensor_addresses([address_of(x), address_of(kept[-1]), address_of(room)])
        context.execute_async_v3(0)
        assert tuple(context.get_tensor_shape("y")) == shape
        assert (room == 3.0).sum() == np.prod(shape)
    outside = np.array((9, 9), np.int64)
    context.set_tensor_address("s", address_of(outside))
    with pytest.raises(dt.InputError, match="outside profile 0"):
        context.execute_async_v3(0)


def test_after_an_error_outputs_have_the_shapes_of_the_next_run() -> None:
    class Stingy(_Allocator):
        has_memory = True

        def reallocate_output_async(self, *arguments: Any) -> int:
            return super().reallocate_output_async(*arguments) if self.has_memory else 0

    builder = dt.Builder()
    network = builder.create_network()
    x, s = network.add_input("x", dt.float32, (4, 2)), network.add_input("s", dt.int64, (2,))
    for name in "yz":
        filled = network.add_plugin_v3([x], [s], FillPlugin()).get_output(0)
        result = network.add_unary(filled, dt.UnaryOperation.NEG).get_output(0)
        result.name = name
        network.mark_output(result)
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape_input("s", (1, 1), (2, 2), (8, 8))
    config.add_optimization_profile(profile)
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestFill", FillPlugin), "")
    engine = runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))
    context = engine.create_execution_context()
    values, shape, room = np.full((4, 2), 3.0, np.float32), np.array((2, 3), np.int64), np.zeros(64, np.float32)
    allocator = Stingy()
    context.set_output_allocator("y", allocator)
    for name, array in (("x", values), ("s", shape), ("z", room)):
        context.set_tensor_address(name, address_of(array))
    context.execute_async_v3(0)
    shape[...] = (4, 4)
    allocator.has_memory = False
    with pytest.raises(dt.InputError, match="gave no memory"):
        context.execute_async_v3(0)
    allocator.has_memory = True
    context.execute_async_v3(0)
    assert (room == -3.0).sum() == (allocator.memory.view(np.float32) == -3.0).sum() == 16


def test_outputs_whose_shape_the_run_tells_move_too() -> None:
    context = _positive_engine().create_execution_context()
    context.set_input_shape("x", (3,))
    for number in range(1, 4):
        x = np.array([number, -2.0, 3.0], np.float32)
        y, w, count = np.zeros(3, np.float32), np.zeros(3, np.float32), np.zeros((), np.int64)
        buffers = {"x": x, "y": y, "w": w, "count": count}
        context.set_tensor_addresses([address_of(buffers[name]) for name in context.engine.tensor_names])
        context.execute_async_v3(0)
        assert count == 2
        np.testing.assert_allclose(y[:2], [2 * number, 6])
        np.testing.assert_allclose(w[:2], [-20 * number, -60])


def test_an_allocator_is_asked_in_every_run() -> None:
    class Counting(_Allocator):
        asked = 0

        def reallocate_output_async(self, *arguments: Any) -> int:
            self.asked += 1
            return super().reallocate_output_async(*arguments)

    context, allocator = _engine().create_execution_context(), Counting()
    one, two = _buffers(1), _buffers(2)
    context.set_output_allocator("z", allocator)
    for buffers in (one, two, one):
        for name, buffer in zip("xy", buffers, strict=False):
            context.set_tensor_address(name, address_of(buffer))
        context.execute_async_v3(0)
        np.testing.assert_array_equal(allocator.memory.view(np.float32)[:6], buffers[0][0, 0] * 11)
        assert allocator.shape == SHAPE
    assert allocator.asked == 3
    context.set_tensor_address("z", address_of(two[2]))
    context.execute_async_v3(0)
    assert allocator.asked == 4


def test_packed_elements_move() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    y = network.add_identity(network.add_input("x", dt.int4, (2, 3))).get_output(0)
    y.name = "y"
    network.mark_output(y)
    engine = dt.Runtime().deserialize_cuda_engine(
        builder.build_serialized_network(network, builder.create_builder_config())
    )
    context = engine.create_execution_context()
    sets = [(np.array([k, 0x43, 0x65], np.uint8), np.full(4, 77, np.uint8)) for k in (0x21, 0x31)]
    for x, y in (*sets, *sets):
        y[...] = 77
        context.execute_v2([address_of(x), address_of(y)])
        assert y.tolist() == [*x.tolist(), 77]


def test_empty_tensors_move_and_their_address_does_not_matter() -> None:
    seen: list[int] = []

    class Spy(ScalePlugin):
        def enqueue(self, a: Any, b: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
            seen.extend((*inputs, *outputs))
            super().enqueue(a, b, inputs, outputs, *rest)

    creator = PlainCreator("TestScale", Spy)
    plan, runtime = build_engine(ScalePlugin(2.0), creator, shape=(-1, 3), profile=((0, 3), (2, 3), (4, 3)))
    context = runtime.deserialize_cuda_engine(plan).create_execution_context()
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    for rows in (0, 2, 0):
        y[...] = 0
        context.set_input_shape("x", (rows, 3))
        addresses = ([address_of(x), 0], [0, 0], [0, address_of(y)]) if rows == 0 else ([address_of(x), address_of(y)],)
        for pair in addresses:
            context.execute_v2(pair)
        assert (y == 2 * min(rows, 1)).all()
    assert len(seen) == 14
    assert all(seen)


@pytest.mark.parametrize("capture", [True, False], ids=["captured", "each step"])
def test_inputs_and_outputs_of_a_device_program_move(capture: bool) -> None:
    from dovetail.testing import host_device

    with host_device() as device:
        engine = build(chain())
        engine.capture_graphs = capture
        context = engine.create_execution_context()
        context.set_input_shape("x", X.shape)
        shape = expected(chain(), X).shape
        sets = [(X * k, device.to_device(X * k), device.empty(shape, np.float32)) for k in (1, 2, 3)]
        for x, source, target in (*sets, *sets, *sets):
            context.execute_v2([source.address, target.address])
            np.testing.assert_allclose(device.to_host(target), expected(chain(), x), rtol=1e-6)


def test_a_layer_sees_the_buffers_of_its_run() -> None:
    layer = dt.layer("test::moving_negate")(lambda x: -x)
    context = _engine(plugin=layer.plugin()).create_execution_context()
    sets = [_buffers(number) for number in range(1, 12)]
    for number, buffers in enumerate(sets * 2):
        _bind(context, buffers)
        context.execute_async_v3(0)
        np.testing.assert_array_equal(buffers[2], -11 * (number % 11 + 1))


def test_a_layer_forgets_views_when_descriptors_change_in_place() -> None:
    """A host may use the same descriptors for other shapes, if it says so."""
    layer = dt.layer("test::moving_plus_one")(lambda x: x + 1)
    plugin = layer.plugin()
    x, y = np.zeros(6, np.float32), np.zeros(6, np.float32)
    described = [dt.PluginTensorDesc((2,))], [dt.PluginTensorDesc((2,))]
    for count in (2, 6):
        for desc in (*described[0], *described[1]):
            desc.dims = (count,)
        plugin.on_shape_change(*described)
        plugin.enqueue(*described, [address_of(x)], [address_of(y)], 0, 0)
        np.testing.assert_array_equal(y, [1] * count + [0] * (6 - count))


@cache
def _dynamic_engine() -> Any:
    return _engine(dynamic=True, plugin=ScalePlugin(2.0))


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.integers(0, 2), st.integers(0, 11)),
        st.tuples(st.just("shape"), st.integers(1, 8), st.just(0)),
        st.tuples(st.just("profile"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("arrays"), st.integers(1, 8), st.just(0)),
        st.tuples(st.just("infer"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(OPERATIONS)
def test_any_order_of_changes_gives_what_a_fresh_context_gives(operations: list[tuple[str, int, int]]) -> None:
    engine = _dynamic_engine()
    rng = np.random.default_rng(0)
    memory = [rng.standard_normal((8, 3)).astype(np.float32) for _ in range(12)]
    context, rows, bound = engine.create_execution_context(), 3, [0, 1, 2]
    for name in "xy":
        context.set_input_shape(name, (rows, 3))
    context.set_tensor_addresses([address_of(memory[index]) for index in bound])
    for kind, first, second in operations:
        low, high = ((1, 4), (3, 8))[context.active_optimization_profile]
        if kind == "move":
            bound[first] = second
            context.set_tensor_address("xyz"[first], address_of(memory[second]))
        elif kind == "shape" and low <= first <= high:
            rows = first
            for name in "xy":
                context.set_input_shape(name, (rows, 3))
        elif kind == "profile":
            context.set_optimization_profile_async(first)
        elif kind == "arrays" and low <= first <= high:
            a, b = memory[0][:first].copy(), memory[1][:first].copy()
            np.testing.assert_array_equal(context.run([a, b])[0], (a + b) * np.float32(2))
        elif kind == "infer" and low <= rows <= high:
            context.infer_shapes()
        low, high = ((1, 4), (3, 8))[context.active_optimization_profile]
        if low <= rows <= high:
            wanted = [array.copy() for array in memory]
            wanted[bound[2]][:rows] = (wanted[bound[0]][:rows] + wanted[bound[1]][:rows]) * np.float32(2)
            context.execute_async_v3(0)
            for array, expectation in zip(memory, wanted, strict=True):
                np.testing.assert_array_equal(array, expectation)
