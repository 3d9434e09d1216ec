"""Timelines: on one track spans follow each other or lie inside each other, whatever was added."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.tools.traces.timeline import Timeline

SPANS = st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 30_000)), max_size=40)


def _spans(trace: Timeline) -> dict[str, list[dict[str, Any]]]:
    events = trace.to_document()["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names.values()}
    for event in events:
        if event["ph"] == "X":
            found[names[event["tid"]]].append(event)
    return found


@given(SPANS)
def test_spans_of_a_track_never_cross(spans: list[tuple[int, int]]) -> None:
    trace = Timeline("test")
    for number, (start, length) in enumerate(spans):
        trace.add("work", str(number), start, start + length)
    tracks = _spans(trace)
    assert sorted(event["name"] for events in tracks.values() for event in events) == sorted(
        map(str, range(len(spans)))
    )
    for events in tracks.values():
        ends: list[float] = []
        for event in events:
            while ends and ends[-1] <= event["ts"] + 1e-6:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1] + 2e-3
            ends.append(end)


def test_what_overlaps_gets_a_track_of_its_own() -> None:
    trace = Timeline("test")
    trace.add("work", "a", 0, 10_000)
    trace.add("work", "b", 5_000, 15_000)
    assert {name: [event["name"] for event in events] for name, events in _spans(trace).items()} == {
        "work": ["a"],
        "work (2)": ["b"],
    }


def test_the_slack_of_a_coarse_clock_is_cut() -> None:
    trace = Timeline("test")
    trace.add("work", "a", 0, 10_000)
    trace.add("work", "b", 9_000, 15_000)
    (events,) = _spans(trace).values()
    assert [(event["ts"], event["dur"]) for event in events] == [(0, 10), (10, 5)]


def test_a_counter_keeps_its_time() -> None:
    trace = Timeline("test")
    trace.add("work", "a", 1_000, 2_000)
    trace.count("memory", 3_000, {"host": 7})
    (counter,) = [event for event in trace.to_document()["traceEvents"] if event["ph"] == "C"]
    assert (counter["ts"], counter["args"]) == (2, {"host": 7})
