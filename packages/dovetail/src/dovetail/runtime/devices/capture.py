"""Steps that are captured once and replayed: neighbours of one device over memory that stays where it is.

The first run over new places is an ordinary one: kernels may still be compiled or warmed up in it. The second, or a
later one where the provider says so, is captured, and every further one replays what was captured. Graphs of several
places are kept, so that a caller with two buffers in turn replays both. When there are too many, the oldest one takes
over the next recording, where the device can do that: to update a graph costs less than to make one.

A plugin that cannot be captured says so by failing: the steps run without a capture then, and from there on the plugin
runs between two graphs. Something outside of a run can spoil a recording too, such as another library that waits for
the whole device: the steps run without one then, and the next run records again. What fails without a capture too is
the failure of the run, and so is a recording that fails too often in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from dovetail.errors import DovetailError, RunCancelledError
from dovetail.provider.calls import call, provider_failure
from dovetail.provider.devices import CapturedGraph
from dovetail.provider.interfaces import Provider
from dovetail.runtime.devices.streams import ContextStream
from dovetail.runtime.steps.loop import BoundSteps, Entry, Silence, StepFailure

__all__ = ["Capture", "CapturedSteps"]

_MAX_GRAPHS: Final = 8
"""Graphs that are kept; a caller with ever new buffers must not make a context grow."""
_MAX_SPOILED: Final = 8
"""Recordings in a row that may be spoiled; other threads that wait for the device do it now and then."""


@dataclass(frozen=True, kw_only=True)
class Capture:
    """How steps of one frame are captured."""

    provider: Provider
    stream: ContextStream
    silence: Silence
    find_places: Callable[[], Any]
    """What changes when a value of the caller comes to lie elsewhere."""
    plugins: Collection[str]
    """The steps that may turn out not to be capturable, by name."""
    tell: Callable[[str, str], None]
    """Told the name of a step that is not captured any more, and the reason."""


class CapturedSteps:
    """Several bound steps of one frame as one."""

    def __init__(self, entries: Sequence[Entry], capture: Capture) -> None:
        names = [entry.name for entry in entries]
        self.name = f"{names[0]} ... ({len(names)} steps)"
        self._capture = capture
        self._provider = capture.provider
        self._stream = capture.stream
        self._steps = BoundSteps(entries, capture.silence)
        self._parts: list[CapturedSteps | BoundSteps] = []
        """The graphs and the steps between them, where some turned out not to be capturable."""
        self._num_warm_runs = max(capture.provider.num_runs_before_capture, 1)
        self._graphs: dict[Any, CapturedGraph | int] = {}
        """By places, the oldest first; for places that are not captured yet, how many runs there were."""
        self._spare: CapturedGraph | None = None
        """The graph of places that were given up, for the next recording."""
        self._num_spoiled = 0
        """How many recordings in a row were spoiled by something outside of them."""

    def close(self) -> None:
        """Give back what was captured."""
        for part in self._parts:
            if isinstance(part, CapturedSteps):
                part.close()
        for graph in (*self._graphs.values(), self._spare):
            self._drop(graph)
        self._graphs.clear()
        self._spare = None

    def _drop(self, graph: CapturedGraph | int | None) -> None:
        if isinstance(graph, CapturedGraph):
            self._stream.finish()
            call(self._provider.id, "close_graph", graph.close)

    def _give_up_oldest(self) -> None:
        oldest = self._graphs.pop(next(iter(self._graphs)))
        if isinstance(oldest, CapturedGraph):
            self._drop(self._spare)
            self._spare = oldest

    def run(self) -> None:
        """Run, capture or replay."""
        if self._parts:
            for part in self._parts:
                part.run()
            return
        places = self._capture.find_places()
        graph = self._graphs.get(places, 0)
        if isinstance(graph, int):
            if graph < self._num_warm_runs:
                self._warm_up(places, graph)
                return
            recorded = self._record()
            if recorded is None:
                return
            graph = self._graphs[places] = self._reuse_spare(recorded)
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

    def _record(self) -> CapturedGraph | None:
        """What the steps do; None where a plugin cannot be captured, and the steps have run."""
        provider, stream = self._provider, self._stream
        call(provider.id, "begin_capture", provider.begin_capture, stream)
        try:
            self._steps.run()
        except StepFailure as failure:
            self._end_quietly()
            self._run_without(self._find_suspects(failure.names[0]), failure, failure.error)
            return None
        except BaseException:
            self._end_quietly()
            raise
        try:
            graph = provider.end_capture(stream)
        except Exception as error:  # noqa: BLE001 - one that cannot be explained is raised again
            self._run_without(self._plugins, _explain(provider, error), error)
            return None
        self._num_spoiled = 0
        return graph

    @property
    def _plugins(self) -> set[str]:
        return self._order.keys() & set(self._capture.plugins)

    @property
    def _order(self) -> dict[str, int]:
        return {entry.name: number for number, entry in enumerate(self._steps.entries)}

    def _find_suspects(self, failed: str) -> set[str]:
        """The plugin that failed; where that was none, the ones before it, from the second time on."""
        order, plugins = self._order, self._plugins
        if failed in plugins or not self._num_spoiled:
            return {failed} & plugins
        return {name for name in plugins if order[name] < order.get(failed, len(order))}

    def _run_without(self, suspects: set[str], failure: Exception, reason: BaseException) -> None:
        """Run the steps as they are, and capture the others from now on; without suspects, all of them once more."""
        is_final = not suspects and self._num_spoiled == _MAX_SPOILED
        if is_final or isinstance(reason, RunCancelledError) or not isinstance(reason, Exception):
            raise failure
        self._steps.run()
        if not suspects:
            self._num_spoiled += 1
            self._capture.tell(self.name, f"a recording of it was spoiled, and is made again: {reason}")
            return
        self.close()
        for name in sorted(suspects):
            self._capture.tell(name, f"it failed while its stream was captured: {reason}")
        for is_suspect, entries in groupby(self._steps.entries, lambda entry: entry.name in suspects):
            group = list(entries)
            part = BoundSteps(group, self._capture.silence) if is_suspect else CapturedSteps(group, self._capture)
            self._parts.append(part)

    def _end_quietly(self) -> None:
        """Leave the stream usable after a step failed in a capture; that failure is the one to report."""
        with suppress(Exception):
            self._provider.end_capture(self._stream).close()


def _explain(provider: Provider, error: Exception) -> Exception:
    """What is told of a capture that could not be ended."""
    if isinstance(error, DovetailError):
        return error
    failure = provider_failure(provider.id, "end_capture", error)
    told = type(failure)(
        failure.what, where=failure.where, fix="set capture_graphs = False on the engine or the runtime"
    )
    told.__cause__ = error
    return told
