"""A timeline in the trace-event format that Perfetto and Chrome's viewer read: tracks of named spans."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

__all__ = ["Timeline"]

_METADATA: Final = "M"
_COMPLETE: Final = "X"
_COUNTER: Final = "C"
_SLACK_US: Final = 1.5
"""Clocks that tell whole microseconds let neighbours overlap by as much; such spans are cut, not moved."""


class _TimelineSpan(NamedTuple):
    name: str
    start_us: float
    end_us: float
    args: Mapping[str, Any]


class Timeline:
    """Spans on tracks; a track is what the format calls a thread.

    >>> trace = Timeline("bench")
    >>> trace.add("runs", "run 0", 1_000, 3_500)
    >>> [event["dur"] for event in trace.to_document()["traceEvents"] if event["ph"] == "X"]
    [2.5]
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._tracks: dict[str, list[_TimelineSpan]] = {}
        self._counters: list[tuple[str, float, Mapping[str, float]]] = []

    def __len__(self) -> int:
        return sum(map(len, self._tracks.values()))

    def add(self, track: str, name: str, start_ns: float, end_ns: float, args: Mapping[str, Any] | None = None) -> None:
        """Add a span; where spans of one track overlap without one inside the other, the track is shown as several."""
        span = _TimelineSpan(name, start_ns / 1e3, max(end_ns, start_ns) / 1e3, args or {})
        self._tracks.setdefault(track, []).append(span)

    def count(self, counter: str, time_ns: float, values: Mapping[str, float]) -> None:
        """Set a counter, which keeps its values until they are set anew."""
        self._counters.append((counter, time_ns / 1e3, values))

    def to_document(self) -> dict[str, Any]:
        """The JSON document; times are microseconds from the first span."""
        pid = os.getpid()
        lanes = [(name, spans) for track, found in self._tracks.items() for name, spans in _split_track(track, found)]
        starts = [span.start_us for _, spans in lanes for span in spans] + [time_us for _, time_us, _ in self._counters]
        origin_us = min(starts, default=0.0)
        names = [_name_event("thread_name", pid, tid, track) for tid, (track, _) in enumerate(lanes, 1)]
        orders = [_order_event(pid, tid) for tid, _ in enumerate(lanes, 1)]
        spans = [_span_event(span, pid, tid, origin_us) for tid, (_, spans) in enumerate(lanes, 1) for span in spans]
        counters = [
            {"name": name, "ph": _COUNTER, "ts": round(time_us - origin_us, 3), "pid": pid, "args": dict(values)}
            for name, time_us, values in self._counters
        ]
        process = _name_event("process_name", pid, 0, self._process)
        return {"displayTimeUnit": "ms", "traceEvents": [process, *names, *orders, *spans, *counters]}


def _split_track(track: str, spans: Sequence[_TimelineSpan]) -> list[tuple[str, list[_TimelineSpan]]]:
    """The spans in as few lanes as keep each whole: in one lane they follow each other, or lie inside each other.

    >>> spans = [_TimelineSpan("a", 0, 10, {}), _TimelineSpan("b", 2, 5, {}), _TimelineSpan("c", 7, 14, {})]
    >>> [(name, [span.name for span in lane]) for name, lane in _split_track("t", spans)]
    [('t', ['a', 'b']), ('t (2)', ['c'])]
    """
    lanes: list[list[_TimelineSpan]] = []
    ends: list[list[float]] = []
    """For each lane the ends of the spans that are open, the innermost last."""
    for span in sorted(spans, key=lambda each: (each.start_us, -each.end_us)):
        for lane, open_ends in zip(lanes, ends, strict=True):
            placed = _place(span, open_ends)
            if placed is not None:
                lane.append(placed)
                break
        else:
            lanes.append([span])
            ends.append([span.end_us])
    return [(track if number == 1 else f"{track} ({number})", lane) for number, lane in enumerate(lanes, 1)]


def _place(span: _TimelineSpan, open_ends: list[float]) -> _TimelineSpan | None:
    """The span as it fits into a lane, cut by no more than the slack; None where it does not fit."""
    start_us, end_us = span.start_us, span.end_us
    left = list(open_ends)
    while left and (left[-1] <= start_us or (left[-1] < end_us and left[-1] - start_us <= _SLACK_US)):
        start_us = max(start_us, left.pop())
    if left and end_us > left[-1]:
        if end_us - left[-1] > _SLACK_US:
            return None
        end_us = left[-1]
    open_ends[:] = [*left, max(start_us, end_us)]
    return span._replace(start_us=start_us, end_us=max(start_us, end_us))


def _span_event(span: _TimelineSpan, pid: int, tid: int, origin_us: float) -> dict[str, Any]:
    # Both ends are rounded, so that neighbours that touch still do.
    start_us, end_us = round(span.start_us - origin_us, 3), round(span.end_us - origin_us, 3)
    return {
        "name": span.name,
        "cat": "dovetail",
        "ph": _COMPLETE,
        "ts": start_us,
        "dur": round(end_us - start_us, 3),
        "pid": pid,
        "tid": tid,
        "args": dict(span.args),
    }


def _name_event(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": _METADATA, "pid": pid, "tid": tid, "args": {"name": name}}


def _order_event(pid: int, tid: int) -> dict[str, Any]:
    return {"name": "thread_sort_index", "ph": _METADATA, "pid": pid, "tid": tid, "args": {"sort_index": tid}}
