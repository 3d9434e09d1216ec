"""Steps that are captured once and replayed: neighbours of one device over memory that stays where it is.

The first run over new places is an ordinary one: kernels may still be compiled or warmed up in it. The second, or a
later one where the provider says so, is captured, and every further one replays what was captured. Graphs of several
places are kept, so that a caller with two buffers in turn replays both. When there are too many, the oldest one takes
over the next recording, where the device can do that: to update a graph costs less than to make one.
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
        self._num_warm_runs = max(provider.num_runs_before_capture, 1)
        self._graphs: dict[Any, CapturedGraph | int] = {}
        """By places, the oldest first; for places that are not captured yet, how many runs there were."""
        self._spare: CapturedGraph | None = None
        """The graph of places that were given up, for the next recording."""

    def close(self) -> None:
        """Give back what was captured."""
        for graph in (*self._graphs.values(), self._spare):
            self._drop(graph)
        self._graphs.clear()
        self._spare = None

    def _drop(self, graph: CapturedGraph | int | None) -> None:
        if isinstance(graph, CapturedGraph):
            call(self._provider.id, "synchronize_stream", self._stream.synchronize)
            call(self._provider.id, "close_graph", graph.close)

    def _give_up_oldest(self) -> None:
        oldest = self._graphs.pop(next(iter(self._graphs)))
        if isinstance(oldest, CapturedGraph):
            self._drop(self._spare)
            self._spare = oldest

    def run(self) -> None:
        """Run, capture or replay."""
        places = self._find_places()
        graph = self._graphs.get(places, 0)
        if isinstance(graph, int):
            if graph < self._num_warm_runs:
                self._warm_up(places, graph)
                return
            graph = self._graphs[places] = self._reuse_spare(self._capture())
        call(self._provider.id, "replay", graph.replay, self._stream)

    def _warm_up(self, places: Any, num_runs: int) -> None:
        self._steps.run()
        if not num_runs and len(self._graphs) >= _MAX_GRAPHS:
            self._give_up_oldest()
        self._graphs[places] = num_runs + 1

    def _reuse_spare(self, recorded: CapturedGraph) -> CapturedGraph:
        """The spare graph with a new recording, which costs less than a new graph, or that recording itself."""
        spare, self._spare = self._spare, None
        if spare is None:
            return recorded
        if call(self._provider.id, "update_graph", spare.update, recorded):
            return spare
        self._drop(spare)
        return recorded

    def _capture(self) -> CapturedGraph:
        provider, stream = self._provider, self._stream
        call(provider.id, "begin_capture", provider.begin_capture, stream)
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
            failure = provider_failure(provider.id, "end_capture", error)
            raise type(failure)(
                failure.what, where=failure.where, fix="set capture_graphs = False on the engine or the runtime"
            ) from error

    def _end_quietly(self) -> None:
        """Leave the stream usable after a step failed in a capture; that failure is the one to report."""
        with suppress(Exception):
            self._provider.end_capture(self._stream).close()
