"""Steps that are captured once and replayed: neighbours of one device over memory that stays where it is.

The first run with new places is an ordinary one: kernels may still be compiled or warmed up in it. The second is
captured, and every further one replays what was captured, until a place changes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dovetail.errors import DovetailError
from dovetail.provider.calls import call, provider_failure
from dovetail.provider.devices import CapturedGraph, Stream
from dovetail.provider.interfaces import Provider
from dovetail.runtime.steps.loop import BoundSteps

__all__ = ["CapturedSteps"]


class CapturedSteps:
    """Several bound steps of one frame as one."""

    def __init__(self, steps: BoundSteps, provider: Provider, stream: Stream, find_places: Callable[[], Any]) -> None:
        names = [entry.name for entry in steps.entries]
        self.name = f"{names[0]} ... ({len(names)} steps)"
        self._steps = steps
        self._provider = provider
        self._stream = stream
        self._find_places = find_places
        self._places: Any = None
        self._graph: CapturedGraph | None = None

    @property
    def is_captured(self) -> bool:
        """Whether the next run with the same places is a replay."""
        return self._graph is not None

    def close(self) -> None:
        """Give back what was captured."""
        self._places = None
        if self._graph is not None:
            graph, self._graph = self._graph, None
            call(self._provider.name, "synchronize_stream", self._stream.synchronize)
            call(self._provider.name, "close_graph", graph.close)

    def run(self) -> None:
        """Run, capture or replay."""
        places = self._find_places()
        if places != self._places:
            self.close()
            self._steps.run()
            self._places = places
            return
        if self._graph is None:
            self._graph = self._capture()
        call(self._provider.name, "replay", self._graph.replay, self._stream)

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
