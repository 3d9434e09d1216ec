"""The streams of one context: one for each device, on a queue that callers can change, and lanes that steps ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from dovetail.errors import ProviderError
from dovetail.provider.calls import call
from dovetail.provider.devices import Event, Stream
from dovetail.provider.interfaces import Provider
from dovetail.provider.options import Providers
from dovetail.runtime.closing import close_all
from dovetail.runtime.devices.access import AddressCheck

__all__ = ["ContextDevices", "ContextStream"]

_MAX_WRAPPED: Final = 8
"""Queues of callers that are kept; a caller with ever new ones must not make a context grow."""


class ContextStream(Stream):
    """What steps are bound to: work goes to the context's own queue, or to the caller's while that is chosen.

    Another queue binds nothing anew, because ``handle`` is read whenever work is put on the stream.

    Args:
        provider: The device's.
        queue: The context's own; None when it begins on a queue of the caller's and may never need one.
        handle: Of that queue.
    """

    def __init__(self, provider: Provider, queue: Stream | None, handle: int = 0) -> None:
        self._provider = provider
        self._own = queue
        self._wrapped: dict[int, Stream] = {}
        self._queue = self.find(handle) if queue is None else queue
        self.is_closed = False

    @property
    def handle(self) -> int:
        """Of the queue that is used now."""
        return self._queue.handle

    @property
    def current(self) -> Stream:
        """The queue that is used now."""
        return self._queue

    @property
    def is_own(self) -> bool:
        """Whether work goes to the context's own queue, for which every run waits at its end."""
        return self._queue is self._own

    def use(self, handle: int) -> None:
        """Put work on a queue of the caller's from now on, behind what is under way; 0 for the context's own."""
        queue = self.find(handle)
        if queue is self._queue:
            return
        if not self.is_own:
            self.finish()
        self._queue = queue

    def find(self, handle: int) -> Stream:
        """The queue of a handle; 0 for the context's own."""
        if not handle:
            self._own = self._own or _create(self._provider)
            if self._own is None:
                raise ProviderError("it gave no stream", where=f"provider '{self._provider.id}'")
            return self._own
        if handle not in self._wrapped:
            queue = call(self._provider.id, "wrap_stream", self._provider.wrap_stream, handle)
            if len(self._wrapped) >= _MAX_WRAPPED:
                unused = [key for key, kept in self._wrapped.items() if kept is not self._queue]
                self._wrapped.pop(unused[0]).close()
            self._wrapped[handle] = queue
        return self._wrapped[handle]

    def record(self, *, is_timed: bool = False) -> Event:
        """An event for what was put on the queue so far."""
        return self._queue.record(is_timed=is_timed)

    def wait(self, event: Event) -> None:
        """Have later work wait for an event of another stream."""
        self._queue.wait(event)

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self._queue.synchronize()

    def finish(self) -> None:
        """Wait for what was put on the queue in runs before.

        A queue of the caller's may be gone by now, and its handle must not be touched: the device is waited for.
        """
        if self.is_own:
            self.synchronize()
        else:
            call(self._provider.id, "synchronize", self._provider.synchronize)

    def close(self) -> None:
        """Give the context's own queue back; those of callers stay as they are."""
        self.is_closed = True
        queues = [*self._wrapped.values(), self._own]
        self._wrapped.clear()
        close_all([queue.close for queue in queues if queue is not None])


def _create(provider: Provider) -> Stream | None:
    return call(provider.id, "create_stream", provider.create_stream)


class ContextDevices:
    """The devices of one context: a stream for each, made when it is first needed."""

    def __init__(
        self,
        providers: Providers,
        *,
        capture_graphs: bool = True,
        handles: Mapping[str, int] | None = None,
        check: Callable[[], None] | None = None,
        check_address: AddressCheck | None = None,
    ) -> None:
        self.providers = providers
        """Those of the engine."""
        self.check_address = check_address
        """Check of addresses that callers bind; None if every tensor is in host memory."""
        self.check = check
        """What the context calls between steps; raises where a run is to end."""
        self.capture_graphs = capture_graphs
        """Whether steps that can be captured are."""
        self._streams: dict[str, ContextStream | None] = {}
        self._lanes: dict[tuple[str, int], Stream | None] = {}
        """Further queues, by device and number."""
        self._handles: dict[str, int] = dict(handles or {})
        """The queues of callers, by device."""

    def stream(self, provider: Provider) -> ContextStream | None:
        """The context's stream on a device; None when its steps end before they return."""
        name = provider.id
        if name not in self._streams:
            handle = self._handles.get(name, 0)
            queue = None if handle else _create(provider)
            has_stream = bool(handle) or queue is not None
            self._streams[name] = ContextStream(provider, queue, handle) if has_stream else None
        return self._streams[name]

    def lane(self, provider: Provider, number: int) -> Stream | None:
        """A further queue of the context on a device; who puts work there has the main one wait for it."""
        key = (provider.id, number)
        if key not in self._lanes:
            self._lanes[key] = _create(provider)
        return self._lanes[key]

    def streams(self) -> Iterator[tuple[str, ContextStream]]:
        """The streams made so far."""
        for name, stream in self._streams.items():
            if stream is not None:
                yield name, stream

    def use(self, handles: Mapping[str, int]) -> None:
        """Put the work of devices on queues of the caller's, by the device's provider; 0 for the context's own."""
        streams = [(stream, handle) for name, handle in handles.items() if (stream := self._streams.get(name))]
        for stream, handle in streams:  # one that is refused leaves all of them where they are
            stream.find(handle)
        for stream, handle in streams:
            stream.use(handle)
        self._handles.update(handles)

    def abandon(self) -> None:
        """Wait for all work after a failure, so that nothing of it is under way when the caller hears of it."""
        for stream in [*(stream for _, stream in self.streams()), *filter(None, self._lanes.values())]:
            try:
                stream.synchronize()
            except Exception:  # noqa: BLE001, S112 - the failure that is reported is the first one
                continue

    def finish(self) -> None:
        """Wait for all work of runs before; nothing goes to queues of callers from here on."""
        for stream in (stream for _, stream in self.streams() if not stream.is_closed):
            with suppress(Exception):  # what is closed is given back whatever state it is in
                stream.finish()
            stream.is_closed = not stream.is_own
        for lane in filter(None, self._lanes.values()):
            with suppress(Exception):
                lane.synchronize()

    def close(self) -> None:
        """Finish and give back the queues that are not the caller's."""
        self.finish()
        lanes = [(name, lane) for (name, _), lane in self._lanes.items() if lane is not None]
        made: list[tuple[str, Stream]] = [*self.streams(), *lanes]
        self._streams, self._lanes = {}, {}
        close_all([partial(call, name, "close_stream", stream.close) for name, stream in made])
