"""Memory for a plugin whose shapes only the run tells: buffers at their upper bound, on the host or on a device."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.errors import PlanError
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.memory.blocks import DeviceBlock, PinnedBlock
from dovetail.runtime.steps.base import Array, check_same_size, share_memory, writable
from dovetail.runtime.steps.plugin import NibblePacking, PluginPort, PluginStep

__all__ = ["DeviceBuffers", "HostBuffers", "PluginBuffers"]

Shape = tuple[int, ...]
Enqueue = Callable[[list[int], list[int]], None]
"""Runs the plugin over the addresses of its inputs and outputs."""


class PluginBuffers(ABC):
    """Where one plugin step over one frame reads and writes."""

    def __init__(self, step: PluginStep) -> None:
        self._step = step
        self._arrays: dict[int, Any] = {}
        """Memory for each output, as large as it can be."""

    def provide(self, values: list[Any], port: PluginPort, physical: Shape) -> None:
        """Have memory for an output: what the plan has, what an input has, or a buffer."""
        self._arrays[port.index] = self._find(values, port, physical)

    def whole(self, port: PluginPort) -> Any:
        """All of an output's buffer."""
        return self._arrays[port.index]

    @abstractmethod
    def take(self, values: list[Any], port: PluginPort) -> Any:
        """An input, as the plugin can read it."""

    @abstractmethod
    def _find(self, values: list[Any], port: PluginPort, physical: Shape) -> Any:
        """Memory for an output."""

    @abstractmethod
    def run(self, inputs: Mapping[int, Any], enqueue: Enqueue) -> None:
        """Run the plugin over its inputs, by value, and the memory for its outputs."""

    @abstractmethod
    def read_sizes(self, outputs: Sequence[int]) -> dict[int, int]:
        """What the plugin wrote into its size tensors, by value."""

    @abstractmethod
    def trim(self, port: PluginPort, physical: Shape) -> Any:
        """The start of an output's buffer, where its elements lie in order."""


class HostBuffers(PluginBuffers):
    """Arrays of the host; four-bit elements, a byte each there, are packed for the plugin."""

    def __init__(self, step: PluginStep) -> None:
        super().__init__(step)
        self._packing = NibblePacking(step)

    def take(self, values: list[Any], port: PluginPort) -> Any:
        """An array of the plan's type, its elements in order."""
        array: Array = values[port.index]
        if type(array) is not np.ndarray or array.dtype != port.dtype:
            raise describe_mismatch(self._step, port.dtype.name, type(array).__name__)
        if not array.flags.c_contiguous:
            array = values[port.index] = np.ascontiguousarray(array)
        return array

    def _find(self, values: list[Any], port: PluginPort, physical: Shape) -> Array:
        placed: Array | None = values[port.index] if port.placed and not port.is_data_dependent else None
        if placed is not None and placed.shape == physical:
            return placed
        if port.alias is not None:
            return share_memory(writable(values[port.alias]), physical, port.dtype)
        buffer = self._arrays.get(port.index)
        if self._step.in_body or buffer is None or buffer.shape != physical:
            buffer = np.empty(physical, port.dtype)
        return buffer

    def run(self, inputs: Mapping[int, Any], enqueue: Enqueue) -> None:
        """Pack four-bit inputs, run, and unpack four-bit outputs."""
        enqueue(*self._packing.pack(inputs, self._arrays))
        self._packing.unpack(self._arrays)

    def read_sizes(self, outputs: Sequence[int]) -> dict[int, int]:
        """What lies in the arrays."""
        return {index: int(self._arrays[index].reshape(-1)[0]) for index in outputs}

    def trim(self, port: PluginPort, physical: Shape) -> Any:
        """A view of the array."""
        return self._arrays[port.index].reshape(-1)[: math.prod(physical)].reshape(physical)


class DeviceBuffers(PluginBuffers):
    """Memory of a device, the same in every run: work on the stream that still reads it comes before the plugin's.

    Sizes are read back at once for all size tensors, which is the one place where the host waits.
    """

    def __init__(self, step: PluginStep, provider: Provider, devices: ContextDevices) -> None:
        super().__init__(step)
        self._provider = provider
        self._devices = devices
        self._blocks: dict[int, DeviceBlock] = {}
        self._sizes = PinnedBlock(provider)

    def take(self, values: list[Any], port: PluginPort) -> Any:
        """An array of the device, of the plan's type."""
        array = values[port.index]
        if isinstance(array, np.ndarray) or array.dtype != port.dtype:
            raise describe_mismatch(self._step, f"{port.dtype.name} on the device", type(array).__name__)
        return array

    def _find(self, values: list[Any], port: PluginPort, physical: Shape) -> Any:
        placed = values[port.index] if port.placed and not port.is_data_dependent else None
        if placed is not None and tuple(placed.shape) == physical:
            return placed
        if port.alias is not None:
            source = values[port.alias]
            check_same_size(source, physical, port.dtype)
            return self._view(source.address, physical, port)
        block = self._blocks.setdefault(port.index, DeviceBlock(self._provider))
        block.reserve(max(block.size_of(physical, port.dtype), 1))
        return block.view(0, physical, port.dtype)

    def _view(self, address: int, physical: Shape, port: PluginPort) -> Any:
        return call(self._provider.id, "array_at", self._provider.array_at, address, physical, port.dtype)

    def run(self, inputs: Mapping[int, Any], enqueue: Enqueue) -> None:
        """Run over addresses of the device, where four-bit elements lie packed."""
        taken = [inputs[port.index].address for port in self._step.inputs]
        enqueue(taken, [self._arrays[port.index].address for port in self._step.outputs])

    def read_sizes(self, outputs: Sequence[int]) -> dict[int, int]:
        """Copy all sizes to pinned memory and wait once."""
        if not outputs:
            return {}
        provider, stream = self._provider, self._devices.stream(self._provider)
        self._sizes.reserve(8 * len(outputs))
        read = {}
        for slot, index in enumerate(outputs):
            array = self._arrays[index]
            read[index] = self._sizes.view(8 * slot, array.shape, array.dtype)
            call(provider.id, "copy", provider.copy, array, read[index], stream)
        if stream is None:
            call(provider.id, "synchronize", provider.synchronize)
        else:
            call(provider.id, "synchronize_event", stream.record().synchronize)
        return {index: int(array.reshape(-1)[0]) for index, array in read.items()}

    def trim(self, port: PluginPort, physical: Shape) -> Any:
        """A view of the block."""
        return self._view(self._arrays[port.index].address, physical, port)

    def close(self) -> None:
        """Give the memory back."""
        for block in self._blocks.values():
            block.close()
        self._sizes.close()


def describe_mismatch(step: PluginStep, expected: object, got: object) -> PlanError:
    """The error for an input that is not what the plan says."""
    what = f"step '{step.name}' gets an input of another type or shape than the plan says"
    return PlanError(what, expected=expected, got=got)
