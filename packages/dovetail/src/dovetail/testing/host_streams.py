"""Queues of a host device: nothing on a stream runs before somebody waits for it.

That is the most that a real device may do to a careless host: results come as late as they can, so a missing wait is
found every time and not now and then.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail.errors import ProviderError
from dovetail.provider.devices import CapturedGraph, Event, ProfileEvent, Stream
from dovetail.testing.host_clocks import HOST_CLOCK, Moment, StreamClock, running
from dovetail.testing.statistics import DeviceStatistics

__all__ = ["HostEvent", "HostGraph", "HostStream", "StreamSet", "Work", "WrappedHostStream"]

_handles: Final = itertools.count(0x5D0000, 16)
"""Handles look like those of drivers: not zero, and different on all devices of the process."""


@dataclass(frozen=True)
class Work:
    """Something to do, and what a profile calls it."""

    name: str
    run: Callable[[], None]
    moment: Moment | None = None
    """Where it is in its stream; None while it is only recorded."""
    is_certain: bool = False
    """Whether it is done even when what came before it failed, as giving memory back is."""


@dataclass
class StreamSet:
    """What all streams of one device share."""

    where: str
    statistics: DeviceStatistics
    check: Callable[[str], None]
    """Called with the name of a callback that is about to run; raises when it was told to."""
    streams: dict[int, HostStream] = field(default_factory=dict)
    events: list[ProfileEvent] | None = None
    """What ran since profiling began; None when it is off."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    is_running: bool = False
    """Whether a piece of work is under way, in the thread that has the lock."""

    def finish(self) -> None:
        """Run everything that waits on any stream."""
        for stream in list(self.streams.values()):
            stream.finish(None)


class HostStream(Stream):
    """A queue of work that waits until somebody waits for it."""

    def __init__(self, streams: StreamSet) -> None:
        self._set = streams
        self._handle = next(_handles)
        self._queue: list[Work] = []
        self._done = 0
        """How many pieces of work were done, or dropped after a failure, since the stream was made."""
        self._recording: list[Work] | None = None
        self._is_closed = False
        self._clock = StreamClock(self._handle)
        self._last: Moment | None = None
        """The last piece of work that was done."""
        streams.streams[self._handle] = self
        streams.statistics.streams += 1

    @property
    def handle(self) -> int:
        """A number that names the stream in plugins; ``HostDevice.find_stream`` gives the stream back."""
        return self._handle

    @property
    def pending(self) -> int:
        """How many pieces of work wait."""
        return len(self._queue)

    def submit(self, name: str, run: Callable[[], None], *, is_certain: bool = False) -> None:
        """Put work on the queue, or into the recording while there is one."""
        with self._set.lock:
            if self._is_closed:
                raise ProviderError("work was put on a closed stream", where=self._set.where)
            if self._recording is None:
                self._queue.append(Work(name, run, self._clock.advance(name), is_certain=is_certain))
            else:
                self._recording.append(Work(name, run))

    @property
    def is_recording(self) -> bool:
        """Whether work is recorded and not queued."""
        return self._recording is not None

    @property
    def moment(self) -> Moment:
        """What was put on the queue last."""
        return self._clock.now("event")

    def record(self, *, is_timed: bool = False) -> HostEvent:
        """An event for what was put on the queue so far."""
        self._set.check("record")
        self._refuse_in_capture("an event was recorded")
        event = HostEvent(self, self._done + len(self._queue))
        if is_timed:
            self._queue.append(Work("event", event.take_time, self._clock.advance("event")))
            event.position += 1
        event.moment = self.moment
        return event

    def wait(self, event: Event) -> None:
        """Have later work wait for an event of another stream of a host device."""
        self._set.check("wait")
        if not isinstance(event, HostEvent):
            raise ProviderError("an event of another device", where=self._set.where, got=type(event).__name__)
        if self._recording is None:
            self._clock.learn(event.moment)
        self.submit("wait", event.finish)

    def synchronize(self) -> None:
        """Run all that waits."""
        if self._is_closed:
            raise ProviderError("a closed stream was waited for", where=self._set.where)
        self._set.check("synchronize_stream")
        self._refuse_in_capture("the host waited")
        self._set.statistics.waits += 1
        self.finish(None)

    def close(self) -> None:
        """Forget what still waits, but for memory that is given back."""
        with self._set.lock:
            self._set.check("close_stream")
            self._is_closed = True
            self._drop_queue()
            self._set.streams.pop(self._handle, None)
            HOST_CLOCK.close(self._handle)

    def _drop_queue(self) -> None:
        queue, self._queue = self._queue, []
        self._done += len(queue)
        for work in queue:
            if work.is_certain:
                work.run()

    def is_done(self, position: int) -> bool:
        """Whether the work before a position was done."""
        return self._done >= position

    def wait_for(self, position: int) -> None:
        """Have the host wait until the work before a position is done."""
        self._set.check("synchronize_event")
        self._refuse_in_capture("the host waited")
        self._set.statistics.waits += 1
        self.finish(position)

    def finish(self, position: int | None) -> None:
        """Do the work before a position, or all of it, on behalf of the host.

        In the middle of a piece of work only the garbage collector waits, for memory of a context that is gone. What
        comes after that piece must not overtake it then.
        """
        with self._set.lock:
            if not self._set.is_running:
                try:
                    self.advance(position)
                finally:
                    if self._last is not None:
                        HOST_CLOCK.learn(self._last)

    def advance(self, position: int | None) -> None:
        """Do the work before a position, or all of it; after a failure the rest of the queue is dropped."""
        with self._set.lock:
            while self._queue and (position is None or self._done < position):
                work = self._queue.pop(0)
                self._done += 1
                self._last = work.moment
                try:
                    self._run(work)
                except BaseException:
                    self._drop_queue()
                    self._last = self.moment
                    raise

    def _run(self, work: Work) -> None:
        start = time.perf_counter()
        was_running, self._set.is_running = self._set.is_running, True
        try:
            with running(work.moment or self.moment):
                work.run()
        finally:
            self._set.is_running = was_running
        if self._set.events is not None:
            elapsed = time.perf_counter() - start
            event = ProfileEvent(name=work.name, start_us=start * 1e6, duration_us=elapsed * 1e6, stream=self._handle)
            self._set.events.append(event)

    # capture

    def begin_recording(self) -> None:
        """Record work from now on instead of queueing it."""
        self._refuse_in_capture("a second capture began")
        self._recording = []

    def end_recording(self) -> list[Work]:
        """What was recorded."""
        if self._recording is None:
            raise ProviderError("a capture ended that did not begin", where=self._set.where)
        work, self._recording = self._recording, None
        return work

    def _refuse_in_capture(self, what: str) -> None:
        if self._recording is not None:
            raise ProviderError(f"{what} during a capture", where=self._set.where)


class WrappedHostStream(Stream):
    """A stream of somebody else's: closing it leaves the stream as it is."""

    def __init__(self, stream: HostStream) -> None:
        self._stream = stream

    @property
    def handle(self) -> int:
        """That of the stream."""
        return self._stream.handle

    def record(self, *, is_timed: bool = False) -> HostEvent:
        """An event for what was put on the queue so far."""
        return self._stream.record(is_timed=is_timed)

    def wait(self, event: Event) -> None:
        """Have later work wait for an event of another stream."""
        self._stream.wait(event)

    def synchronize(self) -> None:
        """Run all that waits."""
        self._stream.synchronize()


class HostEvent(Event):
    """A point in a host stream."""

    def __init__(self, stream: HostStream, position: int) -> None:
        self._stream = stream
        self.position = position
        self.moment = stream.moment
        """What comes before it."""
        self._time_us: float | None = None

    def take_time(self) -> None:
        """Note the time; the stream does so when it comes here."""
        self._time_us = time.perf_counter() * 1e6

    def elapsed_us(self, earlier: Event) -> float:
        """Microseconds since an earlier event."""
        if not isinstance(earlier, HostEvent) or self._time_us is None or earlier._time_us is None:
            raise ProviderError("the time between events that are not timed or not done was asked")
        return self._time_us - earlier._time_us

    def synchronize(self) -> None:
        """Run what comes before."""
        self._stream.wait_for(self.position)

    def finish(self) -> None:
        """The same on behalf of another stream: the host does not wait."""
        self._stream.advance(self.position)

    def is_done(self) -> bool:
        """Whether all before ran."""
        is_done = self._stream.is_done(self.position)
        if is_done:
            HOST_CLOCK.learn(self.moment)
        return is_done


class HostGraph(CapturedGraph):
    """Work that was recorded."""

    def __init__(self, streams: StreamSet, work: Sequence[Work], *, can_update: bool = True) -> None:
        self._set = streams
        self._can_update = can_update
        self.work = list(work)
        self.is_closed = False

    def replay(self, stream: Stream) -> None:
        """Put all of it on a stream."""
        self._set.check("replay")
        if self.is_closed or stream.handle not in self._set.streams:
            raise ProviderError("a graph cannot be replayed here", where=self._set.where)
        self._set.statistics.replays += 1
        queue = self._set.streams[stream.handle]
        for work in self.work:
            queue.submit(work.name, work.run)

    def update(self, recorded: CapturedGraph) -> bool:
        """Take over the work of another recording, unless the device was told that it cannot."""
        self._set.check("update_graph")
        if not self._can_update or self.is_closed or not isinstance(recorded, HostGraph):
            return False
        self._set.statistics.updates += 1
        self.work = list(recorded.work)
        recorded.close()
        return True

    def close(self) -> None:
        """Forget the work."""
        self.is_closed = True
        self.work.clear()
