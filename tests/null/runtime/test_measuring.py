"""Bounds of a measurement, percentiles, and the timeline."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import UsageError
from dovetail.provider.devices import ProfileEvent
from dovetail.runtime.measuring import PERCENTILES, Pace, export_times, measure, percentile, summarize
from dovetail.tools.profiling import LayerProfile, describe_profile, export_profile
from dovetail.tools.traces.timeline import Timeline

SPANS = st.tuples(st.sampled_from("abc"), st.text(), st.integers(0, 10**15), st.integers(0, 10**9))
TIMES = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)


@settings(max_examples=60, deadline=None)
@given(TIMES, st.sampled_from(PERCENTILES))
def test_a_percentile_covers_its_share_and_no_smaller_time_does(times: list[float], percent: float) -> None:
    found = percentile(sorted(times), percent)
    assert found in times
    assert sum(time <= found for time in times) >= len(times) * percent / 100 - 1e-9
    below = [time for time in times if time < found]
    assert len(below) < len(times) * percent / 100 + 1e-9


def test_percentiles_of_many() -> None:
    ordered = [float(n) for n in range(1, 1001)]
    assert [percentile(ordered, p) for p in PERCENTILES] == [500, 900, 950, 990, 999]


@pytest.mark.parametrize(
    ("pace", "least", "most"),
    [
        (Pace(warmup_s=0, duration_s=None, iterations=7), 7, 7),
        (Pace(warmup_s=0, duration_s=60, iterations=7), 7, 7),
        (Pace(warmup_s=0, duration_s=0.01, iterations=10**9), 1, 10**9),
        (Pace(warmup_s=0, duration_s=1e-9), 10, 10),
    ],
)
def test_paces(pace: Pace, least: int, most: int) -> None:
    calls = []
    spans = measure(lambda: calls.append(1), pace)
    assert least <= len(spans) <= most
    assert len(calls) == len(spans) + 1
    assert all(start <= end for start, end in spans)


def test_the_collector_comes_back() -> None:
    states = []
    measure(lambda: states.append(gc.isenabled()), Pace(warmup_s=0, duration_s=None, iterations=3))
    assert states == [True, False, False, False]
    assert gc.isenabled()


def test_warming_up_is_told() -> None:
    calls: list[str] = []
    pace = Pace(warmup_s=0.001, duration_s=None, iterations=2)
    measure(lambda: calls.append("run"), pace, on_warm=lambda: calls.append("warm"))
    assert calls[-3:] == ["warm", "run", "run"]
    assert calls.count("warm") == 1


def test_summary_and_export() -> None:
    spans = [(0, 2_000_000), (3_000_000, 4_000_000)]
    summary = summarize(spans)
    assert summary["throughput_qps"] == pytest.approx(500)
    assert (summary["latency_ms"]["p50"], summary["latency_ms"]["p99.9"]) == (1, 2)
    runs = export_times(spans)
    assert [run["startEnqMs"] for run in runs] == [0, 3]
    assert [run["computeMs"] for run in runs] == [2, 1]


def test_a_profile_with_an_inside() -> None:
    def event(name: str, duration_us: float) -> ProfileEvent:
        return ProfileEvent(name=name, start_us=0, duration_us=duration_us, layer="step", kind="Add")

    rows = [
        {"name": "step", "timeMs": 3.0, "averageMs": 3.0, "medianMs": 3.0, "percentage": 75.0},
        {"name": "other", "timeMs": 1.0, "averageMs": 1.0, "medianMs": 1.0, "percentage": 25.0},
    ]
    profile = LayerProfile(
        runs=[(0, 4_000_000)], steps=[], inner_events=[event("a", 1000), event("b", 500)], step_rows=rows
    )
    described = describe_profile(profile)
    assert [node["name"] for node in described[1]["nodes"]] == ["a", "b"]
    exported = export_profile(described)
    assert [row["name"] for row in exported[1:]] == ["a", "b", "step (rest)", "other"]
    assert sum(row["percentage"] for row in exported[1:]) == pytest.approx(100)
    assert all(set(row) == {"name", "timeMs", "averageMs", "medianMs", "percentage"} for row in exported[1:])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.text(), st.integers(0, 10**15), st.integers(0, 10**9)), max_size=9)
)
def test_a_trace_holds_what_was_added(spans: list[tuple[str, str, int, int]]) -> None:
    trace = Timeline("process")
    for track, name, start, duration in spans:
        trace.add(track, name, start, start + duration)
    assert len(trace) == len(spans)
    document = json.loads(json.dumps(trace.to_document()))
    shown = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in shown)
    tracks = {
        event["tid"]: event["args"]["name"] for event in document["traceEvents"] if event["name"] == "thread_name"
    }
    # Spans of a track that overlap are on several, with a number behind the name.
    found = [(tracks[event["tid"]].partition(" (")[0], event["name"]) for event in shown]
    assert sorted(found) == sorted((track, name) for track, name, _, _ in spans)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"iterations": 0}, "iterations: nothing would run; expected 1 or more, got 0"),
        ({"iterations": -5}, "iterations"),
        ({"duration_s": 0.0}, "duration_s"),
        ({"duration_s": float("inf")}, "duration_s"),
        ({"warmup_s": -1.0}, "warmup_s"),
        ({"warmup_s": float("nan")}, "warmup_s"),
    ],
)
def test_a_pace_that_measures_nothing_or_never_ends_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Pace(**wrong)
