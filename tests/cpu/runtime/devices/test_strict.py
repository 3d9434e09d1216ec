"""What a host device refuses that a real one would do, wrongly: foreign addresses, races, memory after its free."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.errors import DovetailError, PluginError, ProviderError
from dovetail.plugin import as_array
from dovetail.provider.interfaces import BindContext
from dovetail.testing import HostDevice, HostDeviceArray, HostStream, host_device
from dovetail.testing.host_clocks import HOST_CLOCK, Moment
from tests.support.device_models import X as MATRIX
from tests.support.device_models import build, chain, expected
from tests.support.plugins import ScalePlugin
from tests.support.single_kernels import load_kernel

X = np.arange(24, dtype=np.float32).reshape(1, 24, 1, 1)


class StrictScale(ScalePlugin):
    """Opens its addresses on the device; ``fault`` makes it wrong in one way."""

    formats = (dt.TensorFormat.LINEAR,)
    types = (dt.float32,)
    tactics = (1,)
    device: HostDevice | None = None
    fault = ""

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        if self.device is None or not stream:  # the build runs it on the host
            as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0]) * self.factor
            return
        device, factor = self.device, self.factor
        address = X.ctypes.data if self.fault == "host pointer" else inputs[0]
        source = device.view_at(address, input_desc[0].dims, np.float32, user="Scale")
        target = device.view_at(outputs[0], output_desc[0].dims, np.float32, user="Scale")

        def work() -> None:
            np.multiply(source.read(), factor, out=target.view())

        if self.fault == "at once":
            work()
        elif self.fault == "another stream":
            other = device.create_stream()
            assert other is not None
            other.submit("Scale", work)
        elif self.fault == "another stream with events":
            _submit_beside(device, stream, work)
        else:
            device.find_stream(stream).submit("Scale", work)


def _submit_beside(device: HostDevice, handle: int, work: Any) -> None:
    own, other = device.find_stream(handle), device.create_stream()
    assert other is not None
    other.wait(own.record())
    other.submit("Scale", work)
    own.wait(other.record())


class StrictScaleCreator(dt.IPluginCreatorV3One):
    def __init__(self) -> None:
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "TestScale", "1", ""
        self.field_names = dt.PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return StrictScale(3.0)


def _engine() -> dt.Engine:
    builder = dt.Builder()
    network = builder.create_network()
    tensor = network.add_input("x", dt.float32, (1, 24, 1, 1))
    tensor = network.add_activation(tensor, dt.ActivationType.RELU).get_output(0)
    layer = network.add_plugin_v3([tensor], [], StrictScale(3.0))
    layer.name = "scale0"
    tensor = network.add_activation(layer.get_output(0), dt.ActivationType.RELU).get_output(0)
    tensor.name = "y"
    network.mark_output(tensor)
    config = builder.create_builder_config()
    config.providers = ["host_device", "cpu"]
    config.layer_providers["scale*"] = "host_device"
    registry = dt.PluginRegistry()
    registry.register_creator(StrictScaleCreator(), "")
    engine = dt.compile(network, config=config, registry=registry)
    engine.capture_graphs = False
    return engine


def _stream(device: HostDevice) -> HostStream:
    stream = device.create_stream()
    assert stream is not None
    return stream


def _read(array: HostDeviceArray) -> None:
    array.read()


# plugins


@pytest.mark.parametrize("fault", ["", "another stream with events"])
def test_a_plugin_that_keeps_order_is_left_alone(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    with host_device() as device:
        monkeypatch.setattr(StrictScale, "device", device)
        engine = _engine()
        monkeypatch.setattr(StrictScale, "fault", fault)
        for times in (1, 2, 3):
            np.testing.assert_array_equal(engine(X * times), X * times * 3)


def test_a_host_pointer_given_to_a_device_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device() as device:
        monkeypatch.setattr(StrictScale, "device", device)
        engine = _engine()
        monkeypatch.setattr(StrictScale, "fault", "host pointer")
        with pytest.raises(PluginError, match=r"TestScale.*enqueue failed.*'host_device'.*no live memory"):
            engine(X)


@pytest.mark.parametrize("fault", ["at once", "another stream"])
def test_work_of_a_plugin_beside_the_contexts_stream(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    with host_device() as device:
        monkeypatch.setattr(StrictScale, "device", device)
        engine = _engine()
        monkeypatch.setattr(StrictScale, "fault", fault)
        with pytest.raises(DovetailError, match=r"memory that .*, and no event orders the two"):
            _run_all(engine, device)


def _run_all(engine: dt.Engine, device: HostDevice) -> None:
    engine(X)
    device.synchronize()  # a stream that nobody waits for does its work at some time


# addresses


def test_addresses_are_of_live_memory() -> None:
    with host_device() as device:
        array = device.to_device(MATRIX)
        assert device.view_at(array.address, (3, 8), np.float32).read().shape == (3, 8)
        assert device.view_at(0, (0, 8), np.float32).read().size == 0
        for address, shape in (
            (MATRIX.ctypes.data, (3, 8)),  # the host's
            (array.address + 64, (3, 8)),  # ends behind the allocation
            (0, (1,)),
        ):
            with pytest.raises(ProviderError, match=r"'host_device'.*no live memory"):
                device.view_at(address, shape, np.float32)
        address = array.address
        del array
        with pytest.raises(ProviderError, match="no live memory"):
            device.view_at(address, (3, 8), np.float32)


def test_a_kernel_over_memory_of_the_host_is_named() -> None:
    with host_device() as device:
        relu = load_kernel(device, "Relu", 14, {}, ["float32"]).bind(BindContext(stream=_stream(device)))
        good, forged = device.to_device(MATRIX), device.to_device(MATRIX)
        forged.address = MATRIX.ctypes.data
        assert relu.write is not None
        with pytest.raises(ProviderError, match="Relu got an address that is in no live memory"):
            relu.write(forged, good)


def test_what_can_only_be_read_is_not_written() -> None:
    with host_device() as device, pytest.raises(ValueError, match="read-only"):
        device.to_device(MATRIX).read()[0] = 1


# order


def test_streams_that_touch_the_same_memory() -> None:
    with host_device() as device:
        first, second, array = _stream(device), _stream(device), device.to_device(MATRIX)
        first.submit("writer", lambda: array.view().fill(1))
        second.submit("reader", lambda: _read(array))
        with pytest.raises(ProviderError, match=r"'reader' on .* reads memory that 'writer' on stream .* writes"):
            device.synchronize()


def test_the_order_in_which_streams_get_on_does_not_hide_a_race() -> None:
    with host_device() as device:
        first, second, array = _stream(device), _stream(device), device.to_device(MATRIX)
        first.submit("writer", lambda: array.view().fill(1))
        second.submit("reader", lambda: _read(array))
        second.synchronize()
        with pytest.raises(ProviderError, match=r"'writer' .* writes memory that 'reader' .* reads"):
            first.synchronize()


@pytest.mark.parametrize("way", ["event", "host waits", "host polls", "same stream", "both read", "other parts"])
def test_streams_in_order(way: str) -> None:
    with host_device() as device:
        first, second, array = _stream(device), _stream(device), device.to_device(MATRIX)
        half = device.view_at(array.address, (1, 8), np.float32)
        rest = device.view_at(array.address + 32, (2, 8), np.float32)
        source = rest if way == "other parts" else array
        work = (lambda: _read(half)) if way == "both read" else (lambda: half.view().fill(1))
        first.submit("first", work)
        if way == "event":
            second.wait(first.record())
        elif way == "host waits":
            first.synchronize()
        elif way == "host polls":
            event = first.record()
            first.advance(None)
            assert event.is_done()
        (first if way == "same stream" else second).submit("second", lambda: _read(source))
        device.synchronize()


def test_an_event_before_the_work_orders_nothing() -> None:
    with host_device() as device:
        first, second, array = _stream(device), _stream(device), device.to_device(MATRIX)
        early = first.record()
        first.submit("writer", lambda: array.view().fill(1))
        second.wait(early)
        second.submit("writer too", lambda: array.view().fill(2))
        with pytest.raises(ProviderError, match="no event orders"):
            device.synchronize()


def test_the_host_reads_before_it_waits() -> None:
    with host_device() as device:
        stream, source = _stream(device), device.to_device(MATRIX)
        target = device.empty(MATRIX.shape, MATRIX.dtype)
        device.copy(source, target, stream)
        event = stream.record()
        stream.advance(None)  # the device is done, and nobody waited
        with pytest.raises(ProviderError, match=r"'view' of the host .* 'copy' on stream"):
            target.read()
        event.synchronize()
        np.testing.assert_array_equal(target.read(), MATRIX)


def test_contexts_of_one_engine_share_weights_and_no_memory_that_is_written() -> None:
    with host_device() as device:
        engine = build(chain())
        engine.capture_graphs = False
        contexts = [engine.create_execution_context() for _ in range(3)]
        for _ in range(3):
            for context in contexts:
                np.testing.assert_allclose(context.run([MATRIX])[0], expected(chain(), MATRIX), rtol=1e-6)
        device.synchronize()


# frees


def test_memory_after_its_free_on_a_stream() -> None:
    with host_device() as device:
        stream = _stream(device)
        address = device.allocator.allocate(96, 256, 0)
        array = device.view_at(address, (3, 8), np.float32)
        stream.submit("before", lambda: array.view().fill(1))
        assert device.allocator.deallocate_async(address, stream.handle)
        used = device.allocator.statistics.used_bytes
        with pytest.raises(ProviderError, match="uses memory after its free"):
            device.copy(MATRIX, array, stream)
        with pytest.raises(ProviderError, match="uses memory after its free"):
            device.view_at(address, (3, 8), np.float32)
        stream.submit("after", lambda: array.view().fill(2))
        with pytest.raises(ProviderError, match=r"'after' on stream .* no live memory"):
            stream.synchronize()
        assert device.allocator.statistics.used_bytes < used


def test_a_free_on_another_stream_is_not_in_order() -> None:
    with host_device() as device:
        first, second = _stream(device), _stream(device)
        address = device.allocator.allocate(96, 256, 0)
        array = device.view_at(address, (3, 8), np.float32)
        first.submit("work", lambda: array.view().fill(1))
        device.allocator.deallocate_async(address, second.handle)
        with pytest.raises(ProviderError, match=r"'work' on stream .* uses memory after its free"):
            first.synchronize()


def test_memory_that_was_given_out_again_before_the_work_ran() -> None:
    with host_device() as device:
        stream = _stream(device)
        address = device.allocator.allocate(96, 256, 0)
        array = device.view_at(address, (3, 8), np.float32)
        stream.submit("late", lambda: array.view().fill(1))
        device.allocator.deallocate(address)
        assert device.allocator.allocate(96, 256, 0) == address
        with pytest.raises(ProviderError, match=r"'late' on stream .* 'allocate' of the host"):
            stream.synchronize()


def test_frees_that_cannot_be() -> None:
    with host_device() as device:
        stream = _stream(device)
        address = device.allocator.allocate(96, 256, 0)
        assert device.allocator.deallocate_async(address, stream.handle)
        with pytest.raises(ProviderError, match="after its free"):
            device.allocator.deallocate_async(address, stream.handle)
        assert not device.allocator.deallocate_async(12345, stream.handle)
        with pytest.raises(ProviderError, match="no stream"):
            device.allocator.deallocate_async(address, 1)
        device.begin_capture(stream)
        with pytest.raises(ProviderError, match="during a capture"):
            device.allocator.deallocate_async(device.allocator.allocate(96, 256, 0), stream.handle)
        device.end_capture(stream)


def test_a_block_that_could_not_grow_takes_its_bound_runs_with_it() -> None:
    with host_device(memory_bytes=10_000):
        engine = build(chain())
        engine(MATRIX)
        with pytest.raises(ProviderError, match="no memory"):
            engine(np.resize(MATRIX, (1000, 8)))
        np.testing.assert_allclose(engine(MATRIX), expected(chain(), MATRIX), rtol=1e-6)


def test_memory_is_freed_while_the_host_clock_is_updated() -> None:
    """The garbage collector may close an engine at any point, also while the clock is locked."""
    with host_device() as device:
        stream = device.create_stream()
        assert stream is not None
        address = device.allocator.allocate(64, 256, 0)

        class Known(dict[int, int]):
            def items(self) -> Any:
                device.allocator.deallocate_async(address, stream.handle)
                return super().items()

        moment = Moment(name="wait", stream=stream.handle, position=0, known=Known())
        thread = threading.Thread(target=HOST_CLOCK.learn, args=(moment,), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        stream.synchronize()
