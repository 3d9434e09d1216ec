"""Blocks of memory that go back when nobody has them, and the weights of an engine on devices, uploaded once."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from dovetail.allocators import IGpuAllocator
from dovetail.errors import ProviderError, ResourceError
from dovetail.finalizers import finalize
from dovetail.formats import stored_size_bytes
from dovetail.host_arrays import address_of
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
from dovetail.provider.memory.arena import ALIGNMENT_BYTES, aligned_empty
from dovetail.provider.options import Providers
from dovetail.runtime.bind.arrays import array_at
from dovetail.runtime.devices.streams import ContextStream
from dovetail.runtime.steps.base import check_same_size, share_memory
from dovetail.runtime.steps.frame import Shape

__all__ = ["DeviceBlock", "DeviceWeights", "HostBlock", "PinnedBlock"]


class DeviceBlock:
    """Memory of a device that goes back when nobody has the block any more.

    Args:
        provider: Whose memory.
        size_bytes: How much of it.
        stream: The one stream that the memory is used on: it is then taken and given back in the order of that stream.
            Without one the whole device is waited for before memory goes back.
    """

    def __init__(self, provider: Provider, size_bytes: int = 0, stream: ContextStream | None = None) -> None:
        self.provider = provider
        self._stream = stream
        self.size_bytes = 0
        self.address = 0
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self.reserve(size_bytes)

    def reserve(self, size_bytes: int) -> bool:
        """Have at least so many bytes; True when the block moved, and what it held is lost then."""
        if size_bytes <= self.size_bytes:
            return False
        self.close()
        allocator = call(self.provider.id, "allocator", lambda: self.provider.allocator)
        alignment = self.provider.memory.alignment_bytes
        address = _allocate(self.provider, allocator, size_bytes, alignment, self._stream)
        if not address:
            raise ProviderError(
                f"it has no memory for {size_bytes} bytes",
                where=f"provider '{self.provider.id}'",
                fix="use smaller shapes, fewer contexts, or another provider",
            )
        self.address, self.size_bytes = address, size_bytes
        self._finalizer = finalize(self, _give_back_quietly, self.provider, address, self._stream)
        return True

    def size_of(self, shape: Sequence[int], dtype: np.dtype[Any]) -> int:
        """Bytes of an array here: two four-bit elements share a byte."""
        return stored_size_bytes(dtype.name, shape)

    def view(self, offset: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """A part of the block as an array of the device."""
        return call(self.provider.id, "array_at", self.provider.array_at, self.address + offset, shape, dtype)

    def share(self, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """All of an array that lies in it, with another shape."""
        check_same_size(array, shape, dtype)
        return self.view(array.address - self.address, shape, dtype)

    def close(self) -> None:
        """Give the memory back when the device is done with it."""
        address, self.size_bytes, self.address = self.address, 0, 0
        if self._finalizer is not None and self._finalizer.detach() is not None:
            _give_back(self.provider, address, self._stream)


def _allocate(
    provider: Provider, allocator: IGpuAllocator, size_bytes: int, alignment: int, stream: ContextStream | None
) -> int:
    if stream is None:
        return call(provider.id, "allocate", allocator.allocate, size_bytes, alignment, 0)
    return call(provider.id, "allocate", allocator.allocate_async, size_bytes, alignment, 0, stream.handle)


def _give_back(provider: Provider, address: int, stream: ContextStream | None) -> None:
    if stream is not None and not stream.is_closed:
        call(provider.id, "deallocate_async", provider.allocator.deallocate_async, address, stream.handle)
        return
    try:
        call(provider.id, "synchronize", provider.synchronize)  # work that is still queued may use the memory
    finally:
        call(provider.id, "deallocate", provider.allocator.deallocate, address)


def _give_back_quietly(provider: Provider, address: int, stream: ContextStream | None) -> None:
    with suppress(ProviderError):  # the garbage collector has nobody to tell
        _give_back(provider, address, stream)


class HostBlock:
    """Memory of the process, from the caller's allocator where there is one: what ``DeviceBlock`` is for devices."""

    def __init__(self, allocator: IGpuAllocator | None) -> None:
        self._allocator = allocator
        self.size_bytes = 0
        self._memory = np.empty(0, np.uint8)
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def reserve(self, size_bytes: int) -> bool:
        """Have at least so many bytes, at an aligned start; True when the block moved."""
        if size_bytes <= self.size_bytes:
            return False
        self._memory = aligned_empty(size_bytes) if self._allocator is None else self._allocate(size_bytes)
        self.size_bytes = size_bytes
        return True

    def _allocate(self, size_bytes: int) -> Any:
        if self._finalizer is not None:
            self._finalizer()
        allocator = self._allocator
        assert allocator is not None  # noqa: S101 - the caller looked
        address = int(allocator.allocate(size_bytes, ALIGNMENT_BYTES, 0) or 0)
        if not address:
            raise ResourceError(f"the allocator of the runtime gave no memory for {size_bytes} bytes")
        self._finalizer = finalize(self, allocator.deallocate, address)
        return array_at(address, (size_bytes,), np.dtype(np.uint8))

    def close(self) -> None:
        """Give memory of the caller's allocator back; views are then not valid any more."""
        if self._finalizer is not None:
            self._memory, self.size_bytes = np.empty(0, np.uint8), 0
            self._finalizer()

    @property
    def address(self) -> int:
        """Where it begins."""
        return address_of(self._memory)

    def size_of(self, shape: Sequence[int], dtype: np.dtype[Any]) -> int:
        """Bytes of an array here: every element has its own."""
        return math.prod(shape) * dtype.itemsize

    def view(self, offset: int, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """An array in it."""
        return np.ndarray(shape, dtype, self._memory, offset)

    def share(self, array: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """All of an array that lies in it, with another shape."""
        return share_memory(array, shape, dtype)


class PinnedBlock(HostBlock):
    """Memory of the host that a device copies from and to best; nothing may be under way when it is closed."""

    def __init__(self, provider: Provider, size_bytes: int = 0) -> None:
        super().__init__(call(provider.id, "pinned_allocator", lambda: provider.pinned_allocator))
        self._provider = provider
        self.reserve(size_bytes)

    def _allocate(self, size_bytes: int) -> Any:
        try:
            return call(self._provider.id, "allocate", super()._allocate, size_bytes)
        except ResourceError as error:
            what, where = f"it has no memory of the host for {size_bytes} bytes", f"provider '{self._provider.id}'"
            raise ProviderError(what, where=where) from error


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
    block = DeviceBlock(provider)
    block.reserve(max(block.size_of(array.shape, array.dtype), 1))
    target = block.view(0, array.shape, array.dtype)
    call(provider.id, "copy", provider.copy, np.ascontiguousarray(array).reshape(array.shape), target, None)
    call(provider.id, "synchronize", provider.synchronize)
    return block, target
