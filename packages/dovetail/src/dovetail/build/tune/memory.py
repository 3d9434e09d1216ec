"""Memory for trials, where the layer will run: the host's, or a device's with copies to and from it.

Arrays on the host are aligned as in an engine and stand between guard bytes, so that a plugin that writes past the end
of its memory is found and damages nothing else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dovetail.build.tune.clocks import Lane
from dovetail.plugin.arrays import address_of
from dovetail.provider.calls import call
from dovetail.provider.memory.arena import ALIGNMENT_BYTES, aligned_empty
from dovetail.runtime.memory.blocks import DeviceBlock

__all__ = ["PlacedArray", "place_array", "place_workspace", "read_available_bytes"]


_GUARD: Final = 0xDB
"""The value of guard bytes."""


class PlacedArray(ABC):
    """An array in the memory of a lane, which lives as long as this object."""

    address: int
    """The address for a plugin."""
    array: Any
    """The array for a kernel of the lane's provider."""

    @abstractmethod
    def read(self) -> Any:
        """Return the contents as a NumPy array, when all work on the lane is done."""

    def find_overrun(self) -> str | None:
        """Return which guard bytes were overwritten, in words; None if none were or the memory has none."""
        return None


class _HostArray(PlacedArray):
    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        self._block = aligned_empty(size_bytes + 2 * ALIGNMENT_BYTES)
        end = ALIGNMENT_BYTES + size_bytes
        self._guards = (self._block[:ALIGNMENT_BYTES], self._block[end : end + ALIGNMENT_BYTES])
        for guard in self._guards:
            guard.fill(_GUARD)
        self.array = self._block[ALIGNMENT_BYTES:end].view(dtype).reshape(shape)
        self.address = address_of(self._block) + ALIGNMENT_BYTES
        """Never 0: engines pass no null address for an empty tensor."""

    def read(self) -> Any:
        return self.array

    def find_overrun(self) -> str | None:
        for guard, place in zip(self._guards, ("before its start", "past its end"), strict=True):
            changed = np.flatnonzero(guard != _GUARD)
            if changed.size:
                return f"{changed.size} or more bytes {place}"
        return None


class _ArrayOnDevice(PlacedArray):
    def __init__(self, lane: Lane, array: Any) -> None:
        self._lane = lane
        self._block = DeviceBlock(lane.provider, max(array.nbytes, 1))
        self.array = self._block.view(0, array.shape, array.dtype)
        self.address = self._block.address
        self._copy(np.ascontiguousarray(array).reshape(array.shape), self.array)

    def read(self) -> Any:
        array = np.empty(self.array.shape, self.array.dtype)
        self._copy(self.array, array)
        return array

    def _copy(self, source: Any, target: Any) -> None:
        provider, stream = self._lane.provider, self._lane.stream
        call(provider.id, "copy", provider.copy, source, target, stream)
        call(provider.id, "synchronize", provider.synchronize if stream is None else stream.synchronize)


def place_array(lane: Lane, array: Any) -> PlacedArray:
    """Copy an array to where the provider of a lane reads it."""
    if not lane.provider.memory.is_host:
        return _ArrayOnDevice(lane, array)
    placed = _HostArray(array.shape, array.dtype)
    placed.array[...] = array
    return placed


def place_workspace(lane: Lane, size_bytes: int) -> PlacedArray:
    """Allocate scratch memory; its address is 0 when none is needed."""
    if size_bytes and not lane.provider.memory.is_host:
        return _ArrayOnDevice(lane, np.zeros(size_bytes, np.uint8))
    placed = _HostArray((size_bytes,), np.uint8)
    placed.address = placed.address if size_bytes else 0
    return placed


def read_available_bytes() -> int | None:
    """Return how much memory the host can give without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    fields = next((line.split() for line in lines if line.startswith("MemAvailable:")), [])
    return int(fields[1]) * 1024 if len(fields) > 1 else None
