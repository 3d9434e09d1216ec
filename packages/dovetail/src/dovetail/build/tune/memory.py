"""Memory for trials, where the layer will run: the host's, or a device's with copies up and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dovetail.build.tune.clocks import Lane
from dovetail.plugin.arrays import address_of
from dovetail.provider.calls import call
from dovetail.provider.memory.arena import aligned_empty
from dovetail.runtime.memory.blocks import DeviceBlock

__all__ = ["PlacedArray", "place_array", "place_workspace"]


class PlacedArray(ABC):
    """An array in the memory of a lane, which lives as long as this does."""

    address: int
    """What a plugin gets."""
    array: Any
    """What a kernel of the lane's provider gets."""

    @abstractmethod
    def read(self) -> Any:
        """What it holds, as a NumPy array, when all work on the lane is done."""


class _HostArray(PlacedArray):
    def __init__(self, array: Any) -> None:
        self.array = array
        self.address = address_of(array) if array.nbytes else 0

    def read(self) -> Any:
        return self.array


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
    """An array where the provider of a lane reads it."""
    return _HostArray(array) if lane.provider.memory.is_host else _ArrayOnDevice(lane, array)


def place_workspace(lane: Lane, size_bytes: int) -> PlacedArray:
    """Scratch memory; its address is 0 when none is needed."""
    if size_bytes and not lane.provider.memory.is_host:
        return _ArrayOnDevice(lane, np.zeros(size_bytes, np.uint8))
    return _HostArray(aligned_empty(size_bytes))
