"""A timeline in the trace-event format that Perfetto and Chrome's viewer read: tracks of named spans."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["Timeline"]

_METADATA: Final = "M"
_COMPLETE: Final = "X"


class Timeline:
    """Spans on tracks; a track is what the format calls a thread.

    >>> trace = Timeline("bench")
    >>> trace.add("runs", "run 0", 1_000, 3_500)
    >>> [event["dur"] for event in trace.to_document()["traceEvents"] if event["ph"] == "X"]
    [2.5]
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._tracks: dict[str, int] = {}
        self._spans: list[tuple[int, str, float, float, Mapping[str, Any]]] = []

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, track: str, name: str, start_ns: float, end_ns: float, args: Mapping[str, Any] | None = None) -> None:
        """Add a span; spans on one track nest or follow each other."""
        number = self._tracks.setdefault(track, len(self._tracks) + 1)
        self._spans.append((number, name, start_ns / 1e3, max(end_ns - start_ns, 0) / 1e3, args or {}))

    def to_document(self) -> dict[str, Any]:
        """The JSON document; times are microseconds from the first span."""
        pid = os.getpid()
        origin_us = min((start for _, _, start, _, _ in self._spans), default=0.0)
        return {
            "displayTimeUnit": "ms",
            "traceEvents": [
                _name_event("process_name", pid, 0, self._process),
                *(_name_event("thread_name", pid, tid, track) for track, tid in self._tracks.items()),
                *(_order_event(pid, tid) for tid in self._tracks.values()),
                *(
                    {
                        "name": name,
                        "cat": "dovetail",
                        "ph": _COMPLETE,
                        "ts": round(start_us - origin_us, 3),
                        "dur": round(duration_us, 3),
                        "pid": pid,
                        "tid": tid,
                        "args": dict(args),
                    }
                    for tid, name, start_us, duration_us, args in self._spans
                ),
            ],
        }


def _name_event(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": _METADATA, "pid": pid, "tid": tid, "args": {"name": name}}


def _order_event(pid: int, tid: int) -> dict[str, Any]:
    return {"name": "thread_sort_index", "ph": _METADATA, "pid": pid, "tid": tid, "args": {"sort_index": tid}}
