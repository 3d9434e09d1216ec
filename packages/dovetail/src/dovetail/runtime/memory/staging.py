"""Memory that arrays of the host pass through on their way to a device and back, for one bound run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.provider.interfaces import Provider
from dovetail.provider.memory.arena import align
from dovetail.runtime.devices.streams import ContextStream
from dovetail.runtime.memory.blocks import DeviceBlock, PinnedBlock
from dovetail.runtime.steps.base import Array

__all__ = ["StagingBlock"]


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
            index: self._pinned.view(offsets[index], *tensor) for index, tensor in tensors.items()
        }
        """Arrays of the host by value, which belong to those of the device."""

    def close(self) -> None:
        """Give everything back; copies to and from the host are done."""
        self._block.close()
        self._pinned.close()
