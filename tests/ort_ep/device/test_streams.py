"""Streams and notifications, called as ONNX Runtime calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from onnxruntime_ep_dovetail.abi import NativeObject, OrtError, OrtRuntime
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.device.memory import MemoryKind
from onnxruntime_ep_dovetail.device.side import DeviceFactory
from onnxruntime_ep_dovetail.device.streams import SyncNotification, SyncStream
from tests.support.ort_devices import DeviceInOrt, call_slot, devices_in_ort

pytestmark = pytest.mark.versions


@dataclass
class Native:
    """A device through ONNX Runtime's C interface."""

    device: DeviceInOrt
    factory: DeviceFactory
    ep_device: int

    @property
    def runtime(self) -> OrtRuntime:
        """The ONNX Runtime that has it."""
        return self.factory.runtime

    def stream(self) -> tuple[int, SyncStream]:
        """A stream of ONNX Runtime, and our part of it."""
        place = ctypes.c_void_p()
        self.runtime.api.CreateSyncStreamForEpDevice(self.ep_device, None, ctypes.addressof(place))
        return place.value or 0, NativeObject.at(self.runtime.ep_api.SyncStream_GetImpl(place.value))

    def notification(self, stream: SyncStream) -> SyncNotification:
        place = ctypes.c_void_p()
        call_slot(stream, "CreateNotification", ctypes.addressof(place))
        return NativeObject.at(place.value or 0)

    def order(self, stream: SyncStream, log: list[str], name: str) -> None:
        """Put work on a stream that says when it is done."""
        self.device.provider.find_stream(call_slot(stream, "GetHandle")).submit(name, lambda: log.append(name))


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Iterator[Native]:
    """A device, and what ONNX Runtime has for it."""
    seen: dict[str, tuple[DeviceFactory, int]] = {}
    add_memory: Any = DeviceFactory.add_memory

    def note(self: DeviceFactory, ep_device: int, backend: Any) -> None:
        seen[backend.name] = (self, ep_device)
        add_memory(self, ep_device, backend)

    monkeypatch.setattr(DeviceFactory, "add_memory", note)
    with devices_in_ort() as (device,):
        yield Native(device, *seen[device.name])


def test_a_flush_waits_for_the_stream(native: Native) -> None:
    address, stream = native.stream()
    log: list[str] = []
    native.order(stream, log, "work")
    assert log == []
    call_slot(stream, "Flush")
    assert log == ["work"]
    call_slot(stream, "OnSessionRunEnd")
    native.runtime.api.ReleaseSyncStream(address)


def test_another_stream_waits_for_a_notification(native: Native) -> None:
    (one, maker), (other, user) = native.stream(), native.stream()
    log: list[str] = []
    notification = native.notification(maker)
    native.order(maker, log, "made")
    call_slot(notification, "Activate")
    native.order(maker, log, "later")
    call_slot(notification, "WaitOnDevice", other)
    native.order(user, log, "used")
    assert log == []  # nobody on the host waited
    call_slot(user, "Flush")
    assert log == ["made", "used"]
    call_slot(notification, "Release")
    for address in (one, other):
        native.runtime.api.ReleaseSyncStream(address)
    assert log == ["made", "used", "later"]


def test_the_host_waits_for_a_notification(native: Native) -> None:
    address, stream = native.stream()
    log: list[str] = []
    notification = native.notification(stream)
    call_slot(notification, "WaitOnHost")  # nothing to wait for yet
    native.order(stream, log, "made")
    call_slot(notification, "Activate")
    native.order(stream, log, "later")
    call_slot(notification, "WaitOnHost")
    assert log == ["made"]
    call_slot(notification, "Release")
    native.runtime.api.ReleaseSyncStream(address)


def test_a_stream_of_others_has_the_host_wait(native: Native) -> None:
    address, stream = native.stream()
    log: list[str] = []
    notification = native.notification(stream)
    native.order(stream, log, "made")
    call_slot(notification, "Activate")
    call_slot(notification, "WaitOnDevice", None)
    assert log == ["made"]
    call_slot(notification, "Release")
    native.runtime.api.ReleaseSyncStream(address)


@pytest.mark.parametrize(
    ("callback", "slot"),
    [("record", "Activate"), ("wait", "WaitOnDevice"), ("synchronize_event", "WaitOnHost")],
)
def test_a_failure_in_a_notification_is_a_status(native: Native, callback: str, slot: str) -> None:
    (one, maker), (other, _) = native.stream(), native.stream()
    notification = native.notification(maker)
    if slot != "Activate":
        call_slot(notification, "Activate")
    native.device.break_in(callback)
    arguments = (other,) if slot == "WaitOnDevice" else ()
    with pytest.raises(OrtError, match=f"{native.device.name}.*told to fail in {callback}"):
        call_slot(notification, slot, *arguments)
    native.device.break_in()
    call_slot(notification, "Release")
    for address in (one, other):
        native.runtime.api.ReleaseSyncStream(address)


def test_failures_of_a_stream(native: Native) -> None:
    address, stream = native.stream()
    native.device.break_in("synchronize_stream")
    with pytest.raises(OrtError, match="told to fail in synchronize_stream"):
        call_slot(stream, "Flush")
    native.device.break_in("create_stream")
    with pytest.raises(OrtError, match="told to fail in create_stream"):
        native.stream()
    native.device.break_in()
    native.runtime.api.ReleaseSyncStream(address)


def test_memory_of_a_stream_that_ended_is_used_again(native: Native) -> None:
    info = native.factory.memory_of(Backend(name=native.device.name)).infos[MemoryKind.DEFAULT]
    allocator = NativeObject.at(native.factory.make_allocator(info, None))
    (one, _), (other, _) = native.stream(), native.stream()
    first = call_slot(allocator, "AllocOnStream", 1000, one)
    call_slot(allocator, "Free", first)
    assert call_slot(allocator, "AllocOnStream", 1000, one) == first
    call_slot(allocator, "Free", first)
    native.runtime.api.ReleaseSyncStream(one)
    again = call_slot(allocator, "AllocOnStream", 1000, other)
    assert again == first
    call_slot(allocator, "Free", again)
    native.runtime.api.ReleaseSyncStream(other)
    native.factory.release_allocator(allocator.address)
