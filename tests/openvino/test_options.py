"""The package as Dovetail finds it: entry point, device, options, and what nodes did."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
import openvino
import pytest

import dovetail as dt
from dovetail.errors import ProviderError
from dovetail.provider.host import host_device
from dovetail.provider.loader import get_factory, get_provider, list_providers
from tests.openvino.stored import store

MODEL = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    small (float[64, 64] x) => (float[64, 64] y) { [product] h = MatMul(x, x)  [curve] y = Sin(h) }
""")
X = np.ones((64, 64), np.float32)


def test_it_is_found_as_an_entry_point() -> None:
    (listing,) = [listing for listing in list_providers() if listing.name == "openvino"]
    assert listing.origin.startswith("dovetail-openvino")
    assert listing.problem is None


def test_the_device_is_this_cpu_with_this_openvino() -> None:
    (device,) = get_factory("openvino").devices()
    assert device.kind == "cpu"
    assert device.fingerprint.startswith(f"{host_device().fingerprint}-openvino-")
    assert openvino.__version__.startswith(device.fingerprint.rpartition("-")[2])


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_those_that_were_asked_for(threads: int) -> None:
    loaded: Any = get_provider("openvino", {"threads": str(threads)}).load_partition(store())
    assert loaded.compiled.get_property("INFERENCE_NUM_THREADS") == threads


def test_it_computes_in_single_precision() -> None:
    loaded: Any = get_provider("openvino").load_partition(store())
    assert loaded.compiled.get_property("INFERENCE_PRECISION_HINT") == openvino.Type.f32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thread": "1"}, r"unknown option\(s\) thread; expected threads, profiling"),
        ({"threads": "many"}, "expected threads of 0 to 1024, profiling on or off, got threads=many"),
        ({"threads": "1025"}, "got threads=1025"),
        ({"profiling": "yes"}, "got threads=0, profiling=yes"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(ProviderError, match=message):
        get_provider("openvino", options)


def test_nodes_are_told_once_and_lie_in_the_run() -> None:
    options = {"profiling": "on"}
    config = dt.BuilderConfig()
    config.provider_options = {"openvino": options}
    engine = dt.compile(MODEL, providers=["openvino"], config=config)
    provider = get_provider("openvino", options)
    provider.stop_profiling()
    start_us = time.perf_counter() * 1e6
    engine(X)
    engine(X)
    end_us = time.perf_counter() * 1e6
    events = provider.stop_profiling()
    assert provider.stop_profiling() == []
    assert [event.name for event in events if event.kind == "MatMul"] == ["product", "product"]
    (step,) = engine.manifest.programs[0].steps
    assert {event.layer for event in events} == {step.name}
    # Durations are means of the runs so far, so that after a slow first run only where each run begins is exact.
    firsts = [event.start_us for event in events if event.name == events[0].name]
    assert len(firsts) == 2
    assert start_us <= firsts[0] <= firsts[1] <= end_us
    assert all(event.duration_us >= 0 for event in events)


def test_nothing_is_noted_without_the_option() -> None:
    dt.compile(MODEL, providers=["openvino"])(X)
    assert get_provider("openvino").stop_profiling() == []
