"""Profiles: every launch with its time, the layers it was made of, and the step it is in."""

from __future__ import annotations

import itertools
import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.cli import main
from dovetail_cuda.run.cupti import KernelTracer, TracedKernel, has_tracer, open_tracer
from dovetail_cuda.run.profile import LaunchLabel, _join_kernels
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
    assert LaunchLabel(kernel="k", step="s", layers=["a", "b"]).name == "a + b"
    assert LaunchLabel(kernel="k", step="s", layers=list("abcdef")).name == "a + b + c + d + 2 more"
    assert LaunchLabel(kernel="k", step="s").name == "k"


class FakeTracer:
    """Notes what is put on streams of the fake driver, with the number that is on it; graphs by their nodes."""

    def __init__(self, driver: Any) -> None:
        self.kernels: list[TracedKernel] = []
        self.numbers: list[int] = []
        self.is_on = False
        submit, launch_graph = driver._submit, driver.launch_graph
        self._nodes = itertools.repeat(0)

        def note(stream: int, kind: str, work: Any) -> None:
            submit(stream, kind, work)
            node = next(self._nodes)
            if self.is_on and kind in ("kernel", "product") and driver.streams[stream].recording is None:
                start_us = time.perf_counter() * 1e6
                number = self.numbers[-1] if self.numbers else None
                found = {"name": kind, "start_us": start_us, "duration_us": 1.0, "stream": stream}
                self.kernels.append(TracedKernel(**found, number=number, graph_node=node))

        def launch(executable: int, stream: int) -> None:
            self._nodes = itertools.count(1)
            launch_graph(executable, stream)
            self._nodes = itertools.repeat(0)

        driver._submit, driver.launch_graph = note, launch

    def start(self) -> None:
        self.kernels, self.is_on = [], True

    def push(self, number: int) -> None:
        self.numbers.append(number)

    def pop(self) -> None:
        self.numbers.pop()

    def stop(self) -> list[TracedKernel]:
        self.is_on = False
        return list(reversed(self.kernels))


@pytest.fixture
def traced(paper: Any) -> Any:
    provider, driver = paper
    tracer = FakeTracer(driver)
    provider._profile.open_tracer, provider._profile.has_tracer = lambda: tracer, lambda: True
    return provider


def test_kernels_of_a_replay_are_joined_to_layers(traced: Any) -> None:
    engine = dovetail.compile(make_mlp(rows=4, width=8), providers=["cuda"])
    (step,) = engine.manifest.programs[0].steps
    for _ in range(3):
        engine(X)  # launched, captured and replayed, replayed
    traced.start_profiling()
    engine(X)
    replayed = traced.stop_profiling()
    traced.start_profiling()
    engine.create_execution_context().run([X])
    launched = traced.stop_profiling()
    assert len(replayed) == len(launched) == len(step.partition.report.nodes)
    assert [event.name for event in replayed] == [event.name for event in launched]
    assert "Gemm_0" in replayed[0].name
    assert all(event.layer == step.name for event in (*replayed, *launched))


def test_a_graph_that_takes_over_a_recording_takes_its_labels_too(traced: Any) -> None:
    engine = dovetail.compile(make_mlp(rows=4, width=8), providers=["cuda"])
    stream = traced.create_stream()
    graphs = []
    for _ in range(2):
        context = engine.create_execution_context()
        context.run([X])
        traced.begin_capture(stream)
        graphs.append(traced.end_capture(stream))
    graphs[0]._labels, graphs[1]._labels = ["old"], ["new"]
    graphs[0].replay(stream)
    assert graphs[0].update(graphs[1])
    assert graphs[0]._labels == ["new"]


def test_kernels_of_others_have_no_layer(traced: Any) -> None:
    kernels = [
        TracedKernel(name="theirs", start_us=1.0, duration_us=1.0, stream=1, number=None, graph_node=0),
        TracedKernel(name="two", start_us=3.0, duration_us=1.0, stream=1, number=0, graph_node=9),
        TracedKernel(name="one", start_us=2.0, duration_us=1.0, stream=1, number=0, graph_node=4),
    ]
    labels = [LaunchLabel(kernel="k", step="s", layers=["a"]), None]
    events = _join_kernels(kernels, [labels])
    assert [(event.name, event.layer, event.kind) for event in events] == [
        ("theirs", "", "theirs"),
        ("a", "s", "one"),
        ("two", "", "two"),
    ]
    assert [event.layer for event in _join_kernels(kernels, [[*labels, *labels]])] == ["", "", ""]


class FakeCupti:
    """The few functions of CUPTI's bindings, with records of the test's own."""

    class ActivityKind:
        DRIVER, CONCURRENT_KERNEL, EXTERNAL_CORRELATION = 4, 10, 39

    class ExternalCorrelationKind:
        CUSTOM0 = 3

    def __init__(self) -> None:
        self.enabled: set[int] = set()
        self.pushed: list[tuple[int, int]] = []
        self.records: list[Any] = []

    def activity_register_callbacks(self, request: Any, complete: Any) -> None:
        assert request()[0] > 0
        self.complete = complete

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.discard(kind)

    def activity_flush_all(self, flag: int) -> None:
        self.complete(self.records)
        self.records = []

    def activity_push_external_correlation_id(self, kind: int, number: int) -> None:
        self.pushed.append((kind, number))

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        return self.pushed.pop()[1]

    def get_timestamp(self) -> int:
        return time.perf_counter_ns() + 5_000_000


def test_records_of_cupti_become_kernels_on_the_clock_of_the_host() -> None:
    cupti = FakeCupti()
    tracer = KernelTracer(cupti)
    cupti.records = [
        SimpleNamespace(kind=10, name="before", start=1, end=2, correlation_id=1, stream_id=7, graph_node_id=0)
    ]
    tracer.start()
    assert cupti.enabled == {4, 10, 39}
    tracer.push(4)
    assert cupti.pushed == [(3, 4)]
    tracer.pop()
    start = cupti.get_timestamp()
    told = {"kind": 10, "stream_id": 7, "graph_node_id": 2}
    cupti.records = [
        SimpleNamespace(**told, name="second", start=start + 9000, end=start + 9500, correlation_id=6),
        SimpleNamespace(kind=39, external_kind=3, external_id=4, correlation_id=5),
        SimpleNamespace(**told, name="first", start=start, end=start + 2500, correlation_id=5),
        SimpleNamespace(kind=1),
    ]
    first, second = tracer.stop()
    assert (first.name, first.number, first.duration_us, first.stream, first.graph_node) == ("first", 4, 2.5, 7, 2)
    assert (second.name, second.number) == ("second", None)
    assert abs(first.start_us - time.perf_counter() * 1e6) < 1e6
    assert not cupti.enabled


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


def test_a_cupti_that_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace(__spec__=object()))
    has_tracer.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="cupti-python is installed and cannot be used"):
            assert open_tracer.__wrapped__() is None
    finally:
        has_tracer.cache_clear()
