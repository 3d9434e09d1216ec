"""Copies between the host and devices: for whoever has values there, and as kernels between execution providers.

ONNX Runtime puts a node ``MemcpyFromHost`` or ``MemcpyToHost`` where a value goes from one execution provider to
another. Where an execution provider has no kernel for it, ONNX Runtime takes the one of its CPU provider, which leaves
the value in memory of the host; so both are in the registry of every route.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from dovetail import ResourceError, UsageError
from dovetail.host_arrays import array_at
from dovetail.provider.devices import Stream
from onnxruntime_ep_dovetail.abi import KernelCreator, NativeObject, OrtError, OrtRuntime, write_pointer
from onnxruntime_ep_dovetail.abi.objects import make_status
from onnxruntime_ep_dovetail.device.memory import CPU, GPU, HOST_ACCESSIBLE, VENDOR_ID
from onnxruntime_ep_dovetail.device.shared import BackendDevice
from onnxruntime_ep_dovetail.device.streams import find_sync_stream
from onnxruntime_ep_dovetail.session.options import EP_NAME

__all__ = ["CopyKernels", "DataTransfer", "MemcpyKernel"]

_HOST: Final = -1
_FOREIGN: Final = -2
_CPU_OUTPUT: Final = -1
_CPU_INPUT: Final = -2
_NUM_TYPES: Final = 32
"""More than ONNX Runtime has element types; it says which it has."""
_STRING: Final = 8
_TELLS_STREAMS: Final = 31
"""The first ONNX Runtime that says for each copy of a run on which stream the value was made."""


@dataclass(frozen=True)
class _CopyPlace:
    """Memory of a tensor: which device has it, by its number, and where."""

    device: int
    address: int
    size_bytes: int


def _owner(runtime: OrtRuntime, memory_device: int) -> int:
    """The number of our device that has memory, or that it is the host's or another's."""
    api = runtime.ep_api
    kind = api.MemoryDevice_GetDeviceType(memory_device)
    if kind == CPU:
        return _HOST
    if kind != GPU or api.MemoryDevice_GetVendorId(memory_device) != VENDOR_ID:
        return _FOREIGN
    if api.MemoryDevice_GetMemoryType(memory_device) == HOST_ACCESSIBLE:
        return _HOST
    return int(api.MemoryDevice_GetDeviceId(memory_device))


def _place(runtime: OrtRuntime, value: int) -> _CopyPlace:
    api, address, size = runtime.api, ctypes.c_void_p(), ctypes.c_size_t()
    api.GetTensorMutableData(value, ctypes.addressof(address))
    api.GetTensorSizeInBytes(value, ctypes.addressof(size))
    device = _owner(runtime, runtime.ep_api.Value_GetMemoryDevice(value))
    return _CopyPlace(device, address.value or 0, size.value)


class DataTransfer(NativeObject):
    """Copies values, in sessions and outside of them; one serves all of them."""

    struct = "OrtDataTransferImpl"

    def __init__(self, runtime: OrtRuntime, devices: Mapping[int, BackendDevice]) -> None:
        self._devices = dict(devices)
        super().__init__(runtime)

    def release(self) -> None:
        """Stay: every session gets this object, and says so when it ends."""

    def can_copy(self, source: int, target: int) -> bool:
        """Whether memory of the one device can be copied to that of the other."""
        ends = {_owner(self.runtime, source), _owner(self.runtime, target)}
        ours = ends & self._devices.keys()
        return bool(ours) and (len(ours) == 1 or self._can_pass(*ours)) and ends <= ours | {_HOST}

    def _can_pass(self, one: int, other: int) -> bool:
        return self._carrier(one, other) is not None

    def _carrier(self, source: int, target: int) -> BackendDevice | None:
        """The device that copies, of two that have memory."""
        ends = [self._devices[source], self._devices[target]]
        memories = [device.provider.memory for device in ends]
        found = [one for one in ends if one.call("can_copy", one.provider.can_copy, *memories)]
        return found[0] if found else None

    def copy_tensors(self, sources: int, targets: int, streams: int | None, count: int) -> None:
        """Copy values, each in the order of its stream, or at once."""
        from_values, to_values = ((ctypes.c_void_p * count).from_address(place) for place in (sources, targets))
        orders = (ctypes.c_void_p * count).from_address(streams) if streams else (None,) * count
        for source, target, order in zip(from_values, to_values, orders, strict=True):
            stream = find_sync_stream(self.runtime, order)
            self.copy_value(source or 0, target or 0, None if stream is None else stream.stream)

    def copy_value(self, source: int, target: int, stream: Stream | None) -> None:
        """Copy one value."""
        ends = [_place(self.runtime, value) for value in (source, target)]
        device = self._find_device(ends[0].device, ends[1].device)
        if not ends[0].size_bytes:
            return
        if device.is_capturing and _HOST in (ends[0].device, ends[1].device):
            raise UsageError(
                "a value on the host takes part in a run that is captured",
                where=f"back end '{device.name}'",
                fix="bind inputs and outputs to memory of the device, or set gpu_graph_id to -1",
            )
        from_array, to_array = (self._array(end, device) for end in ends)
        stream = device.redirect(stream)
        recording = device.recording
        if recording is not None and _HOST not in (ends[0].device, ends[1].device):
            recording.launch(("copy", *ends), partial(device.copy, from_array, to_array, stream))
            return
        device.launch_held_back()
        if stream is None:
            if self.runtime.version < _TELLS_STREAMS:
                device.synchronize()
            device.copy_now(from_array, to_array)
        else:
            device.copy(from_array, to_array, stream)
            if ends[1].device == _HOST:
                # ONNX Runtime reads it at once where a body's node wants it on the host, and waits for nothing.
                device.wait(stream)

    def _find_device(self, source: int, target: int) -> BackendDevice:
        ours = {end for end in (source, target) if end in self._devices}
        found = self._carrier(source, target) if len(ours) == 2 else self._devices[ours.pop()] if ours else None
        if found is None:
            raise UsageError("no device here can copy between these", got=f"{source} and {target}")
        return found

    def _array(self, end: _CopyPlace, device: BackendDevice) -> Any:
        if not end.address:
            raise ResourceError(device.shortage or "a value has no memory", where=f"back end '{device.name}'")
        if end.device == _HOST:
            return array_at(end.address, (end.size_bytes,), np.dtype(np.uint8))
        return self._devices[end.device].bytes_at(end.address, end.size_bytes)


class MemcpyKernel(NativeObject):
    """A node that takes a value from one execution provider to another."""

    struct = "OrtKernelImpl"

    def __init__(self, runtime: OrtRuntime, transfer: DataTransfer, device: BackendDevice, *, is_to_host: bool) -> None:
        self._transfer = transfer
        self._device = device
        self._is_to_host = is_to_host
        super().__init__(runtime)

    def compute(self, context: int) -> None:
        """Copy the input to an output of the same shape."""
        api, source, target = self.runtime.api, ctypes.c_void_p(), ctypes.c_void_p()
        kind, dims, rank, handle = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_void_p()
        api.KernelContext_GetInput(context, 0, ctypes.addressof(source))
        api.GetTensorElementTypeAndShapeDataReference(
            source.value, *(ctypes.addressof(place) for place in (kind, dims, rank))
        )
        api.KernelContext_GetOutput(context, 0, dims.value, rank.value, ctypes.addressof(target))
        api.KernelContext_GetGPUComputeStream(context, ctypes.addressof(handle))
        stream = self._device.find_stream(handle.value or 0)
        self._transfer.copy_value(source.value or 0, target.value or 0, stream)
        if not self._is_to_host:
            self._device.wait(stream)  # ONNX Runtime gives the host's memory to others when this returns


_kept: list[KernelCreator] = []
"""The functions that make kernels: ONNX Runtime keeps their addresses for good."""


class CopyKernels:
    """Both kernels of one device, and a registry with nothing else in it."""

    def __init__(self, runtime: OrtRuntime, transfer: DataTransfer, device: BackendDevice) -> None:
        self._runtime = runtime
        self._transfer = transfer
        self._device = device
        self._registry = 0

    def _make_creator(self, *, is_to_host: bool) -> KernelCreator:
        def create(_state: int, _info: int, target: int) -> int | None:
            try:
                kernel = MemcpyKernel(self._runtime, self._transfer, self._device, is_to_host=is_to_host)
                write_pointer(target, kernel.address)
            except BaseException as error:  # noqa: BLE001 - an exception that left a callback would look like success
                return make_status(self._runtime, error)
            return None

        creator = KernelCreator(create)
        _kept.append(creator)
        return creator

    @property
    def registry(self) -> int:
        """A registry of these two alone, for sessions whose other nodes are compiled."""
        if not self._registry:
            place = ctypes.c_void_p()
            self._runtime.ep_api.CreateKernelRegistry(ctypes.addressof(place))
            self._registry = place.value or 0
            self.add_to(self._registry)
        return self._registry

    def add_to(self, registry: int) -> None:
        """Put both into a registry that has others too."""
        api = self._runtime.ep_api
        types = self._types()
        for op, is_to_host in (("MemcpyFromHost", False), ("MemcpyToHost", True)):
            builder, definition = ctypes.c_void_p(), ctypes.c_void_p()
            api.CreateKernelDefBuilder(ctypes.addressof(builder))
            try:
                api.KernelDefBuilder_SetOperatorType(builder.value, op.encode())
                api.KernelDefBuilder_SetDomain(builder.value, b"")
                api.KernelDefBuilder_SetSinceVersion(builder.value, 1, 1)
                api.KernelDefBuilder_SetExecutionProvider(builder.value, EP_NAME.encode())
                api.KernelDefBuilder_AddTypeConstraint(builder.value, b"T", ctypes.addressof(types), len(types))
                if is_to_host:
                    api.KernelDefBuilder_SetOutputMemType(builder.value, 0, _CPU_OUTPUT)
                else:
                    api.KernelDefBuilder_SetInputMemType(builder.value, 0, _CPU_INPUT)
                api.KernelDefBuilder_Build(builder.value, ctypes.addressof(definition))
            finally:
                api.ReleaseKernelDefBuilder(builder.value)
            creator = self._make_creator(is_to_host=is_to_host)
            api.KernelRegistry_AddKernel(registry, definition.value, creator.address, creator.state)
            api.ReleaseKernelDef(definition.value)

    def _types(self) -> Any:
        """All types of elements that are plain memory."""
        found: list[int | None] = []
        for kind in range(1, _NUM_TYPES):
            place = ctypes.c_void_p()
            try:
                self._runtime.ep_api.GetTensorDataType(kind, ctypes.addressof(place))
            except OrtError:
                continue  # this ONNX Runtime does not have it
            if kind != _STRING:
                found.append(place.value)
        return (ctypes.c_void_p * len(found))(*found)
