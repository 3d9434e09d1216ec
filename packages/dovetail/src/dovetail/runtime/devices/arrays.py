"""Arrays of callers in the memory of devices, as the steps there take them: without a copy, or not at all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dovetail.dlpack import import_dlpack
from dovetail.errors import InputError
from dovetail.plan.manifest import TensorRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
from dovetail.runtime.devices.access import check_device_address
from dovetail.runtime.devices.foreign import read_interface, refused_by_maker
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.devices.tensors import CUDA_DEVICE, DeviceTensor

__all__ = ["CallerArrays"]


class CallerArrays:
    """What callers give for tensors on devices: the provider's own arrays, other engines' results, DLPack and CUDA."""

    def __init__(self, devices: ContextDevices) -> None:
        self._devices = devices
        self.owners: list[object] = []
        """What keeps imported memory alive; to be cleared after the run."""

    def import_input(self, value: Any, tensor: TensorRecord, *, is_updated: bool) -> Any | None:
        """The array for an input that lies on a device; None when it does not lie there."""
        provider = self._devices.providers[tensor.memory]
        array = self._import(value, provider, f"input '{tensor.name}'", is_written=is_updated)
        if array is not None:
            _check_type(array, tensor, f"input '{tensor.name}'")
        return array

    def import_output(self, value: Any, tensor: TensorRecord) -> Any:
        """The array that an output which lies on a device is written to."""
        provider, where = self._devices.providers[tensor.memory], f"output '{tensor.name}'"
        array = self._import(value, provider, where, is_written=True)
        if array is None:
            raise InputError(f"not an array of provider '{provider.id}'", where=where, got=type(value).__name__)
        _check_type(array, tensor, where)
        return array

    def _import(self, value: Any, provider: Provider, where: str, *, is_written: bool) -> Any | None:
        if isinstance(value, np.ndarray):
            return None
        if isinstance(value, DeviceTensor):
            return self._take(value, provider)
        device = call(provider.id, "dlpack_device", lambda: provider.dlpack_device)
        is_cuda = device is not None and device[0] == CUDA_DEVICE
        try:
            interface = read_interface(value, where) if is_cuda or is_written else None
        except InputError:
            if device is None or not _lies_on(value, device, where):
                raise
            return self._import_dlpack(value, provider, where, is_written=is_written)
        if is_written and interface is not None and interface.is_read_only:
            raise InputError("its memory is read-only", where=where)
        if is_cuda and interface is not None:
            self._order_behind(interface.stream, provider)
        array = _import_own(value, provider, where)
        if array is not None or device is None:
            return array
        if _lies_on(value, device, where):
            return self._import_dlpack(value, provider, where, is_written=is_written)
        if interface is None or not is_cuda:
            return None
        interface.require_rows(where)
        check_device_address(provider, interface.address if math.prod(interface.shape) else 0, where)
        return call(provider.id, "array_at", provider.array_at, interface.address, interface.shape, interface.dtype)

    def _take(self, tensor: DeviceTensor, provider: Provider) -> Any | None:
        if tensor.device != provider.id:
            return None
        tensor.order_before(self._handle(provider))
        self.owners.append(tensor)
        return tensor.array

    def _handle(self, provider: Provider) -> int | None:
        stream = self._devices.stream(provider)
        return None if stream is None else stream.handle

    def _order_behind(self, handle: int | None, provider: Provider) -> None:
        """Have the context's queue wait for the one that still writes an array, where its maker names one."""
        stream = self._devices.stream(provider)
        if handle is not None and stream is not None:
            queue = call(provider.id, "wrap_stream", provider.wrap_stream, int(handle))
            call(provider.id, "wait", stream.wait, call(provider.id, "record", queue.record))

    def _import_dlpack(self, value: Any, provider: Provider, where: str, *, is_written: bool) -> Any:
        try:
            imported = import_dlpack(value, self._handle(provider))
        except InputError as error:
            raise _at(error, where) from error
        except Exception as error:
            raise refused_by_maker(value, "__dlpack__", error, where) from error
        if is_written and imported.is_read_only:
            raise InputError("its memory is read-only", where=where)
        check_device_address(provider, imported.address if math.prod(imported.shape) else 0, where)
        self.owners.append(imported)
        return call(provider.id, "array_at", provider.array_at, imported.address, imported.shape, imported.dtype)


def _import_own(value: Any, provider: Provider, where: str) -> Any | None:
    """What the provider itself makes of an array; it may refuse memory that is not of its device."""
    try:
        return call(provider.id, "import_array", provider.import_array, value)
    except InputError as error:
        raise _at(error, where) from error


def _lies_on(value: Any, device: tuple[int, int], where: str) -> bool:
    """Whether an array has DLPack and says that it lies on a device."""
    if not hasattr(value, "__dlpack_device__"):
        return False
    try:
        kind, number = value.__dlpack_device__()
        return (int(kind), int(number)) == device
    except Exception as error:
        raise refused_by_maker(value, "__dlpack_device__", error, where) from error


def _at(error: InputError, where: str) -> InputError:
    return InputError(error.what, where=where, expected=error.expected, got=error.got, fix=error.fix)


def _check_type(array: Any, tensor: TensorRecord, where: str) -> None:
    if array.dtype != np.dtype(tensor.dtype):
        raise InputError("wrong type", where=where, expected=tensor.dtype, got=array.dtype)
