"""Arrays in a provider's memory, through the callbacks of the contract and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.provider.interfaces import Provider
from dovetail.rules import Broken

__all__ = ["DeviceArrays"]


class DeviceArrays:
    """Makes arrays of a provider's memory and gives all of them back at the end."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._allocator = provider.allocator
        self._addresses: list[int] = []

    def make(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Any:
        """An array that holds anything."""
        size = max(math.prod(shape) * np.dtype(dtype).itemsize, 1)
        address = self._allocator.allocate(size, self._provider.memory.alignment_bytes, 0)
        if not address:
            raise Broken(f"allocate gave no memory for {size} bytes")
        self._addresses.append(address)
        return self._provider.array_at(address, tuple(shape), np.dtype(dtype))

    def upload(self, array: npt.NDArray[Any]) -> Any:
        """A copy of an array of the host, which is there when this returns."""
        made = self.make(array.shape, array.dtype)
        self._provider.copy(array, made, None)
        self._provider.synchronize()
        return made

    def download(self, array: Any) -> npt.NDArray[Any]:
        """What an array holds when all work is done."""
        self._provider.synchronize()
        made = np.empty(array.shape, array.dtype)
        self._provider.copy(array, made, None)
        self._provider.synchronize()
        return made

    def __enter__(self) -> DeviceArrays:
        return self

    def __exit__(self, *exc: object) -> None:
        self._provider.synchronize()
        for address in self._addresses:
            self._allocator.deallocate(address)
