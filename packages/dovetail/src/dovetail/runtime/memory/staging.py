"""Memory that arrays of the host pass through on their way to a device and back, for one bound run."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from dovetail.errors import ProviderError
from dovetail.host_arrays import array_at
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
from dovetail.provider.memory.arena import align
from dovetail.runtime.devices.streams import ContextStream
from dovetail.runtime.memory.blocks import DeviceBlock
from dovetail.runtime.steps.base import Array

__all__ = ["PinnedBlock", "StagingBlock"]


class PinnedBlock:
    """Memory of the host that a device copies from and to best; it goes back when nobody has the block any more."""

    def __init__(self, provider: Provider, size_bytes: int) -> None:
        allocator = call(provider.id, "pinned_allocator", lambda: provider.pinned_allocator)
        alignment = provider.memory.alignment_bytes
        self.address: int = call(provider.id, "allocate", allocator.allocate, size_bytes, alignment, 0)
        if not self.address:
            raise ProviderError(
                f"it has no memory of the host for {size_bytes} bytes", where=f"provider '{provider.id}'"
            )
        self._finalizer = weakref.finalize(self, _give_back_quietly, allocator, self.address)

    def close(self) -> None:
        """Give the memory back; nothing may be under way that uses it."""
        self._finalizer()


def _give_back_quietly(allocator: Any, address: int) -> None:
    with suppress(Exception):  # the garbage collector has nobody to tell
        allocator.deallocate(address)


class StagingBlock:
    """Room in a device's memory and as much on the host, for tensors of known shapes.

    Args:
        provider: Whose memory.
        stream: On which the memory is used.
        tensors: Shape and type of each tensor, by the number of its value.
    """

    def __init__(
        self,
        provider: Provider,
        stream: ContextStream | None,
        tensors: Mapping[int, tuple[tuple[int, ...], np.dtype[Any]]],
    ) -> None:
        offsets, total = {}, 0
        for index, (shape, dtype) in tensors.items():
            offsets[index] = total
            total += align(math.prod(shape) * dtype.itemsize)
        self._block = DeviceBlock(provider, max(total, 1), stream)
        self._pinned = PinnedBlock(provider, max(total, 1))
        self.on_device: dict[int, Any] = {
            index: self._block.view(offsets[index], *tensor) for index, tensor in tensors.items()
        }
        """Arrays of the device by value."""
        self.on_host: dict[int, Array] = {
            index: array_at(self._pinned.address + offsets[index], *tensor) for index, tensor in tensors.items()
        }
        """Arrays of the host by value, which belong to those of the device."""

    def close(self) -> None:
        """Give everything back; copies to and from the host are done."""
        self._block.close()
        self._pinned.close()
