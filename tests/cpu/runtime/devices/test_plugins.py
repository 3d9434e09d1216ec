"""Plugins on a device: its addresses, its stream, its memory as workspace, and captured with the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin import as_array
from dovetail.testing import HostDevice, host_device
from tests.support.plugins import ScalePlugin

X = np.arange(24, dtype=np.float32).reshape(1, 24, 1, 1)


class DeviceScale(ScalePlugin):
    """Puts its work on the stream it gets; the build runs it on the host, where there is none."""

    formats = (dt.TensorFormat.LINEAR,)
    types = (dt.float32,)
    tactics = (1,)
    device: HostDevice | None = None
    workspace_bytes = 512
    enqueued: list[tuple[int, int]] = []  # noqa: RUF012 - one list for all clones, which the tests clear

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
        return self.workspace_bytes

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        source, target, factor = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0]), self.factor

        def work() -> None:
            scratch = np.ndarray(source.shape, np.float32, _memory(workspace, source.nbytes))
            np.multiply(source, factor, out=scratch)
            target[...] = scratch

        if self.device is None or not stream:
            work()
        else:
            self.enqueued.append((stream, workspace))
            self.device.find_stream(stream).submit("DeviceScale", work)


def _memory(address: int, size: int) -> memoryview:
    import ctypes

    return memoryview((ctypes.c_char * size).from_address(address))


class DeviceScaleCreator(dt.IPluginCreatorV3One):
    def __init__(self) -> None:
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "TestScale", "1", ""
        self.field_names = dt.PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        factor = next((float(f.data[0]) for f in field_collection if f.name == "factor"), 2.0)
        return DeviceScale(factor)


def _engine(
    *,
    plugins: int = 1,
    is_open: bool = False,
    annotate: bool = True,
    memory: str = "",
    annotation: str = "host_device",
    providers: Sequence[str] = ("host_device", "cpu"),
) -> dt.Engine:
    builder = dt.Builder()
    network = builder.create_network()
    tensor = network.add_input("x", dt.float32, (1, -1 if is_open else 24, 1, 1))
    tensor = network.add_activation(tensor, dt.ActivationType.RELU).get_output(0)
    for index in range(plugins):
        plugin = DeviceScale(3.0)
        plugin.preferred_memory = memory
        layer = network.add_plugin_v3([tensor], [], plugin)
        layer.name = f"scale{index}"
        tensor = network.add_activation(layer.get_output(0), dt.ActivationType.RELU).get_output(0)
    tensor.name = "y"
    network.mark_output(tensor)
    config = builder.create_builder_config()
    config.providers = providers
    if annotate:
        config.layer_providers["scale*"] = annotation
    registry = dt.PluginRegistry()
    registry.register_creator(DeviceScaleCreator(), "")
    engine = dt.compile(network, config=config, registry=registry)
    DeviceScale.enqueued.clear()  # the build runs each plugin once
    return engine


def test_a_plugin_gets_the_devices_memory_and_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device() as device:
        monkeypatch.setattr(DeviceScale, "device", device)
        monkeypatch.setattr(DeviceScale, "enqueued", [])
        engine = _engine(plugins=2)
        assert {step.provider for step in engine.manifest.programs[0].steps} == {"host_device"}
        device.statistics.reset()
        np.testing.assert_array_equal(engine(X), X * 9)
        assert device.statistics.waits == 1
        (stream, workspace), (other_stream, other_workspace) = DeviceScale.enqueued
        assert stream == other_stream
        assert stream in device._streams.streams
        assert workspace == other_workspace != 0


def test_a_plugin_is_captured_with_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device() as device:
        monkeypatch.setattr(DeviceScale, "device", device)
        monkeypatch.setattr(DeviceScale, "enqueued", [])
        engine = _engine()
        for seed in range(5):
            x = np.random.default_rng(seed).random(X.shape).astype(np.float32)
            np.testing.assert_allclose(engine(x), x * 3, rtol=1e-6)
        assert len(DeviceScale.enqueued) == 2  # in the first run, and in the capture
        assert (device.statistics.captures, device.statistics.replays) == (1, 4)


def test_shapes_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device() as device:
        monkeypatch.setattr(DeviceScale, "device", device)
        engine = _engine(is_open=True)
        for count in (24, 24, 24, 7, 7, 24):
            x = X[:, :count]
            np.testing.assert_array_equal(engine(x), x * 3)


def test_without_an_annotation_a_plugin_is_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device() as device:
        monkeypatch.setattr(DeviceScale, "device", device)
        monkeypatch.setattr(DeviceScale, "enqueued", [])
        engine = _engine(annotate=False)
        assert [step.kind for step in engine.manifest.programs[0].steps] == [
            *("kernel", "copy", "plugin", "copy", "kernel")
        ]
        for _ in range(3):
            np.testing.assert_array_equal(engine(X), X * 3)
        assert not DeviceScale.enqueued


def test_a_plugin_of_the_device_gets_the_callers_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device() as device:
        monkeypatch.setattr(DeviceScale, "device", device)
        monkeypatch.setattr(DeviceScale, "enqueued", [])
        engine = _engine()
        engine.capture_graphs = False
        context, stream = engine.create_execution_context(), device.create_stream()
        assert stream is not None
        given, result = device.to_device(X), device.empty(X.shape, np.float32)
        context.set_tensor_address("x", given.address)
        context.set_tensor_address("y", result.address)
        for handle in (0, stream.handle, 0):
            context.execute_async_v3(handle)
            np.testing.assert_array_equal(device.to_host(result), X * 3)
        handles = [used for used, _ in DeviceScale.enqueued]
        assert handles[1] == stream.handle != handles[0] == handles[2]


def test_a_plugin_of_the_host_gets_the_callers_handle() -> None:
    context = _engine(annotate=False, providers=["cpu"]).create_execution_context()
    (step,) = context._instance.all_plugin_steps()
    result = np.empty_like(X)
    context.set_tensor_address("x", X.ctypes.data)
    context.set_tensor_address("y", result.ctypes.data)
    context.execute_async_v3(77)
    assert step.stream == 77
    np.testing.assert_array_equal(result, X * 3)


@pytest.mark.parametrize(
    ("memory", "where"), [("device", "host_device"), ("host_device", "host_device"), ("host", "cpu")]
)
def test_a_plugin_says_in_which_memory_it_runs(monkeypatch: pytest.MonkeyPatch, memory: str, where: str) -> None:
    with host_device() as device:
        monkeypatch.setattr(DeviceScale, "device", device)
        engine = _engine(annotate=False, memory=memory)
        assert [step.provider for step in engine.manifest.programs[0].steps if step.kind == "plugin"] == [where]
        np.testing.assert_array_equal(engine(X), X * 3)


def test_an_annotation_goes_before_what_the_plugin_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device() as device:
        monkeypatch.setattr(DeviceScale, "device", device)
        engine = _engine(memory="device", annotation="cpu")
        assert [step.provider for step in engine.manifest.programs[0].steps if step.kind == "plugin"] == ["cpu"]


def test_a_plugin_for_a_provider_that_is_not_there_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with host_device():
        engine = _engine(annotate=False, memory="elsewhere")
        assert "'scale0' asks for elsewhere, which is not among the providers" in capfd.readouterr().err
        np.testing.assert_array_equal(engine(X), X * 3)


def test_a_plugin_lies_between_compiled_partitions_without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device(compiles=True) as device:
        monkeypatch.setattr(DeviceScale, "device", device)
        monkeypatch.setattr(DeviceScale, "enqueued", [])
        engine = _engine(annotate=False, memory="device")
        kinds = [step.kind for step in engine.manifest.programs[0].steps]
        assert kinds == ["partition", "plugin", "partition"]
        device.statistics.reset()
        np.testing.assert_array_equal(engine(X), X * 3)
        assert (device.statistics.copies_to_device, device.statistics.copies_to_host) == (1, 1)
        assert len(DeviceScale.enqueued) == 1


def test_partition_plugin_and_partition_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device(compiles=True, workspace_bytes=300) as device:
        monkeypatch.setattr(DeviceScale, "device", device)
        monkeypatch.setattr(DeviceScale, "enqueued", [])
        engine = _engine(annotate=False, memory="device")
        for seed in range(5):
            x = np.random.default_rng(seed).random(X.shape).astype(np.float32)
            np.testing.assert_allclose(engine(x), x * 3, rtol=1e-6)
        assert (device.statistics.captures, device.statistics.replays) == (1, 4)
        assert [work.name for work in device.graphs[0].work] == ["Partition", "DeviceScale", "Partition"]


def _run_four_times(monkeypatch: pytest.MonkeyPatch, enqueue: Any, *, plugins: int = 1) -> tuple[list[Any], Any, Any]:
    """The results or errors of four runs, the device's counts, and the steps that were not captured."""
    with host_device() as device:
        engine = _engine(plugins=plugins)
        monkeypatch.setattr(DeviceScale, "device", device)
        monkeypatch.setattr(DeviceScale, "enqueued", [])
        monkeypatch.setattr(DeviceScale, "enqueue", enqueue)
        context = engine.create_execution_context()
        device.statistics.reset()
        results: list[Any] = []
        for _ in range(4):
            try:
                results.append(context.run([X])[0])
            except dt.DovetailError as error:
                results.append(error)
        return results, device.statistics, {each.step: each.reason for each in context.uncaptured_steps}


def test_a_plugin_that_fails_in_a_capture_runs_between_two_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = DeviceScale.enqueue

    def enqueue(self: Any, *arguments: Any) -> None:
        device = self.device
        if device is not None and device.find_stream(arguments[-1]).is_recording:
            raise RuntimeError("memory cannot be copied now")
        plain(self, *arguments)

    results, counts, uncaptured = _run_four_times(monkeypatch, enqueue)
    for result in results:
        np.testing.assert_array_equal(result, X * 3)
    assert "failed while its stream was captured" in uncaptured["scale0"]
    assert "memory cannot be copied now" in uncaptured["scale0"]
    assert (counts.captures, counts.replays) == (3, 2)  # one that was given up, and one on each side of the plugin
    assert len(DeviceScale.enqueued) == 4


def test_a_plugin_that_fails_in_every_run_is_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def enqueue(self: Any, *arguments: Any) -> None:
        raise RuntimeError("told to fail")

    results, counts, uncaptured = _run_four_times(monkeypatch, enqueue)
    assert all("told to fail" in str(result) for result in results)
    assert counts.captures == 0
    assert uncaptured == {}


def test_a_plugin_that_can_not_be_captured_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceScale, "can_capture", False, raising=False)
    results, counts, uncaptured = _run_four_times(monkeypatch, DeviceScale.enqueue, plugins=2)
    for result in results:
        np.testing.assert_array_equal(result, X * 9)
    assert set(uncaptured) == {"scale0", "scale1"}
    assert "can_capture" in uncaptured["scale0"]
    assert (counts.captures, counts.replays) == (3, 9)
    assert len(DeviceScale.enqueued) == 8
