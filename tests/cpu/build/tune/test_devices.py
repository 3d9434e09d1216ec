"""Plugin layers on a device are tuned there: in its memory, on a stream, with its events and its name in the keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.build.tune.clocks import EventTimer, HostTimer, open_lane
from dovetail.plan.manifest import LayerRecord
from dovetail.plugin import as_array
from dovetail.provider.loader import get_provider
from dovetail.testing import HostDevice, HostEvent, host_device
from tests.support.plugins import PlainCreator, ScalePlugin


class DeviceScale(ScalePlugin):
    """Puts its work on the stream; tactic 1 is slow to launch, tactic 2 is slow on the device."""

    formats = (dt.TensorFormat.LINEAR,)
    types = (dt.float32,)
    tactics = (1, 2)
    device: HostDevice
    streams: list[int] = []  # noqa: RUF012 - one list for all clones, which the tests clear
    launch_s = 0.003
    work_s = 0.001

    def __init__(self, factor: float = 2.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.timing_cache_id = "scale"
        self.preferred_memory = "host_device"

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
        return 256

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        self.streams.append(stream)
        tactic = self.tactic
        if tactic == 1:
            time.sleep(self.launch_s)

        def work() -> None:
            if tactic == 2:
                time.sleep(self.work_s)
            source, target = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
            np.multiply(source, 2.0, out=target)

        self.device.find_stream(stream).submit("scale", work)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostDevice]:
    with host_device() as made:
        monkeypatch.setattr(DeviceScale, "device", made, raising=False)
        monkeypatch.setattr(DeviceScale, "streams", [])
        yield made


def _build(plugin: Any, cache: dt.ITimingCache | None = None, *, fails_on_miss: bool = False) -> list[LayerRecord]:
    builder = dt.Builder()
    network = builder.create_network()
    layer = network.add_plugin_v3([network.add_input("x", dt.float32, (4, 8))], [], plugin)
    layer.name = "scale"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.providers = ["host_device", "cpu"]
    config.layer_providers["scale"] = "host_device"
    if cache is not None:
        config.set_timing_cache(cache)
    if fails_on_miss:
        config.set_flag(dt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", type(plugin)), "")
    return dt.compile(network, config=config, registry=registry).manifest.tuning


def test_the_time_is_the_devices_and_launches_are_not_in_it(device: HostDevice) -> None:
    """The slow launch would lose by the host's clock; on the device it is the faster one."""
    rows = {row.tactic: row for row in _build(DeviceScale())[0].candidates}
    assert rows[1].chosen
    assert rows[1].time_us < 0.5e3 < 1e3 <= rows[2].time_us
    assert len(set(DeviceScale.streams)) == 1
    assert all(DeviceScale.streams)


def test_keys_name_the_device_that_ran_the_layer(device: HostDevice) -> None:
    cache = dt.ITimingCache()
    _build(DeviceScale(), cache)
    keys = cache.query_keys()
    assert len(keys) == 2
    assert all(key.startswith(f"plugin|{device.device.fingerprint}|") for key in keys)
    DeviceScale.streams.clear()
    rows = _build(DeviceScale(), cache, fails_on_miss=True)[0].candidates
    assert len(DeviceScale.streams) == 1  # a cached choice is run once
    assert {row.status for row in rows} == {"cached"}


def test_results_are_read_back_from_the_device_and_compared(device: HostDevice) -> None:
    class OneWrong(DeviceScale):
        tactics = (1, 2, 3)
        launch_s = work_s = 0.0

        def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
            super().enqueue(input_desc, output_desc, inputs, outputs, *rest)
            if self.tactic == 2:
                target = as_array(outputs[0], output_desc[0])
                self.device.find_stream(rest[1]).submit("spoil", lambda: np.add(target, 1.0, out=target))

    rows = {row.tactic: row for row in _build(OneWrong())[0].candidates}
    assert rows[2].status == "wrong"
    assert "majority" in rows[2].reason


def test_memory_of_trials_goes_back(device: HostDevice) -> None:
    _build(DeviceScale())
    import gc

    gc.collect()
    assert device.allocator.statistics.used_bytes == 0


def test_a_burst_is_captured_and_one_that_cannot_be_is_launched_run_by_run(device: HostDevice) -> None:
    lane = open_lane(device)
    assert isinstance(lane.clock, EventTimer)
    stream = device.find_stream(lane.stream.handle)  # type: ignore[union-attr]
    done: list[str] = []
    device.statistics.reset()
    lane.clock.time_us(lambda: stream.submit("work", lambda: done.append("w")), 5)
    # Replayed once untimed, for a graph is made ready then, and once for the time.
    assert (device.statistics.captures, device.statistics.replays, len(done)) == (1, 2, 10)

    def waits() -> None:
        stream.synchronize()
        done.append("s")

    lane.clock.time_us(waits, 3)
    assert done[10:] == ["s"] * 3
    assert device.statistics.replays == 2
    lane.close()


def test_events_that_take_no_times_are_told_and_the_hosts_clock_is_used(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: HostEvent, earlier: Any) -> float:
        raise NotImplementedError("HostEvent takes no times")

    monkeypatch.setattr(HostEvent, "elapsed_us", refuse)
    told: list[str] = []
    lane = open_lane(device, told.append)
    stream = device.find_stream(lane.stream.handle)  # type: ignore[union-attr]
    for _ in range(2):
        assert lane.clock.time_us(lambda: stream.submit("work", lambda: time.sleep(0.002)), 1) >= 2000
    assert len(told) == 1
    assert "takes no times" in told[0]
    lane.close()


def test_a_provider_without_streams_is_timed_by_the_hosts_clock() -> None:
    with host_device(has_streams=False) as device:
        assert isinstance(open_lane(device).clock, HostTimer)


class TwoFormats(DeviceScale):
    """Accepts two formats, so that the cost of reformats matters."""

    formats = (dt.TensorFormat.LINEAR, dt.TensorFormat.CHW32)
    tactics = (1,)
    launch_s = 0.0


@pytest.mark.parametrize("reformats", [True, False])
def test_reformats_are_timed_where_they_run(device: HostDevice, reformats: bool) -> None:
    device.options = replace(device.options, reformats=reformats)
    cache = dt.ITimingCache()
    builder = dt.Builder()
    network = builder.create_network()
    tensor = network.add_input("x", dt.float32, (1, 4, 2, 2))
    tensor = network.add_activation(tensor, dt.ActivationType.RELU).get_output(0)
    layer = network.add_plugin_v3([tensor], [], TwoFormats())
    layer.name = "scale"
    out = network.add_activation(layer.get_output(0), dt.ActivationType.RELU).get_output(0)
    network.mark_output(out)
    config = builder.create_builder_config()
    config.providers = ["host_device", "cpu"]
    config.layer_providers["scale"] = "host_device"
    config.set_timing_cache(cache)
    builder.build_plan(network, config)
    keys = [key.split("|")[1] for key in cache.query_keys() if key.startswith("reformat|")]
    assert keys
    fingerprint = device.device.fingerprint if reformats else get_provider("cpu").device.fingerprint
    assert set(keys) == {fingerprint}
