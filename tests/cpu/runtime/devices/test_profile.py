"""Profiles of runs on devices: the time of each layer, and what the device noted itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.cli import main
from dovetail.runtime.observe import observe_with
from dovetail.testing import host_device
from tests.support.device_models import WEIGHT, X, build, chain, expected


def test_layers_and_events_are_reported() -> None:
    with host_device(ops=["MatMul", "Relu", "Add"]) as device:
        context = build(chain()).create_execution_context()
        context.profiler = times = dt.LayerTimes()
        for _ in range(2):
            context.run([X])
        assert [row["name"] for row in times.rows()] == [
            *("matmul", "relu", "Copy b host_device -> host", "softmax", "Copy c host -> host_device", "add")
        ]
        assert all(row["timeMs"] > 0 for row in times.rows())  # type: ignore[operator]
        events = {name: len(found) for name, found in times.device_times_ms.items()}
        assert events == {
            "host_device: copy": 8,
            "host_device: MatMul": 2,
            "host_device: Relu": 2,
            "host_device: Add": 2,
        }
        times.clear()
        assert not times.device_rows()
        assert device._streams.events is None


def test_the_time_of_a_layer_has_the_work_it_queued() -> None:
    """Queued work would otherwise show up in whatever layer waits first."""
    with host_device() as device:
        context = build(chain()).create_execution_context()
        seen: dict[str, Any] = {}

        class Watch(dt.IProfiler):
            def report_layer_time(self, layer_name: str, ms: float) -> None:
                seen[layer_name] = ms

        context.profiler = Watch()
        context.run([X])
        assert len(seen) == 4
        assert device.statistics.waits >= 4


def test_no_device_no_events() -> None:
    context = dt.compile(chain(), providers=["cpu"]).create_execution_context()
    context.profiler = times = dt.LayerTimes()
    context.run([X])
    assert len(times.rows()) == 4
    assert not times.device_rows()


def test_the_command_shows_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(chain(3), tmp_path / "model.onnx")
    with host_device():
        build(str(tmp_path / "model.onnx")).save(tmp_path / "plan")
        code = main(["bench", str(tmp_path / "plan"), "--iterations", "3", "--warmup-ms", "0", "--profile"])
    shown = capsys.readouterr().out
    assert code == 0
    assert "Profile (3 iterations, " in shown
    assert "matmul" in shown
    assert "host_device: MatMul" in shown


def test_every_value_can_be_observed() -> None:
    with host_device(ops=["MatMul", "Relu", "Add"]):
        context = build(chain()).create_execution_context()
        seen: dict[str, Any] = {}
        keep = observe_with(lambda value, array: seen.update({f"{value.name}@{value.memory}": array.copy()}))
        context.observe([X], keep)
        np.testing.assert_allclose(seen["a@host_device"], X @ WEIGHT, rtol=1e-5)
        np.testing.assert_array_equal(seen["b@"], seen["b@host_device"])
        np.testing.assert_array_equal(seen["x@host_device"], X)
        np.testing.assert_array_equal(seen["y@host_device"], expected(chain(), X))
