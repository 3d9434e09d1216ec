"""Back ends with memory of their own, as all sessions of the process share them: their streams, and who runs where.

In ONNX Runtime a device is a number. Each registration of the library has numbers of its own for the back ends, so
that the end of one takes nothing from another.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from dovetail import DovetailError
from dovetail.allocators import IGpuAllocator
from dovetail.provider.calls import call
from dovetail.provider.devices import Stream
from dovetail.provider.interfaces import OptionsFactory, Provider
from dovetail.provider.loader import get_default_options, get_factory, get_provider, split_id
from onnxruntime_ep_dovetail.device.arenas import Arenas, ArenaSettings, read_settings

__all__ = ["BackendDevice", "Recording", "StreamUser", "get_device", "give_back_number", "take_number"]

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

    def __init__(self, name: str) -> None:
        self.name = name
        self.provider = get_provider(name)
        self.users: weakref.WeakSet[StreamUser] = weakref.WeakSet()
        self._arenas: weakref.WeakSet[Arenas] = weakref.WeakSet()
        self.shortage = ""
        """Why memory could not be given last: ONNX Runtime takes no reason for it, and asks for work on it all the
        same."""
        self._streams: dict[int, list[Stream]] = {}
        """By handle: where a caller lends one queue of the device, several streams are the same."""
        self._ordered: dict[int, int] = {}
        """How often each stream was given work, by its handle, and below how much of that was waited for."""
        self._done: dict[int, int] = {}
        self._recordings: dict[int, Recording] = {}
        """What each thread records now."""
        self._copy_stream: Stream | None = None
        self._copy_lock = threading.Lock()

    @cached_property
    def memory_keys(self) -> frozenset[str]:
        """The options about arenas that the back end itself has."""
        factory = get_factory(self.name)
        options = factory.options if isinstance(factory, OptionsFactory) else {}
        return frozenset(key for key in options if key.startswith("arena."))

    def read_arena(self, entries: Mapping[str, str], own: Mapping[str, str] | None = None) -> ArenaSettings:
        """How memory is given out.

        Args:
            entries: Options about arenas.
            own: Options of the back end; without any, those of the process.
        """
        settings = read_settings(entries, self.memory_keys)
        if own is None and not settings.source_options:
            return settings
        base = get_default_options(split_id(self.name)[0]) if own is None else own
        return replace(settings, source_options={**base, **settings.source_options})

    def call(self, callback: str, function: Callable[..., T], *args: Any) -> T:
        """Call code of the provider."""
        return call(self.name, callback, function, *args)

    # streams

    def create_stream(self, provider: Provider | None = None) -> Stream | None:
        """A stream that ``close_stream`` ends; None when the back end has none.

        Args:
            provider: The back end with options of its own, which may say on which queue of the device work goes.
        """
        stream = self.call("create_stream", (provider or self.provider).create_stream)
        if stream is not None:
            self._streams.setdefault(stream.handle, []).append(stream)
        return stream

    def close_stream(self, stream: Stream) -> None:
        """Finish a stream, let go of what is on it unless others are the same, and close it."""
        same = self._streams.get(stream.handle, [])
        if stream in same:
            same.remove(stream)
        try:
            self.wait(stream)
        finally:
            if not same:
                self._forget(stream.handle)
            self.call("close_stream", stream.close)

    def _forget(self, handle: int) -> None:
        self._streams.pop(handle, None)
        self._ordered.pop(handle, None)
        for user in list(self.users):
            user.forget_stream(handle)

    def find_stream(self, handle: int) -> Stream | None:
        """Where work of this thread goes that ONNX Runtime wants on a stream: there, or to what it records."""
        same, recording = self._streams.get(handle), self.recording
        own = same[-1] if same else None
        return own if recording is None else recording.stream

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

    def note_work(self, stream: Stream | None) -> None:
        """Note that a stream was given work; afterwards, so that nobody who waits meanwhile counts it as done."""
        if stream is not None:
            self._ordered[stream.handle] = self._ordered.get(stream.handle, 0) + 1

    def wait(self, stream: Stream | None) -> None:
        """Wait for a stream; without one, work is done when the call that ordered it returns."""
        if stream is None:
            return
        ordered = self._ordered.get(stream.handle, 0)
        self.call("synchronize_stream", stream.synchronize)
        self._done[stream.handle] = ordered

    def make_barrier(self) -> Callable[[], bool] | None:
        """Whether the streams have done what they have to do now; None when they have nothing."""
        waiting = [
            (handle, number) for handle, number in list(self._ordered.items()) if not self._is_done(handle, number)
        ]
        if not waiting:
            return None
        return lambda: all(handle not in self._ordered or self._is_done(handle, number) for handle, number in waiting)

    def _is_done(self, handle: int, number: int) -> bool:
        return self._done.get(handle, 0) >= number

    def synchronize(self) -> None:
        """Wait for all streams but those of captures, which hold nothing that could be done."""
        captured = {id(recording.stream) for recording in self._recordings.values() if recording.is_capturing}
        for stream in [stream for same in list(self._streams.values()) for stream in same]:
            if id(stream) not in captured:
                self.wait(stream)

    # memory

    def bytes_at(self, address: int, size_bytes: int) -> Any:
        """Memory of the device as an array of bytes."""
        return self.array_at(address, (size_bytes,), np.dtype(np.uint8))

    def array_at(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Memory of the device as an array of it."""
        return self.call("array_at", self.provider.array_at, address, shape, dtype)

    def make_arenas(self, settings: ArenaSettings, *, is_pinned: bool = False) -> Arenas:
        """Memory to give out, of the device or of the host."""
        source = _SharedSource(self, "pinned_allocator" if is_pinned else "allocator", settings.source_options)
        arenas = Arenas(
            source,
            settings,
            alignment_bytes=self.provider.memory.alignment_bytes,
            synchronize=self.synchronize,
            make_barrier=self.make_barrier,
            shrink_source=source.shrink,
        )
        self._arenas.add(arenas)
        return arenas

    def retire(self, key: Hashable) -> None:
        """Let memory that was given for a stream or a graph serve others."""
        for arenas in list(self._arenas):
            arenas.retire(key)

    def copy(self, source: Any, target: Any, stream: Stream | None) -> None:
        """Copy in the order of a stream."""
        try:
            self.call("copy", self.provider.copy, source, target, stream)
        finally:
            self.note_work(stream)

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


class _SharedSource(IGpuAllocator):
    """An allocator of a provider, asked for when memory first is.

    A failure at registration, which is when ONNX Runtime makes allocators, would leave it with devices that are gone.
    """

    def __init__(self, device: BackendDevice, name: str, options: Mapping[str, str]) -> None:
        self._device = device
        self._name = name
        self._options = options

    @cached_property
    def _provider(self) -> Provider:
        return get_provider(self._device.name, self._options) if self._options else self._device.provider

    @cached_property
    def _allocator(self) -> IGpuAllocator:
        found: IGpuAllocator = self._device.call(self._name, getattr, self._provider, self._name)
        return found

    def shrink(self) -> None:
        """Have the provider give back what it keeps."""
        self._device.call("shrink_memory", self._provider.shrink_memory)

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        return self._allocator.allocate(size, alignment, flags)

    def deallocate(self, memory: int) -> bool:
        return self._allocator.deallocate(memory)


_numbers: set[int] = set()
_devices: dict[str, BackendDevice] = {}
_lock = threading.Lock()


def take_number(wanted: int) -> int:
    """A number that no device of ONNX Runtime has: the wanted one, or else the smallest."""
    with _lock:
        number = next(number for number in itertools.chain([wanted], itertools.count()) if number not in _numbers)
        _numbers.add(number)
        return number


def give_back_number(number: int) -> None:
    """Let another device have a number."""
    with _lock:
        _numbers.discard(number)


def get_device(name: str) -> BackendDevice:
    """The device of a back end; another one when another provider has the name since."""
    with _lock:
        known = _devices.get(name)
        if known is None or known.provider is not get_provider(name):
            if known is not None:
                known.close()
            known = _devices[name] = BackendDevice(name)
        return known
