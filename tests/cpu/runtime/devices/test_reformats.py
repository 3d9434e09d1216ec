"""Changes of format are steps of the device that has the data; one that cannot leaves them to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin import as_array
from dovetail.testing import HostDevice, host_device
from tests.support.plugins import PlainCreator, ScalePlugin

X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(1, 6, 2, 2)


class PackedScale(ScalePlugin):
    """Takes CHW32 alone, and puts its work on the stream of the device."""

    formats = (dt.TensorFormat.CHW32,)
    types = (dt.float32,)
    tactics = (1,)
    preferred_memory = "device"
    device: HostDevice | None = None

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        source, target = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        if self.device is None or not stream:
            np.multiply(source, self.factor, out=target)
        else:
            self.device.find_stream(stream).submit("Scale", lambda: np.multiply(source, self.factor, out=target))


def _engine(*, is_open: bool = False) -> dt.Engine:
    builder = dt.Builder()
    network = builder.create_network()
    tensor = network.add_input("x", dt.float32, (1, 6, -1 if is_open else 2, 2))
    tensor = network.add_activation(tensor, dt.ActivationType.RELU).get_output(0)
    tensor = network.add_plugin_v3([tensor], [], PackedScale(3.0)).get_output(0)
    tensor = network.add_activation(tensor, dt.ActivationType.RELU).get_output(0)
    tensor.name = "y"
    network.mark_output(tensor)
    config = builder.create_builder_config()
    config.providers = ["host_device", "cpu"]
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", PackedScale), "")
    return dt.compile(network, config=config, registry=registry)


@pytest.mark.parametrize("is_open", [True, False])
def test_the_device_changes_formats_without_copies(monkeypatch: pytest.MonkeyPatch, is_open: bool) -> None:
    with host_device() as device:
        monkeypatch.setattr(PackedScale, "device", device)
        engine = _engine(is_open=is_open)
        steps = engine.manifest.programs[0].steps
        assert [step.kind for step in steps] == [*("kernel", "reformat", "plugin", "reformat", "kernel")]
        assert {step.provider for step in steps} == {"host_device"}
        for rows in (2, 2, 2, 1, 2) if is_open else (2, 2, 2):
            np.testing.assert_array_equal(engine(X[:, :, :rows]), X[:, :, :rows] * 3)
        assert device.graphs[0].work[1].name == "Reformat"


def test_a_device_that_cannot_leaves_it_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device(reformats=False) as device:
        monkeypatch.setattr(PackedScale, "device", device)
        engine = _engine()
        reformats = [step.provider for step in engine.manifest.programs[0].steps if step.kind == "reformat"]
        assert reformats == ["cpu", "cpu"]
        np.testing.assert_array_equal(engine(X), X * 3)


@pytest.mark.parametrize("callback", ["can_reformat", "load_reformat"])
def test_a_device_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, callback: str) -> None:
    with host_device(raises_in=[callback]) as device:
        monkeypatch.setattr(PackedScale, "device", device)
        with pytest.raises(dt.ProviderError, match=f"'host_device'.*{callback}.*told to fail"):
            _engine()
