"""The order that streams, events and waits make between pieces of work, so that races are found and not only seen.

Every piece of work on a stream, and every access of the host, is a ``Moment``: a place in its stream, and how far it
knows other streams to have come. Two accesses to the same memory are ordered exactly when the later one knows the
earlier. All threads of the host count as one, which misses a race of threads and never reports one that is none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

__all__ = ["HOST_CLOCK", "HostClock", "Moment", "StreamClock", "current_moment", "running"]

_HOST: Final = 0
"""The host among streams."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A piece of work, or an access of the host, and what is known to be done before it."""

    name: str
    stream: int
    position: int
    known: Mapping[int, int] = field(repr=False)
    """Stream -> position."""

    def knows(self, other: Moment) -> bool:
        """Whether the other is certainly done when this one happens."""
        mine = self.position if other.stream == self.stream else self.known.get(other.stream, 0)
        return mine >= other.position or not HOST_CLOCK.is_open(other.stream)

    def __str__(self) -> str:
        return f"'{self.name}' of the host" if self.stream == _HOST else f"'{self.name}' on stream {self.stream:#x}"


class HostClock:
    """What the host knows: how far it waited for each stream."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {_HOST: 0}
        self._lock = threading.RLock()  # the garbage collector closes engines, and frees memory, while it is held

    def is_open(self, stream: int) -> bool:
        """Whether work of a stream can still be under way."""
        return stream in self._known

    def open(self, stream: int) -> None:
        """Count a new stream."""
        with self._lock:
            self._known[stream] = 0

    def close(self, stream: int) -> None:
        """Forget a stream: what it did not do is dropped."""
        with self._lock:
            self._known.pop(stream, None)

    def learn(self, moment: Moment) -> None:
        """The host waited for it."""
        with self._lock:
            _join(self._known, moment, self._known)

    def tick(self, name: str) -> Moment:
        """Something that the host does now."""
        with self._lock:
            self._known[_HOST] += 1
            return Moment(name=name, stream=_HOST, position=self._known[_HOST], known=dict(self._known))

    def snapshot(self) -> dict[int, int]:
        """How far each stream is known to have come."""
        with self._lock:
            return dict(self._known)


HOST_CLOCK: Final = HostClock()
"""One for all devices of the process: copies go from one to another."""


class StreamClock:
    """Where a stream is, and what work that is put on it next knows."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._position = 0
        self._known: dict[int, int] = {}
        HOST_CLOCK.open(stream)

    def advance(self, name: str) -> Moment:
        """One further piece of work, which knows what the host knows now."""
        self._position += 1
        known = HOST_CLOCK.snapshot()
        for stream, position in self._known.items():
            if stream in known:
                known[stream] = max(known[stream], position)
        self._known = known
        return self.now(name)

    def now(self, name: str) -> Moment:
        """What was put on the stream last."""
        return Moment(name=name, stream=self._stream, position=self._position, known=self._known)

    def learn(self, moment: Moment) -> None:
        """Later work waits for it."""
        joined = dict(self._known)
        _join(joined, moment, HOST_CLOCK.snapshot())
        self._known = joined


def _join(known: dict[int, int], moment: Moment, is_open: Mapping[int, int]) -> None:
    for stream, position in (*moment.known.items(), (moment.stream, moment.position)):
        if stream in is_open:
            known[stream] = max(known.get(stream, 0), position)


class _Running(threading.local):
    moment: Moment | None = None


_running: Final = _Running()


@contextmanager
def running(moment: Moment) -> Iterator[None]:
    """Do a piece of work in this thread: what is touched meanwhile, it touches."""
    before, _running.moment = _running.moment, moment
    try:
        yield
    finally:
        _running.moment = before


def current_moment(name: str) -> Moment:
    """The work that this thread does for a stream; else the host itself, now, under that name."""
    return _running.moment or HOST_CLOCK.tick(name)
