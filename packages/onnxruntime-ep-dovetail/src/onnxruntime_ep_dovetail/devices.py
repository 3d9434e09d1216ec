"""Back ends with memory of their own, as all sessions of the process share them: their streams, and who runs where.

A device of ONNX Runtime is a number, the number of a back end here, and stays that for as long as the process lives.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import numpy as np

from dovetail import DovetailError
from dovetail.provider.calls import call
from dovetail.provider.devices import Stream
from dovetail.provider.loader import get_provider

__all__ = ["BackendDevice", "Recording", "StreamUser", "get_device"]

T = TypeVar("T")


class Recording(Protocol):
    """A run of a thread whose work goes to a stream of its own, because it is or will be captured."""

    stream: Stream
    is_capturing: bool


class StreamUser(Protocol):
    """Something that keeps contexts on streams."""

    def forget_stream(self, handle: int) -> None:
        """Let go of what is on a stream that is about to be closed."""


class BackendDevice:
    """One back end: what it is asked for here raises errors that name it."""

    def __init__(self, name: str, ordinal: int) -> None:
        self.name = name
        self.ordinal = ordinal
        """The id of the device in ONNX Runtime."""
        self.provider = get_provider(name)
        self.users: weakref.WeakSet[StreamUser] = weakref.WeakSet()
        self.shortage = ""
        """Why memory could not be given last: ONNX Runtime takes no reason for it, and asks for work on it all the
        same."""
        self._streams: dict[int, Stream] = {}
        self._recordings: dict[int, Recording] = {}
        """What each thread records now."""
        self._copy_stream: Stream | None = None
        self._copy_lock = threading.Lock()

    def call(self, callback: str, function: Callable[..., T], *args: Any) -> T:
        """Call code of the provider."""
        return call(self.name, callback, function, *args)

    # streams

    def create_stream(self) -> Stream | None:
        """A stream that ``close_stream`` ends; None when the back end has none."""
        stream = self.call("create_stream", self.provider.create_stream)
        if stream is not None:
            self._streams[stream.handle] = stream
        return stream

    def close_stream(self, stream: Stream) -> None:
        """Finish a stream, let go of what is on it, and close it."""
        self._streams.pop(stream.handle, None)
        try:
            self.call("synchronize_stream", stream.synchronize)
        finally:
            for user in list(self.users):
                user.forget_stream(stream.handle)
            self.call("close_stream", stream.close)

    def find_stream(self, handle: int) -> Stream | None:
        """Where work of this thread goes that ONNX Runtime wants on a stream: there, or to what it records."""
        recording = self.recording
        return self._streams.get(handle) if recording is None else recording.stream

    def redirect(self, stream: Stream | None) -> Stream | None:
        """The same for a stream itself."""
        recording = self.recording
        return stream if recording is None else recording.stream

    # recording

    @property
    def recording(self) -> Any:
        """What this thread records, or None."""
        return self._recordings.get(threading.get_ident()) if self._recordings else None

    @property
    def is_capturing(self) -> bool:
        """Whether work of this thread is captured now and not done."""
        recording = self.recording
        return recording is not None and recording.is_capturing

    def begin_recording(self, recording: Recording) -> None:
        """Have all work of this thread go to a stream of its own."""
        self._recordings[threading.get_ident()] = recording

    def end_recording(self) -> Any:
        """What this thread recorded, or None."""
        return self._recordings.pop(threading.get_ident(), None)

    # waiting

    def wait(self, stream: Stream | None) -> None:
        """Wait for a stream; without one, work is done when the call that ordered it returns."""
        if stream is not None:
            self.call("synchronize_stream", stream.synchronize)

    def synchronize(self) -> None:
        """Wait for all streams but those of captures, which hold nothing that could be done."""
        captured = {id(recording.stream) for recording in self._recordings.values() if recording.is_capturing}
        for stream in list(self._streams.values()):
            if id(stream) not in captured:
                self.wait(stream)

    # memory

    def bytes_at(self, address: int, size_bytes: int) -> Any:
        """Memory of the device as an array of bytes."""
        return self.array_at(address, (size_bytes,), np.dtype(np.uint8))

    def array_at(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Memory of the device as an array of it."""
        return self.call("array_at", self.provider.array_at, address, shape, dtype)

    def copy(self, source: Any, target: Any, stream: Stream | None) -> None:
        """Copy in the order of a stream."""
        self.call("copy", self.provider.copy, source, target, stream)

    def copy_now(self, source: Any, target: Any) -> None:
        """Copy and wait, whatever streams there are."""
        with self._copy_lock:
            if self._copy_stream is None:
                self._copy_stream = self.call("create_stream", self.provider.create_stream)
            self.copy(source, target, self._copy_stream)
            self.wait(self._copy_stream)

    def close(self) -> None:
        """Give back what belongs to no session."""
        with suppress(DovetailError), self._copy_lock:
            if self._copy_stream is not None:
                stream, self._copy_stream = self._copy_stream, None
                self.call("close_stream", stream.close)


_ordinals: dict[str, int] = {}
_devices: dict[str, BackendDevice] = {}
_lock = threading.Lock()


def get_device(name: str) -> BackendDevice:
    """The device of a back end; another one when another provider has the name since."""
    with _lock:
        ordinal = _ordinals.setdefault(name, len(_ordinals))
        known = _devices.get(name)
        if known is None or known.provider is not get_provider(name):
            if known is not None:
                known.close()
            known = _devices[name] = BackendDevice(name, ordinal)
        return known
