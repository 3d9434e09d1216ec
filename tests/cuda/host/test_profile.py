"""Profiles: every launch with its time, the layers it was made of, and the step it is in."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import onnx

import dovetail
from dovetail.cli import main
from dovetail_cuda.run.profile import LaunchLabel
from tests.cuda.models import make_mlp

X = np.ones((4, 8), np.float32)


class Collected(dovetail.IProfiler):
    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        return

    def report_device_event(self, provider: str, event: Any) -> None:
        self.events.append((provider, event))


def test_launches_are_told_with_their_layers(paper: Any) -> None:
    engine = dovetail.compile(make_mlp(rows=4, width=8), providers=["cuda"])
    (step,) = engine.manifest.programs[0].steps
    context = engine.create_execution_context()
    context.profiler = Collected()
    start_us = time.perf_counter() * 1e6
    (result,) = context.run([X])
    end_us = time.perf_counter() * 1e6
    events = [event for provider, event in context.profiler.events if provider == "cuda"]
    assert len(events) == len(step.partition.report.nodes)
    assert all(event.layer == step.name for event in events)
    assert {"Gemm_0", "Relu_1"} <= set(events[0].name.split(" + "))
    assert all(start_us <= event.start_us <= event.start_us + event.duration_us <= end_us for event in events)
    assert [event.start_us for event in events] == sorted(event.start_us for event in events)
    np.testing.assert_array_equal(result, dovetail.compile(make_mlp(rows=4, width=8), providers=["cuda"])(X))


def test_a_run_that_nobody_watches_has_no_events(paper: Any) -> None:
    provider, driver = paper
    engine = dovetail.compile(make_mlp(rows=4, width=8), providers=["cuda"])
    before = len(driver.events)
    engine(X)
    assert len(driver.events) <= before + 1
    assert list(provider.stop_profiling()) == []


def test_what_is_captured_is_not_timed(paper: Any) -> None:
    provider, _ = paper
    engine = dovetail.compile(make_mlp(rows=4, width=8), providers=["cuda"])
    provider.start_profiling()
    results = [engine(X) for _ in range(4)]
    assert provider.stop_profiling()
    assert all(np.array_equal(result, results[0]) for result in results)


def test_long_names_are_cut() -> None:
    assert LaunchLabel(kernel="k", layers=["a", "b"]).name == "a + b"
    assert LaunchLabel(kernel="k", layers=list("abcdef")).name == "a + b + c + d + 2 more"
    assert LaunchLabel(kernel="k").name == "k"


def test_the_command_line_shows_the_launches_of_a_step(paper: Any, tmp_path: Any, capsys: Any) -> None:
    model, trace = tmp_path / "m.onnx", tmp_path / "t.json"
    onnx.save(make_mlp(rows=4, width=8), model)
    options = ["--iterations", "3", "--warmup-ms", "0", "--profile", "--trace", str(trace), "--json"]
    assert not main(["bench", str(model), *options, "--providers", "cuda"])
    described = json.loads(capsys.readouterr().out)
    (step,) = (row for row in described["profile"] if "nodes" in row)
    assert any("Gemm_0" in node["name"] for node in step["nodes"])
    spans = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert any("Gemm_0" in span["name"] and span["args"].get("step") == step["name"] for span in spans)
