"""Runs by address: where outputs go, and how those get there whose shape only the run tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.allocators import IOutputAllocator
from dovetail.errors import InputError, PlanError
from dovetail.expr import Dim
from dovetail.formats import FOUR_BIT_TYPES, packed_shape, stored_size_bytes
from dovetail.plan.manifest import TensorRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
from dovetail.runtime.bind.arrays import PackedMemory, array_at, array_in
from dovetail.runtime.bind.outputs import require_array
from dovetail.runtime.bind.run import BoundRun
from dovetail.runtime.bind.shapes import ShapePlan
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.types import Dims, TensorFormat

if TYPE_CHECKING:
    from dovetail.runtime.engine import Engine

__all__ = ["OutputDelivery", "bound_bytes", "no_address", "tell_dims"]


class OutputDelivery:
    """Finds addresses for outputs and hands results over.

    Args:
        engine: What runs.
        devices: The streams of the context.
        addresses: What the caller bound, by name; the context adds to it.
        allocators: Who brings memory for an output, by name; the context adds to it.
    """

    def __init__(
        self,
        engine: Engine,
        devices: ContextDevices,
        addresses: dict[str, int],
        allocators: Mapping[str, IOutputAllocator],
    ) -> None:
        self._engine, self._devices, self._addresses, self._allocators = engine, devices, addresses, allocators
        self.stream = 0
        """The handle that the caller gave, for allocators of the host."""

    def find_addresses(self, run: BoundRun) -> tuple[int, ...]:
        """The address of each input and then each output, those from allocators asked for now."""
        known = self._addresses
        if not self._allocators:
            try:
                return tuple([known[name] for name in self._engine.tensor_names])
            except KeyError:
                pass  # an output that only the run measures needs none before it
        tensors, shapes = self._engine.manifest.outputs, run.output_shapes
        outputs = [self._output_address(tensor, shape) for tensor, shape in zip(tensors, shapes, strict=True)]
        return (*[known[name] for name in self._engine.input_names], *outputs)

    def _output_address(self, tensor: TensorRecord, shape: tuple[int, ...] | None) -> int:
        address = self._addresses.get(tensor.name)
        if shape is None:
            return address or 0
        allocator = self._allocators.get(tensor.name)
        if allocator is not None:
            size = stored_size_bytes(tensor.dtype, packed_shape(shape, TensorFormat[tensor.format]))
            address = self._addresses[tensor.name] = self._reallocate(allocator, tensor, address or 0, size)
            return address
        if address is None:
            raise no_address("output", tensor.name, "call set_tensor_address or set_output_allocator")
        return address

    def deliver(self, run: BoundRun, results: Sequence[Any]) -> None:
        """Hand over outputs whose shape only the run told, and tell allocators the shapes of all."""
        made = results or [None] * len(run.output_shapes)  # where all shapes are known, all is where it belongs
        for tensor, shape, array in zip(self._engine.manifest.outputs, run.output_shapes, made, strict=True):
            allocator = self._allocators.get(tensor.name)
            expected = None if shape is None else packed_shape(shape, TensorFormat[tensor.format])
            # Where a dimension is 0, a step may leave an array of its own in place of the memory that it was given.
            if results and (expected is None or array.shape != expected):
                self._copy_out(run, tensor, array, allocator)
            if allocator is not None:
                allocator.notify_shape(tensor.name, Dims(array.shape if shape is None else shape))

    def _reallocate(self, allocator: IOutputAllocator, tensor: TensorRecord, memory: int, size: int) -> int:
        """Memory for an output from the caller's allocator, where the tensor lies."""
        provider = self._engine.providers[tensor.memory] if tensor.memory else None
        alignment = 256 if provider is None else provider.memory.alignment_bytes
        address = int(
            allocator.reallocate_output_async(tensor.name, memory, size, alignment, self._stream_of(provider)) or 0
        )
        if not address and size:
            raise InputError(f"the output allocator gave no memory for {size} bytes", where=f"output '{tensor.name}'")
        check = self._devices.check_address
        if check is not None and address != memory:
            check(tensor.memory, address, f"output '{tensor.name}'")
        return address

    def _stream_of(self, provider: Provider | None) -> int:
        stream = None if provider is None else self._devices.stream(provider)
        return self.stream if stream is None else stream.handle

    def _copy_out(self, run: BoundRun, tensor: TensorRecord, array: Any, allocator: IOutputAllocator | None) -> None:
        address = self._addresses.get(tensor.name, 0)
        size = stored_size_bytes(tensor.dtype, (array if tensor.memory else require_array(array, tensor)).shape)
        if allocator is not None:
            address = self._addresses[tensor.name] = self._reallocate(allocator, tensor, address, size)
        if not address:
            fix = "call set_output_allocator: the shape depends on the data"
            raise InputError("no memory is set", where=f"output '{tensor.name}'", fix=fix)
        if allocator is None:
            self._check_bound(tensor, size, run)
        self._check_told(tensor, array.shape, run)
        if tensor.memory:
            self._copy_on_device(tensor, array, address)
        elif tensor.dtype in FOUR_BIT_TYPES:
            PackedMemory(address, array.shape, array.dtype).write(array)
        else:
            np.copyto(array_at(address, array.shape, array.dtype), array)

    def _copy_on_device(self, tensor: TensorRecord, array: Any, address: int) -> None:
        provider = self._engine.providers[tensor.memory]
        stream, target = self._devices.stream(provider), array_in(provider, address, array.shape, array.dtype)
        call(provider.id, "copy", provider.copy, array, target, stream)
        if stream is not None:  # the array goes when this run is forgotten
            call(provider.id, "synchronize_stream", stream.synchronize)

    def _check_bound(self, tensor: TensorRecord, size: int, run: BoundRun) -> None:
        """Memory that the caller bound beforehand is as large as the bound says, if there is one."""
        room = bound_bytes(tensor, run.instance.shapes, run.symbols)
        if size > room:
            raise InputError(
                "the result has no bound, so no memory is large enough" if room < 0 else "the result is over its bound",
                where=f"output '{tensor.name}'",
                expected=f"at most {max(room, 0)} bytes",
                got=size,
                fix="call set_output_allocator: the shape depends on the data",
            )

    def _check_told(self, tensor: TensorRecord, shape: tuple[int, ...], run: BoundRun) -> None:
        """Dimensions that the caller was told before the run are those of the result, unless that has no elements."""
        if tensor.format != "LINEAR" or tensor.dims is None or 0 in shape:
            return
        told = tell_dims(tensor.dims, run.instance.shapes, run.symbols)
        if len(told) != len(shape) or any(dim not in (-1, size) for dim, size in zip(told, shape, strict=True)):
            raise PlanError(
                "a step gave another shape than the plan says",
                where=f"output '{tensor.name}'",
                expected=tuple(told),
                got=shape,
            )


def tell_dims(dims: Sequence[Dim], shapes: ShapePlan, symbols: Sequence[int]) -> tuple[int, ...]:
    """Dimensions as callers are told them; -1 where only the run tells."""
    return tuple([-1 if dim is None else max(shapes.evaluate_dim(dim, symbols), 0) for dim in dims])


def bound_bytes(tensor: TensorRecord, shapes: ShapePlan, symbols: Sequence[int]) -> int:
    """Bytes that an output can take at most; -1 when there is no bound."""
    dims = tensor.dims if tensor.max_dims is None else tensor.max_dims
    if dims is None or None in dims:
        return -1
    return stored_size_bytes(tensor.dtype, packed_shape(tell_dims(dims, shapes, symbols), TensorFormat[tensor.format]))


def no_address(kind: str, name: str, fix: str) -> InputError:
    """The error for a tensor that nobody bound."""
    return InputError("no address is set", where=f"{kind} '{name}'", fix=fix)
