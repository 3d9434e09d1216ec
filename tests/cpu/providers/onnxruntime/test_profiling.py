"""What the nodes of a partition did, on the clock of the process; only where it was asked for, and only once."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import ProviderError
from dovetail.provider.loader import get_provider
from dovetail.tools.profiling import has_inner_times, inner_times

MODEL = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    small (float[64, 64] x) => (float[64, 64] y) { [product] h = MatMul(x, x)  [curve] y = Sin(h) }
""")


def test_nodes_are_told_once_and_lie_in_the_run() -> None:
    x = np.ones((64, 64), np.float32)
    with inner_times() as collect:
        engine = dovetail.compile(MODEL)
        assert has_inner_times(engine.manifest)
        start_us = time.perf_counter() * 1e6
        for _ in range(3):
            engine(x)
        end_us = time.perf_counter() * 1e6
        events = collect()
        assert collect() == []
    assert [event.name for event in events] == ["product", "curve"] * 3
    assert [event.kind for event in events[:2]] == ["MatMul", "Sin"]
    (step,) = engine.manifest.programs[0].steps
    assert {event.layer for event in events} == {step.name}
    slack_us = 1000
    assert all(start_us - slack_us <= event.start_us <= end_us + slack_us for event in events)
    engine(x)


def test_nothing_is_noted_without_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dovetail.compile(MODEL)(np.ones((64, 64), np.float32))
    assert get_provider("onnxruntime").stop_profiling() == []
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_single_kernels_has_no_inside() -> None:
    assert not has_inner_times(dovetail.compile(MODEL, providers=["cpu"]).manifest)


def test_the_option_is_checked() -> None:
    with pytest.raises(ProviderError, match="unknown profiling; expected off, on, got maybe"):
        get_provider("onnxruntime", {"profiling": "maybe"})
