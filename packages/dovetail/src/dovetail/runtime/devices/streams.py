"""The streams of one context: one for each device that takes part in its runs, and lanes that steps ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dovetail.provider.calls import call
from dovetail.provider.devices import Stream
from dovetail.provider.interfaces import Provider
from dovetail.provider.options import Providers

__all__ = ["ContextDevices"]


class ContextDevices:
    """The devices of one context: a stream for each, made when it is first needed or lent by the caller."""

    def __init__(
        self, providers: Providers, *, capture_graphs: bool = True, streams: Mapping[str, Stream] | None = None
    ) -> None:
        self.providers = providers
        """Those of the engine."""
        self.capture_graphs = capture_graphs
        """Whether steps that can be captured are."""
        self._streams: dict[str, Stream | None] = dict(streams or {})
        self._lanes: dict[tuple[str, int], Stream | None] = {}
        """Further queues, by device and number."""
        self._lent = frozenset(streams or ())
        """The devices whose queue is the caller's, who waits for it and closes it."""

    def stream(self, provider: Provider) -> Stream | None:
        """The context's queue on a device; None when its steps end before they return."""
        if provider.id not in self._streams:
            self._streams[provider.id] = call(provider.id, "create_stream", provider.create_stream)
        return self._streams[provider.id]

    def lane(self, provider: Provider, number: int) -> Stream | None:
        """A further queue of the context on a device; who puts work there has the main one wait for it."""
        key = (provider.id, number)
        if key not in self._lanes:
            self._lanes[key] = call(provider.id, "create_stream", provider.create_stream)
        return self._lanes[key]

    def streams(self) -> Iterator[tuple[str, Stream]]:
        """The queues made so far."""
        for name, stream in self._streams.items():
            if stream is not None:
                yield name, stream

    def is_lent(self, name: str) -> bool:
        """Whether the queue of a device is the caller's."""
        return name in self._lent

    def abandon(self) -> None:
        """Wait for all work after a failure, so that nothing of it is under way when the caller hears of it."""
        for stream in [*(stream for _, stream in self.streams()), *filter(None, self._lanes.values())]:
            try:
                stream.synchronize()
            except Exception:  # noqa: BLE001, S112 - the failure that is reported is the first one
                continue

    def close(self) -> None:
        """Finish and give back the queues that are not the caller's."""
        self.abandon()
        for name, stream in self.streams():
            if not self.is_lent(name):
                call(name, "close_stream", stream.close)
        for (name, _), lane in self._lanes.items():
            if lane is not None:
                call(name, "close_stream", lane.close)
        self._streams.clear()
        self._lanes.clear()
