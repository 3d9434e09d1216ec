"""Devices in one context and in one engine: blocks of their memory, weights uploaded once, and a stream each."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from dovetail.errors import PlanCorruptError, ProviderError
from dovetail.plan.manifest import ProgramRecord, StepRecord
from dovetail.provider.calls import call
from dovetail.provider.devices import Stream
from dovetail.provider.interfaces import Provider
from dovetail.provider.options import Providers
from dovetail.provider.shape_slots import reads_only_shape

__all__ = ["ContextDevices", "DeviceBlock", "DeviceWeights", "check_memory", "memories_of"]


def memories_of(program: ProgramRecord) -> list[str]:
    """The devices whose memory a program uses, bodies not included."""
    return sorted({value.memory for value in program.values if value.memory})


class DeviceBlock:
    """Memory of a device that goes back when nobody has the block any more."""

    def __init__(self, provider: Provider, size_bytes: int = 0) -> None:
        self.provider = provider
        self.size_bytes = 0
        self.address = 0
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self.reserve(size_bytes)

    def reserve(self, size_bytes: int) -> bool:
        """Have at least so many bytes; True when the block moved, and what it held is lost then."""
        if size_bytes <= self.size_bytes:
            return False
        self.close()
        allocator = call(self.provider.name, "allocator", lambda: self.provider.allocator)
        alignment = self.provider.memory.alignment_bytes
        address = call(self.provider.name, "allocate", allocator.allocate, size_bytes, alignment, 0)
        if not address:
            raise ProviderError(
                f"it has no memory for {size_bytes} bytes",
                where=f"provider '{self.provider.name}'",
                fix="use smaller shapes, fewer contexts, or another provider",
            )
        self.address, self.size_bytes = address, size_bytes
        self._finalizer = weakref.finalize(self, _give_back_quietly, self.provider, address)
        return True

    def view(self, offset: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """A part of the block as an array of the device."""
        return call(self.provider.name, "array_at", self.provider.array_at, self.address + offset, shape, dtype)

    def close(self) -> None:
        """Give the memory back when the device is done with it."""
        address, self.size_bytes, self.address = self.address, 0, 0
        if self._finalizer is not None and self._finalizer.detach() is not None:
            _give_back(self.provider, address)


def _give_back(provider: Provider, address: int) -> None:
    try:
        call(provider.name, "synchronize", provider.synchronize)  # work that is still queued may use the memory
    finally:
        call(provider.name, "deallocate", provider.allocator.deallocate, address)


def _give_back_quietly(provider: Provider, address: int) -> None:
    with suppress(ProviderError):  # the garbage collector has nobody to tell
        _give_back(provider, address)


class DeviceWeights:
    """The constants of an engine in the memory of devices, each uploaded once for all contexts and programs."""

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._arrays: dict[tuple[str, str], tuple[DeviceBlock, Any]] = {}
        self._retired: list[DeviceBlock] = []
        self._lock = threading.Lock()

    def place(self, memory: str, blob: str, array: Any) -> Any:
        """A constant as steps of a memory read it; the host's as it is."""
        if not memory:
            return array
        with self._lock:
            if (memory, blob) not in self._arrays:
                self._arrays[memory, blob] = _upload(self._providers[memory], array)
            return self._arrays[memory, blob][1]

    def forget(self, blob: str) -> None:
        """Upload a constant again when it is next asked for; its old memory stays until ``release``."""
        with self._lock:
            for key in [key for key in self._arrays if key[1] == blob]:
                self._retired.append(self._arrays.pop(key)[0])

    def release(self) -> None:
        """Give back the memory of constants that were forgotten, when no context has them any more."""
        with self._lock:
            self._retired.clear()

    def close(self) -> None:
        """Give everything back."""
        with self._lock:
            self._retired.clear()
            self._arrays.clear()


def _upload(provider: Provider, array: Any) -> tuple[DeviceBlock, Any]:
    block = DeviceBlock(provider, max(array.nbytes, 1))
    target = block.view(0, array.shape, array.dtype)
    call(provider.name, "copy", provider.copy, np.ascontiguousarray(array), target, None)
    call(provider.name, "synchronize", provider.synchronize)
    return block, target


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
        self._lent = frozenset(streams or ())
        """The devices whose queue is the caller's, who waits for it and closes it."""

    def stream(self, provider: Provider) -> Stream | None:
        """The context's queue on a device; None when its steps end before they return."""
        if provider.name not in self._streams:
            self._streams[provider.name] = call(provider.name, "create_stream", provider.create_stream)
        return self._streams[provider.name]

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
        for _, stream in self.streams():
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
        self._streams.clear()


def check_memory(program: ProgramRecord, providers: Mapping[str, Provider]) -> None:
    """Check what a plan cannot show by itself: that values lie where the providers of their steps read and write.

    A step that gets an array of the host where it takes one of its device would read any address there is.
    """
    if all(provider.memory.is_host for provider in providers.values()) and not memories_of(program):
        return
    for step in program.steps:
        if step.kind in ("copy", "reformat", "control"):
            continue
        provider = providers[step.provider]
        own = provider.memory_name
        host = _host_slots(step, provider) if step.kind == "kernel" else frozenset()
        for slot, index in enumerate(step.inputs):
            allowed = {own, ""} if slot in host else {own}
            is_free = step.kind == "kernel" and not own and reads_only_shape(step.op, step.domain)
            _require(step, index < 0 or is_free or program.values[index].memory in allowed)
        for index in step.outputs:
            _require(step, index < 0 or program.values[index].memory == own)


def _host_slots(step: StepRecord, provider: Provider) -> frozenset[int]:
    if provider.memory.is_host:
        return frozenset()
    return call(provider.name, "host_inputs", provider.host_inputs, step.op, step.domain, step.opset)


def _require(step: StepRecord, condition: bool) -> None:
    if not condition:
        raise PlanCorruptError(
            f"a value does not lie in the memory of provider '{step.provider}'",
            where=f"step '{step.name[:60]}'",
            fix="build the plan again",
        )
