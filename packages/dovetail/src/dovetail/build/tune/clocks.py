"""Clocks: how long a burst of runs takes where it runs.

On the host that is the time of the calls. Work on a device only waits in a queue when a call returns, so there events
of the device stand around the burst, and neither the launch nor the wait is in the time. A burst of several runs is
captured and replayed where the device can do that: a small kernel takes less time than the host needs to launch it,
and a plan replays it in the same way.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from dovetail.provider.calls import call
from dovetail.provider.interfaces import CapturedGraph, Provider, Stream

__all__ = ["Clock", "EventTimer", "HostTimer", "Lane", "open_lane"]


class Clock(ABC):
    """Times bursts; it is called on the thread that candidates run on."""

    @abstractmethod
    def time_us(self, run: Callable[[], None], count: int) -> float:
        """Microseconds that so many runs take."""


class HostTimer(Clock):
    """The time of the calls themselves.

    Args:
        now: Nanoseconds.
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now

    def time_us(self, run: Callable[[], None], count: int) -> float:
        """Microseconds from the first call to the end of the last."""
        repeats, now = range(count), self._now
        start = now()
        for _ in repeats:
            run()
        return (now() - start) / 1e3


class EventTimer(Clock):
    """Events of a device around a burst on one of its streams.

    Args:
        provider: Whose stream it is.
        stream: Where the runs put their work.
        tell: Told once when the events of the device take no times, so that the host's clock is used.
    """

    def __init__(self, provider: Provider, stream: Stream, tell: Callable[[str], None] = lambda text: None) -> None:
        self._provider = provider
        self._stream = stream
        self._tell = tell
        self._has_times = True
        self._uncaptured: list[Callable[[], None]] = []
        """What a capture of failed, and is launched run by run."""

    def time_us(self, run: Callable[[], None], count: int) -> float:
        """Microseconds of the device from the first run to the end of the last."""
        graph = self._capture(run, count) if count > 1 else None  # the first run of all may load code, and is one
        try:
            if graph is not None:  # a graph is made ready when it is first replayed, which is no part of a run
                graph.replay(self._stream)
            return self._time(lambda: self._play(run, count, graph))
        finally:
            if graph is not None:
                graph.close()

    def _time(self, play: Callable[[], None]) -> float:
        self._stream.synchronize()
        if not self._has_times:
            return HostTimer().time_us(lambda: self._play_and_wait(play), 1)
        start = self._stream.record(is_timed=True)
        play()
        end = self._stream.record(is_timed=True)
        end.synchronize()
        try:
            return end.elapsed_us(start)
        except NotImplementedError as error:
            self._has_times = False
            self._tell(f"provider '{self._provider.id}': {error}; the host's clock is used, with launch and wait")
            return self._time(play)

    def _play_and_wait(self, play: Callable[[], None]) -> None:
        play()
        self._stream.synchronize()

    def _play(self, run: Callable[[], None], count: int, graph: CapturedGraph | None) -> None:
        if graph is not None:
            graph.replay(self._stream)
            return
        for _ in range(count):
            run()

    def _capture(self, run: Callable[[], None], count: int) -> CapturedGraph | None:
        """The burst as a graph; None when it cannot be captured."""
        if not self._provider.can_capture or run in self._uncaptured:
            return None
        self._stream.synchronize()
        try:
            return self._record(run, count)
        except Exception:  # noqa: BLE001 - it may raise anything; if it is at fault, it raises again without a capture
            self._uncaptured.append(run)
            return None

    def _record(self, run: Callable[[], None], count: int) -> CapturedGraph:
        self._provider.begin_capture(self._stream)
        try:
            for _ in range(count):
                run()
        except BaseException:
            with suppress(Exception):  # the first error is the one that counts
                self._provider.end_capture(self._stream).close()
            raise
        return self._provider.end_capture(self._stream)


@dataclass(frozen=True, kw_only=True)
class Lane:
    """Where candidates run: a provider, a stream of its own for tuning if it has any, and the clock for that."""

    provider: Provider
    stream: Stream | None
    clock: Clock

    def close(self) -> None:
        """Give the stream back."""
        if self.stream is not None:
            call(self.provider.id, "close_stream", self.stream.close)


def open_lane(provider: Provider, tell: Callable[[str], None] = lambda text: None) -> Lane:
    """A lane of a provider; one whose device is not here has no stream, and nothing runs on it."""
    stream = call(provider.id, "create_stream", provider.create_stream) if provider.is_here else None
    clock = HostTimer() if stream is None else EventTimer(provider, stream, tell)
    return Lane(provider=provider, stream=stream, clock=clock)
