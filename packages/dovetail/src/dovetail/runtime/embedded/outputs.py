"""The memory of outputs in runs that C++ asks for: the caller's, or new memory that it takes over."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dovetail.allocators import IOutputAllocator
from dovetail.errors import InputError, UsageError
from dovetail.formats import FOUR_BIT_TYPES, packed_shape, stored_size_bytes
from dovetail.host_arrays import address_of
from dovetail.plan.manifest import TensorRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
from dovetail.provider.memory.arena import aligned_empty
from dovetail.runtime.bind.arrays import PackedMemory, array_at
from dovetail.runtime.devices.tensors import DeviceTensor
from dovetail.runtime.memory.blocks import DeviceBlock
from dovetail.runtime.steps.base import Array
from dovetail.types import TensorFormat

__all__ = [
    "CallerOutput",
    "DeviceOutput",
    "OutputMemory",
    "OutputResult",
    "OwnOutput",
    "check_capacity",
    "needed_bytes",
    "read_memory",
]


class OutputResult(NamedTuple):
    """An output as the header gets it."""

    address: int
    size_bytes: int
    shape: tuple[int, ...]
    owner: object
    """What keeps the memory alive; None for memory of the caller's."""


class OutputMemory(IOutputAllocator):
    """Where one output of a context goes."""

    def __init__(self, tensor: TensorRecord) -> None:
        self.tensor = tensor
        self.shape: tuple[int, ...] | None = None
        """What the last run told; None before one."""

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        """Keep the shape."""
        self.shape = tuple(shape)

    def finish(self) -> None:
        """Called when a run is done."""

    def take(self) -> OutputResult:
        """The result of the last run, handed over."""
        raise NotImplementedError

    def require_shape(self) -> tuple[int, ...]:
        """The shape of the result, if there is one."""
        if self.shape is None:
            fix = "call run first; the result of a run is handed over once"
            raise UsageError("there is no result", where=f"output '{self.tensor.name}'", fix=fix)
        return self.shape


class OwnOutput(OutputMemory):
    """New memory: a result that was taken is never written over by a later run."""

    def __init__(self, tensor: TensorRecord) -> None:
        super().__init__(tensor)
        self._memory: Array | None = None
        self._size_bytes = 0

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        """The same as ``reserve``."""
        return self.reserve(size)

    def reserve(self, size_bytes: int) -> int:
        """What there is, if nobody took it and it is large enough; else new memory."""
        if self._memory is None or self._memory.nbytes < size_bytes:
            self._memory = aligned_empty(max(size_bytes, 1))
        self._size_bytes = size_bytes
        return address_of(self._memory)

    def take(self) -> OutputResult:
        """The memory goes with the result."""
        shape, memory = self.require_shape(), self._memory
        self.shape = self._memory = None
        return OutputResult(0 if memory is None else address_of(memory), self._size_bytes, shape, memory)


class CallerOutput(OutputMemory):
    """Memory of the caller's, which is as large as it said."""

    def __init__(self, tensor: TensorRecord, address: int, size_bytes: int) -> None:
        super().__init__(tensor)
        self.address = address
        self.size_bytes = size_bytes

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        """The memory, if it is large enough."""
        check_capacity(self.tensor, "output", size, self.size_bytes)
        return self.address

    def take(self) -> OutputResult:
        """Where the result is; it stays the caller's."""
        shape = self.require_shape()
        return OutputResult(self.address, needed_bytes(self.tensor, shape), shape, None)


class DeviceOutput(OutputMemory):
    """Memory of a device whose contents are copied to the host when a run is done.

    Args:
        provider: Whose memory.
        target: Where the copy goes.
    """

    def __init__(self, provider: Provider, target: OwnOutput | CallerOutput) -> None:
        super().__init__(target.tensor)
        self._provider = provider
        self._block = DeviceBlock(provider)
        self._target = target

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        """Memory there, once there is enough for the copy here."""
        self._target.reallocate_output(tensor_name, 0, size, alignment)
        self._block.reserve(max(size, 1))
        return self._block.address

    def finish(self) -> None:
        """Copy the result."""
        shape = self.require_shape()
        physical = packed_shape(shape, TensorFormat[self.tensor.format])
        array = self._block.view(0, physical, np.dtype(self.tensor.dtype))
        call(self._provider.id, "synchronize", self._provider.synchronize)  # a queue of the caller's may still write
        copied = DeviceTensor(self._provider, array, self._block).numpy()
        address = self._target.reallocate_output(self.tensor.name, 0, stored_size_bytes(self.tensor.dtype, physical), 1)
        _write_memory(address, copied)
        self._target.shape = shape

    def take(self) -> OutputResult:
        """The copy."""
        return self._target.take()


def check_capacity(tensor: TensorRecord, kind: str, needed: int, size_bytes: int) -> None:
    """Refuse memory that is smaller than the tensor."""
    if needed > size_bytes:
        raise InputError(
            "the memory is too small",
            where=f"{kind} '{tensor.name}'",
            expected=f"{needed} bytes",
            got=size_bytes,
        )


def read_memory(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """What lies at an address of the host, as an array: a view, or a copy of elements that share bytes."""
    if dtype.name in FOUR_BIT_TYPES:
        return PackedMemory(address, shape, dtype).read()
    return array_at(address, shape, dtype)


def _write_memory(address: int, array: Array) -> None:
    if array.dtype.name in FOUR_BIT_TYPES:
        PackedMemory(address, array.shape, array.dtype).write(array)
    else:
        np.copyto(array_at(address, array.shape, array.dtype), array)


def needed_bytes(tensor: TensorRecord, shape: tuple[int, ...]) -> int:
    """The memory that a tensor of that shape takes, in its format."""
    return stored_size_bytes(tensor.dtype, packed_shape(shape, TensorFormat[tensor.format]))
