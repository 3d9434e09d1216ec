"""Streams and notifications of ONNX Runtime over streams and events of a back end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dovetail.provider.devices import Event, Stream
from dovetail.provider.interfaces import Provider
from onnxruntime_ep_dovetail.abi import NativeObject, OrtRuntime, write_pointer
from onnxruntime_ep_dovetail.device.shared import BackendDevice

__all__ = ["SyncNotification", "SyncStream", "find_sync_stream"]

T = TypeVar("T")


class SyncStream(NativeObject):
    """A stream; without one of the back end's, when its work is done as it is ordered."""

    struct = "OrtSyncStreamImpl"

    def __init__(self, runtime: OrtRuntime, device: BackendDevice, provider: Provider | None = None) -> None:
        self.device = device
        self._stream = device.create_stream(provider)
        self._failure: BaseException | None = None
        super().__init__(runtime)

    @property
    def key(self) -> int:
        """What stands for the stream where memory is given out: its own address, which nobody else has meanwhile."""
        return self.address

    @property
    def stream(self) -> Stream | None:
        """Where work of this thread goes now."""
        return self.device.redirect(self._stream)

    def get_handle(self) -> int | None:
        """What kernels get."""
        return None if self._stream is None else self._stream.handle

    def create_notification(self, target: int) -> None:
        """Something to wait for."""
        write_pointer(target, SyncNotification(self.runtime, self).address)

    def flush(self) -> None:
        """Wait for all that was ordered; in a capture nothing was."""
        self.device.launch_held_back()
        if not self.device.is_capturing:
            self.device.wait(self.stream)
        self._raise_failure()

    def on_session_run_end(self) -> None:
        """The memory of the stream stays with it, so its parts need not be told that the run is over."""
        self._raise_failure()

    def fail_later(self, error: BaseException) -> None:
        """Fail at the end of the run: of a notification ONNX Runtime logs an error and goes on without the order."""
        self._failure = self._failure or error

    def _raise_failure(self) -> None:
        error, self._failure = self._failure, None
        if error is not None:
            raise error

    def release(self) -> None:
        """End the stream; its memory may then serve others."""
        super().release()
        try:
            if self._stream is not None:
                self.device.close_stream(self._stream)
        finally:
            self.device.retire(self.key)


class SyncNotification(NativeObject):
    """A point in a stream, set by whoever makes something and waited for by whoever needs it."""

    struct = "OrtSyncNotificationImpl"

    def __init__(self, runtime: OrtRuntime, owner: SyncStream) -> None:
        self._device = owner.device
        self._owner = owner
        self._event: Event | None = None
        super().__init__(runtime)

    def activate(self) -> None:
        """Record an event on the stream."""
        self._device.launch_held_back()
        stream = self._owner.stream
        if stream is not None:
            self._event = self._try("record", stream.record)

    def wait_on_device(self, consumer: int) -> None:
        """Have another stream wait; the host waits where that stream is not of this device."""
        if self._event is None:
            return
        waiting = find_sync_stream(self.runtime, consumer)
        if waiting is None or waiting.device is not self._device or waiting.stream is None:
            self.wait_on_host()
        else:
            self._try("wait", waiting.stream.wait, self._event)

    def wait_on_host(self) -> None:
        """Have the host wait."""
        if self._event is not None:
            self._try("synchronize_event", self._event.synchronize)

    def _try(self, callback: str, function: Callable[..., T], *args: Any) -> T:
        try:
            return self._device.call(callback, function, *args)
        except BaseException as error:
            self._owner.fail_later(error)
            raise


def find_sync_stream(runtime: OrtRuntime, stream: int | None) -> SyncStream | None:
    """Our part of one of ONNX Runtime's streams; None for none and for those of others."""
    address = runtime.ep_api.SyncStream_GetImpl(stream) if stream else None
    found = NativeObject.find(address) if address else None
    return found if isinstance(found, SyncStream) else None
