"""Steps that are captured once and replayed: neighbours of one device over memory that stays where it is.

The first run over new places is an ordinary one: kernels may still be compiled or warmed up in it. The second is
captured, and every further one replays what was captured. Graphs of several places are kept, so that a caller with two
buffers in turn replays both.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from dovetail.errors import DovetailError
from dovetail.provider.calls import call, provider_failure
from dovetail.provider.devices import CapturedGraph, Stream
from dovetail.provider.interfaces import Provider
from dovetail.runtime.steps.loop import BoundSteps

__all__ = ["CapturedSteps"]

_MAX_GRAPHS: Final = 8
"""Graphs that are kept; a caller with ever new buffers must not make a context grow."""


class CapturedSteps:
    """Several bound steps of one frame as one."""

    def __init__(self, steps: BoundSteps, provider: Provider, stream: Stream, find_places: Callable[[], Any]) -> None:
        names = [entry.name for entry in steps.entries]
        self.name = f"{names[0]} ... ({len(names)} steps)"
        self._steps = steps
        self._provider = provider
        self._stream = stream
        self._find_places = find_places
        self._graphs: dict[Any, CapturedGraph | None] = {}
        """By places, the oldest first; None for places that were run over once."""

    def close(self) -> None:
        """Give back what was captured."""
        while self._graphs:
            self._drop(next(iter(self._graphs)))

    def _drop(self, places: Any) -> None:
        graph = self._graphs.pop(places)
        if graph is not None:
            call(self._provider.name, "synchronize_stream", self._stream.synchronize)
            call(self._provider.name, "close_graph", graph.close)

    def run(self) -> None:
        """Run, capture or replay."""
        places = self._find_places()
        if places not in self._graphs:
            self._steps.run()
            if len(self._graphs) >= _MAX_GRAPHS:
                self._drop(next(iter(self._graphs)))
            self._graphs[places] = None
            return
        graph = self._graphs[places] or self._capture()
        self._graphs[places] = graph
        call(self._provider.name, "replay", graph.replay, self._stream)

    def _capture(self) -> CapturedGraph:
        provider, stream = self._provider, self._stream
        call(provider.name, "begin_capture", provider.begin_capture, stream)
        try:
            self._steps.run()
        except BaseException:
            self._end_quietly()
            raise
        try:
            return provider.end_capture(stream)
        except DovetailError:
            raise
        except Exception as error:
            failure = provider_failure(provider.name, "end_capture", error)
            raise type(failure)(
                failure.what, where=failure.where, fix="set capture_graphs = False on the engine or the runtime"
            ) from error

    def _end_quietly(self) -> None:
        """Leave the stream usable after a step failed in a capture; that failure is the one to report."""
        with suppress(Exception):
            self._provider.end_capture(self._stream).close()
