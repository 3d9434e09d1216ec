"""Compiled models and traces of partitions that run on a device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.support import ort_ep
from tests.support.ort_devices import DeviceInOrt, devices_in_ort
from tests.support.ort_ep_models import feeds, plain_model, run_plain

pytestmark = pytest.mark.versions


@pytest.fixture
def device() -> Iterator[DeviceInOrt]:
    with devices_in_ort() as (made,):
        yield made


@pytest.mark.parametrize("embed", ["0", "1"], ids=["beside", "inside"])
def test_a_compiled_model_runs_on_the_device(
    device: DeviceInOrt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embed: str
) -> None:
    target = tmp_path / "c.onnx"
    entries = {"ep.context_enable": "1", "ep.context_embed_mode": embed, "ep.context_file_path": str(target)}
    device.session(plain_model(), entries=entries)
    monkeypatch.setattr("onnxruntime_ep_dovetail.session.ep.build_partition", None)
    given = {"ep.context_file_path": str(target)}
    loaded = device.session(onnx.load(target), entries=given)
    before = device.provider.statistics.launches
    np.testing.assert_allclose(loaded.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)
    assert device.provider.statistics.launches == before + 3


def test_a_plan_for_a_device_that_is_not_there(registration: str, tmp_path: Path) -> None:
    target = tmp_path / "c.onnx"
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(target)}
    with devices_in_ort() as (gone,):
        gone.session(plain_model(), entries=entries)
    ort_ep.refuse(gone.name, lambda: ort_ep.dovetail_session(target, fallback=False))


@pytest.mark.skipif(ort_ep.RUNTIME < (1, 25), reason="plugins take part in profiles from 1.25 on")
def test_layers_of_a_device_are_in_the_trace(device: DeviceInOrt, tmp_path: Path) -> None:
    options = ort_ep.session_options(fallback=False)
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    options.add_provider_for_devices([device.ep_device], {})
    session = ort.InferenceSession(plain_model().SerializeToString(), options)
    np.testing.assert_allclose(session.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)
    events = json.loads(Path(session.end_profiling()).read_text())
    facts = [event["args"] for event in events if event["cat"] == "Kernel"]
    layers = [(fact["op_name"], fact["provider"]) for fact in facts if "layer" in fact and fact["op_name"]]
    assert {("MatMul", device.name), ("Relu", device.name), ("Add", device.name)} <= set(layers)
