"""Arrays of callers in the memory of devices, as the steps there take them: without a copy, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.dlpack import import_dlpack
from dovetail.errors import InputError
from dovetail.plan.manifest import TensorRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
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
        if is_written:
            _refuse_read_only(value, where)
        device = call(provider.id, "dlpack_device", lambda: provider.dlpack_device)
        is_cuda = device is not None and device[0] == CUDA_DEVICE
        interface = getattr(value, "__cuda_array_interface__", None) if is_cuda else None
        if interface is not None:
            self._order_behind(interface.get("stream"), provider)
        array = call(provider.id, "import_array", provider.import_array, value)
        if array is not None or device is None:
            return array
        if hasattr(value, "__dlpack_device__") and tuple(map(int, value.__dlpack_device__())) == device:
            return self._import_dlpack(value, provider, where, is_written=is_written)
        return None if interface is None else _read_interface(interface, provider, where)

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
        except (InputError, BufferError, RuntimeError, TypeError) as error:
            what = error.what if isinstance(error, InputError) else f"it cannot be imported: {error}"
            raise InputError(what, where=where) from error
        if is_written and imported.is_read_only:
            raise InputError("its memory is read-only", where=where)
        self.owners.append(imported)
        return _array_at(provider, imported.address, imported.shape, imported.dtype)


def _refuse_read_only(value: Any, where: str) -> None:
    """Refuse an array that CUDA's interface calls read-only."""
    interface = getattr(value, "__cuda_array_interface__", None)
    if isinstance(interface, Mapping) and interface["data"][1]:
        raise InputError("its memory is read-only", where=where)


def _read_interface(interface: Mapping[str, Any], provider: Provider, where: str) -> Any:
    """An array that CUDA's interface describes."""
    shape, address = tuple(interface["shape"]), interface["data"][0]
    dtype = np.dtype(interface["typestr"])
    strides = interface.get("strides")
    if strides is not None and tuple(strides) != _row_strides(shape, dtype.itemsize):
        raise InputError("its elements do not lie row by row", where=where, fix="make it contiguous first")
    return _array_at(provider, int(address), shape, dtype)


def _row_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides: list[int] = []
    for size in reversed(shape):
        strides.insert(0, itemsize)
        itemsize *= size
    return tuple(strides)


def _array_at(provider: Provider, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return call(provider.id, "array_at", provider.array_at, address, shape, dtype)


def _check_type(array: Any, tensor: TensorRecord, where: str) -> None:
    if array.dtype != np.dtype(tensor.dtype):
        raise InputError("wrong type", where=where, expected=tensor.dtype, got=array.dtype)
