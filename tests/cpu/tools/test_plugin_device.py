"""The plugin checker on a device: addresses and stream are the device's, and each rule sees what happened there."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import dovetail as dt
from dovetail.errors import DeviceMissingError, ProviderError, UsageError
from dovetail.plugin.check import Report, check_plugin
from dovetail.provider.loader import get_provider
from dovetail.testing import HostDevice, host_device
from dovetail.tools.plugin_device import PluginDevice
from tests.support.plugins import ScalePlugin


class Tripling(ScalePlugin):
    """Works on the stream it gets, over memory of the device, by way of its workspace."""

    preferred_memory = "device"
    formats = (dt.TensorFormat.LINEAR,)
    types = (dt.float32,)
    tactics = (1,)
    extra_elements = 0

    def note(self, method: str, detail: Any = None) -> None:
        """Keep nothing: what clones share is a finding."""

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
        return int(np.prod(inputs[0].max)) * 4

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        device, shape = _device(), tuple(input_desc[0].dims)
        assert input_desc[0].is_on_device
        assert output_desc[0].is_on_device
        source = device.view_at(inputs[0], shape, np.float32)
        scratch = device.view_at(workspace, shape, np.float32)
        count = int(np.prod(shape)) + self.extra_elements
        target = device.view_at(outputs[0], (count,), np.float32)

        def work() -> None:
            np.multiply(source.read(), self.factor, out=scratch.view())
            target.view()[: scratch.size] = scratch.read().reshape(-1)
            target.view()[scratch.size :] = 7

        device.find_stream(self.find_queue(device, stream)).submit("Tripling", work)

    def find_queue(self, device: HostDevice, stream: int) -> int:
        return stream


class TooFar(Tripling):
    """Writes one element behind the end."""

    extra_elements = 1


class Elsewhere(Tripling):
    """Uses a stream of its own, which nobody waits for."""

    queues: ClassVar[dict[int, Any]] = {}

    def find_queue(self, device: HostDevice, stream: int) -> int:
        own: int = self.queues.setdefault(id(device), device.create_stream()).handle
        return own


class LostAddress(Tripling):
    """Has the device read an address that is none of its memory."""

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        def work() -> None:
            _device().view_at(64, (4,), np.float32).read()

        _device().find_stream(stream).submit("LostAddress", work)


def _device() -> HostDevice:
    device = get_provider("host_device")
    assert isinstance(device, HostDevice)
    return device


@pytest.fixture(autouse=True)
def device() -> Iterator[HostDevice]:
    with host_device() as found:
        yield found


def _check(plugin: type[ScalePlugin], *, isolate: bool = False) -> Report:
    return check_plugin(lambda: plugin(3.0), shapes=["2x3", "4x5"], device=PluginDevice("host_device"), isolate=isolate)


def _failed(report: Report) -> set[str]:
    return {outcome.rule.id for outcome in report.outcomes if outcome.status == "failed"}


@pytest.mark.parametrize("isolate", [False, True])
def test_a_plugin_of_a_device_keeps_all_rules(device: HostDevice, isolate: bool) -> None:
    report = _check(Tripling, isolate=isolate)
    assert _failed(report) == set(), str(report)
    passed = {outcome.rule.id for outcome in report.outcomes if outcome.status == "passed"}
    assert {"R40", "R41", "R42", "R43", "R44", "R46", "R47", "R54", "R55", "R58", "R62", "R64"} <= passed
    assert ("R65" in passed) == isolate
    gc.collect()
    assert (device.statistics.copies_to_device > 0) != isolate
    assert device.allocator.statistics.used_bytes == 0


def test_a_write_behind_the_end_on_the_device_is_seen() -> None:
    assert _failed(_check(TooFar)) == {"R42"}


def test_work_on_a_stream_that_was_not_passed_is_seen() -> None:
    assert "R44" in _failed(_check(Elsewhere))


def test_work_that_fails_on_the_device_is_a_finding_of_enqueue() -> None:
    report = _check(LostAddress)
    assert "R40" in _failed(report)
    assert "in work that was put on the device" in next(o.message for o in report.outcomes if o.rule.id == "R40")


def test_a_plugin_of_the_host_is_checked_there_and_that_is_noted() -> None:
    report = check_plugin(lambda: ScalePlugin(3.0), shapes=["2x3"], device=PluginDevice("host_device"), isolate=False)
    assert any("checked on the host: preferred_memory is ''" in note for note in report.notes)


def test_what_is_no_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="there is no provider 'gpv'"):
        PluginDevice("gpv")
    with pytest.raises(UsageError, match="provider 'cpu': its memory is the host's"):
        check_plugin(lambda: Tripling(3.0), shapes=["2x3"], device=PluginDevice("cpu"))
    with pytest.raises(DeviceMissingError, match="it has no device 3 here"):
        check_plugin(lambda: Tripling(3.0), shapes=["2x3"], device=PluginDevice("host_device:3"))
