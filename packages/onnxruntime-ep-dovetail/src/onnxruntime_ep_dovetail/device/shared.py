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

from dovetail import DovetailError, ExecutionContext
from dovetail.allocators import IGpuAllocator
from dovetail.provider.calls import call
from dovetail.provider.devices import Stream
from dovetail.provider.interfaces import OptionsFactory, Provider
from dovetail.provider.loader import get_default_options, get_factory, get_provider, split_id
from onnxruntime_ep_dovetail.device.arenas import Arenas, ArenaSettings, read_settings
from onnxruntime_ep_dovetail.library import compute

__all__ = ["BackendDevice", "Recording", "StreamUser", "get_device", "give_back_number", "take_number"]

T = TypeVar("T")


class Recording(Protocol):
    """A run of a thread whose work goes to a stream of its own, because it is or will be captured."""

    stream: Stream
    has_failed: bool

    def __hash__(self) -> int:
        """Return a hash: memory is allocated by recording."""

    @property
    def is_capturing(self) -> bool:
        """Whether work on the stream is recorded and not done."""

    def get_context(self, partition: Any) -> ExecutionContext:
        """Return the context of a partition that belongs to this recording alone."""

    def launch(self, key: Hashable, launch: Callable[[], object], partition: Any = None) -> None:
        """Launch an operation, now or with the graph that it is part of."""

    def launch_held_back(self) -> None:
        """Launch the operations that wait for the rest of their graph."""


class _Queue:
    """Progress of one queue of the device; several streams are one queue where a caller lends it."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.num_ordered = 0
        """Number of times that work was put on the queue."""
        self.num_done = 0
        """Number of those known to be done."""
        self.is_closed = False


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
        self._queues: dict[int, _Queue] = {}
        """By handle. A driver gives the handle of a queue that is closed to a new one, which starts from zero."""
        self._recordings: dict[int, Recording] = {}
        """The recording of each thread, by the thread's number."""
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
            self._queues.setdefault(stream.handle, _Queue()).streams.append(stream)
        return stream

    def close_stream(self, stream: Stream) -> None:
        """Finish a stream and close it, with the contexts on it unless another stream is the same queue."""
        queue = self._queues.get(stream.handle)
        if queue is not None and stream in queue.streams:
            queue.streams.remove(stream)
        try:
            self.wait(stream)
        finally:
            if queue is not None and not queue.streams:
                self._forget(stream.handle, queue)
            self.call("close_stream", stream.close)

    def _forget(self, handle: int, queue: _Queue) -> None:
        queue.is_closed = True
        if self._queues.get(handle) is queue:
            del self._queues[handle]
        for user in list(self.users):
            user.forget_stream(handle)

    def find_stream(self, handle: int) -> Stream | None:
        """The stream for work of this thread that ONNX Runtime wants on a stream: that one, or the recording's."""
        queue, recording = self._queues.get(handle), self.recording
        own = queue.streams[-1] if queue and queue.streams else None
        return own if recording is None else recording.stream

    def redirect(self, stream: Stream | None) -> Stream | None:
        """The same for a stream itself."""
        recording = self.recording
        return stream if recording is None else recording.stream

    # recording

    @property
    def recording(self) -> Recording | None:
        """The recording of this thread, or None."""
        return self._recordings.get(compute.thread_number()) if self._recordings else None

    @property
    def is_capturing(self) -> bool:
        """Whether work of this thread is captured now and not done."""
        recording = self.recording
        return recording is not None and recording.is_capturing

    def begin_recording(self, recording: Recording) -> None:
        """Send all work of this thread to a stream of its own."""
        self._recordings[compute.thread_number()] = recording

    def end_recording(self) -> None:
        """End the recording of this thread, if there is one."""
        self._recordings.pop(compute.thread_number(), None)

    def launch_held_back(self) -> None:
        """Launch the operations that this thread's recording holds back, before other work follows them."""
        recording = self.recording
        if recording is not None:
            recording.launch_held_back()

    # waiting

    def note_work(self, stream: Stream | None) -> None:
        """Note that work was put on a stream; afterwards, so that a concurrent wait does not count it as done."""
        if stream is not None:
            self._queues.setdefault(stream.handle, _Queue()).num_ordered += 1

    def wait(self, stream: Stream | None) -> None:
        """Wait for a stream; without one, work is done when the call that ordered it returns."""
        if stream is None:
            return
        queue = self._queues.get(stream.handle)
        num_ordered = 0 if queue is None else queue.num_ordered
        self.call("synchronize_stream", stream.synchronize)
        if queue is not None:
            queue.num_done = num_ordered

    def make_barrier(self) -> Callable[[], bool] | None:
        """Return a function that is true once the work ordered so far is done; None if all of it is."""
        waiting = [
            (queue, queue.num_ordered) for queue in list(self._queues.values()) if queue.num_done < queue.num_ordered
        ]
        if not waiting:
            return None
        return lambda: all(queue.is_closed or queue.num_done >= number for queue, number in waiting)

    def synchronize(self) -> None:
        """Wait for all streams but those of captures, whose work is recorded and not done."""
        captured = [recording.stream for recording in list(self._recordings.values()) if recording.is_capturing]
        for stream in [stream for queue in list(self._queues.values()) for stream in list(queue.streams)]:
            if all(stream is not other for other in captured):
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
