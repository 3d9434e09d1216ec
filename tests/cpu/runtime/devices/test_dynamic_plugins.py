"""Plugins of a device whose shapes the run tells, whose elements have four bits, or which lie in bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.formats import pack_nibbles, unpack_nibbles
from dovetail.testing import HostDevice, host_device
from dovetail.types import DataType
from tests.support.plugins import PlainCreator, ScalePlugin

INT4 = DataType.INT4.numpy


class DevicePlugin(ScalePlugin):
    """Puts its work on the stream of the device, over the device's memory; on the host it works at once."""

    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()
    preferred_memory = "device"
    device: HostDevice | None = None

    def open(self, address: int, shape: tuple[int, ...], dtype: Any, stream: int) -> Any:
        """Memory as this plugin reads and writes it: of the device where there is a stream."""
        if self.device is not None and stream:
            return self.device.view_at(address, shape, dtype, user="the plugin")
        from dovetail.host_arrays import array_at

        return array_at(address, shape, dtype)

    def submit(self, stream: int, work: Callable[[], None]) -> None:
        if self.device is not None and stream:
            self.device.find_stream(stream).submit(self.plugin_name, work)
        else:
            work()


class SplitPlugin(DevicePlugin):
    """The positive elements of x, the others, and how many there are of each."""

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestSplit"
        self.num_outputs = 4

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0], input_types[0], dt.int64, dt.int32]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        upper = inputs[0][0]
        sizes = [exprBuilder.declare_size_tensor(index, upper, upper) for index in (2, 3)]
        return [*(dt.DimsExprs([size]) for size in sizes), dt.DimsExprs(0), dt.DimsExprs(0)]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        wanted = (dt.float32, dt.float32, dt.float32, dt.int64, dt.int32)[pos]
        return in_out[pos].desc.format == dt.TensorFormat.LINEAR and in_out[pos].desc.type == wanted

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        (count,) = input_desc[0].dims
        source = self.open(inputs[0], (count,), np.float32, stream)
        parts = [self.open(address, (count,), np.float32, stream) for address in outputs[:2]]
        sizes = [self.open(outputs[2], (), np.int64, stream), self.open(outputs[3], (), np.int32, stream)]

        def work() -> None:
            x = _view(source)
            for part, size, kept in zip(parts, sizes, (x[x > 0], x[x <= 0]), strict=True):
                _view(part)[: kept.size] = kept
                _view(size)[...] = kept.size

        self.submit(stream, work)


class Next4Plugin(DevicePlugin):
    """x + 1 for four-bit integers, which lie two to a byte in the memory that a plugin gets."""

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestNext4"

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return in_out[pos].desc.format == dt.TensorFormat.LINEAR and in_out[pos].desc.type == dt.int4

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        count = int(np.prod(list(input_desc[0].dims)))
        source, target = (self.open(a, ((count + 1) // 2,), np.uint8, stream) for a in (inputs[0], outputs[0]))

        def work() -> None:
            elements = unpack_nibbles(_view(source), INT4, count).astype(np.int8)
            _view(target)[...] = pack_nibbles((elements + 1).astype(np.int8))

        self.submit(stream, work)


class TwicePlugin(DevicePlugin):
    """2 x, by way of its workspace."""

    types = (dt.float32,)

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
        return 256

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        shape = tuple(input_desc[0].dims)
        source, target, scratch = (self.open(a, shape, np.float32, stream) for a in (inputs[0], outputs[0], workspace))

        def work() -> None:
            _view(scratch)[...] = _view(source) * np.float32(2)
            _view(target)[...] = _view(scratch)

        self.submit(stream, work)


def _view(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.view()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    with host_device() as made:
        monkeypatch.setattr(DevicePlugin, "device", made)
        yield made


def _compile(network: Any, *kinds: Any, builder: Any, profile: tuple[Any, Any, Any] | None = None) -> dt.Engine:
    config = builder.create_builder_config()
    config.providers = ["host_device", "cpu"]
    if profile is not None:
        optimization = builder.create_optimization_profile()
        optimization.set_shape("x", *profile)
        config.add_optimization_profile(optimization)
    registry = dt.PluginRegistry()
    for kind in kinds:
        registry.register_creator(PlainCreator(kind().plugin_name, kind), "")
    return dt.compile(network, config=config, registry=registry)


@pytest.mark.parametrize("has_bounds", [True, False])
def test_sizes_are_written_on_the_device_and_read_back_once(device: HostDevice, has_bounds: bool) -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1,))
    layer = network.add_plugin_v3([x], [], SplitPlugin())
    for index, name in enumerate(("kept", "rest", "num_kept", "num_rest")):
        tensor = layer.get_output(index)
        if index < 2:
            tensor = network.add_activation(tensor, dt.ActivationType.RELU).get_output(0)
        tensor.name = name
        network.mark_output(tensor)
    engine = _compile(network, SplitPlugin, builder=builder, profile=((1,), (8,), (40,)) if has_bounds else None)
    assert {s.provider for s in engine.manifest.programs[0].steps if s.kind != "copy"} == {"host_device"}
    for seed in range(6):
        given = np.random.default_rng(seed).standard_normal(seed * 5 + 3).astype(np.float32)
        device.statistics.reset()
        results = engine(given)
        np.testing.assert_array_equal(results["kept"], given[given > 0])
        np.testing.assert_array_equal(results["rest"], np.zeros((given <= 0).sum(), np.float32))
        assert (results["num_kept"], results["num_rest"]) == ((given > 0).sum(), (given <= 0).sum())
        # one wait for both sizes, two where a kernel gives a result of unknown shape, one at the end
        assert device.statistics.waits <= 4


def test_one_wait_for_all_sizes_and_one_that_is_too_large_is_named(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = dt.Builder()
    network = builder.create_network()
    layer = network.add_plugin_v3([network.add_input("x", dt.float32, (-1,))], [], SplitPlugin())
    for index in range(4):
        layer.get_output(index).name = f"y{index}"
        network.mark_output(layer.get_output(index))
    engine = _compile(network, SplitPlugin, builder=builder)
    device.statistics.reset()
    assert engine(np.array([1, -1, 2], np.float32))["y0"].tolist() == [1, 2]
    assert device.statistics.waits == 2  # for both sizes, and at the end
    original = SplitPlugin.enqueue

    def enqueue(
        self: Any, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        original(self, input_desc, output_desc, inputs, outputs, workspace, stream)
        size = self.open(outputs[2], (), np.int64, stream)
        self.submit(stream, lambda: _view(size).fill(1000))

    monkeypatch.setattr(SplitPlugin, "enqueue", enqueue)
    with pytest.raises(dt.PluginError, match="out of its bound") as caught:
        engine(np.ones(5, np.float32))
    assert caught.value.got == 1000


@pytest.mark.parametrize("count", [1, 6, 7])
def test_four_bit_elements_lie_packed_on_the_device(device: HostDevice, count: int) -> None:
    builder = dt.Builder()
    network = builder.create_network()
    tensor = network.add_input("x", dt.int4, (count,))
    for _ in range(2):
        tensor = network.add_plugin_v3([tensor], [], Next4Plugin()).get_output(0)
    tensor.name = "y"
    network.mark_output(tensor)
    engine = _compile(network, Next4Plugin, builder=builder)
    (program,) = engine.manifest.programs
    assert [step.kind for step in program.steps] == ["copy", "plugin", "plugin", "copy"]
    assert {value.size_bytes for value in program.values if value.memory} == {(count + 1) // 2}
    for _ in range(3):
        given = np.arange(-5, -5 + count).astype(np.int8)
        np.testing.assert_array_equal(engine(given.astype(INT4)).astype(np.int8), given + 2)
    assert device.statistics.replays == 2


def test_kernels_of_a_device_read_packed_weights(device: HostDevice) -> None:
    weight = np.array([-3, 2, 7], np.int8).astype(INT4)
    stored = device.to_device(weight)
    assert stored.nbytes == 2
    np.testing.assert_array_equal(device.to_host(stored).astype(np.int8), [-3, 2, 7])
    with pytest.raises(TypeError, match="lies packed"):
        stored.view()


def _loop_engine(*, is_open: bool) -> dt.Engine:
    """x doubled three times, in a loop whose body runs a plugin of the device."""
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1 if is_open else 4,))
    loop = network.add_loop()
    count = network.add_constant((), np.array(3, np.int32)).get_output(0)
    loop.add_trip_limit(count, dt.TripLimit.COUNT)
    state = loop.add_recurrence(x)
    doubled = network.add_plugin_v3([state.get_output(0)], [], TwicePlugin()).get_output(0)
    state.set_input(1, doubled)
    result = loop.add_loop_output(state.get_output(0), dt.LoopOutput.LAST_VALUE).get_output(0)
    result.name = "y"
    network.mark_output(result)
    return _compile(network, TwicePlugin, builder=builder)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_plugin_of_a_device_in_a_body(device: HostDevice, is_open: bool) -> None:
    engine = _loop_engine(is_open=is_open)
    (control,) = [step for step in engine.manifest.programs[0].steps if step.kind == "control"]
    (plugin,) = [step for step in control.bodies[0].steps if step.kind == "plugin"]
    assert plugin.provider == "host_device"
    assert (plugin.workspace_offset is None) == is_open
    for size in (4, 2, 4, 7) if is_open else (4, 4, 4):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(engine(x), x * 8)


def _if_engine() -> dt.Engine:
    """Doubled where the sum of x is positive, else as it is; both branches are on the device."""
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (4,))
    total = network.add_reduce(x, dt.ReduceOperation.SUM, 1, False).get_output(0)
    zero = network.add_constant((), np.zeros((), np.float32)).get_output(0)
    condition = network.add_elementwise(total, zero, dt.ElementWiseOperation.GREATER).get_output(0)
    conditional = network.add_if_conditional()
    conditional.set_condition(condition)
    inside = conditional.add_input(x).get_output(0)
    doubled = network.add_plugin_v3([inside], [], TwicePlugin()).get_output(0)
    split = network.add_plugin_v3([doubled], [], SplitPlugin())
    other = network.add_unary(inside, dt.UnaryOperation.NEG).get_output(0)
    result = conditional.add_output(split.get_output(0), other).get_output(0)
    result.name = "y"
    network.mark_output(result)
    return _compile(network, TwicePlugin, SplitPlugin, builder=builder)


def test_a_branch_whose_plugin_tells_a_size(device: HostDevice) -> None:
    engine = _if_engine()
    for x in ([1, -2, 3, 4], [-1, -1, 0, 0], [5, 5, 5, -5], [1, 1, 1, 1]):
        given = np.array(x, np.float32)
        doubled = given * 2
        np.testing.assert_array_equal(engine(given), doubled[doubled > 0] if given.sum() > 0 else -given)


def test_a_loop_over_rows_whose_body_runs_on_the_device(device: HostDevice) -> None:
    """Rows of x doubled, one iteration each, and stacked."""
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (3, 4))
    loop = network.add_loop()
    count = network.add_constant((), np.array(3, np.int32)).get_output(0)
    loop.add_trip_limit(count, dt.TripLimit.COUNT)
    row = loop.add_iterator(x, 0).get_output(0)
    doubled = network.add_plugin_v3([row], [], TwicePlugin()).get_output(0)
    output = loop.add_loop_output(doubled, dt.LoopOutput.CONCATENATE, 0)
    output.set_input(1, count)
    output.get_output(0).name = "y"
    network.mark_output(output.get_output(0))
    engine = _compile(network, TwicePlugin, builder=builder)
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    for scale in (1, 2, 3):
        np.testing.assert_array_equal(engine(given * scale), given * scale * 2)


def test_sizes_of_a_device_without_streams() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    layer = network.add_plugin_v3([network.add_input("x", dt.float32, (-1,))], [], SplitPlugin())
    for index in range(4):
        layer.get_output(index).name = f"y{index}"
        network.mark_output(layer.get_output(index))
    with host_device(has_streams=False):
        engine = _compile(network, SplitPlugin, builder=builder)
        results = engine(np.array([3, -1, 2], np.float32))
        assert (results["y0"].tolist(), results["y3"].item()) == ([3, 2], 1)
