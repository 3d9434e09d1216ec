"""Arrays that users pass and get: NumPy, DLPack or anything with a buffer, without copies where the layout allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dovetail import host_arrays
from dovetail.errors import InputError
from dovetail.exchange import view_dlpack
from dovetail.formats import pack_nibbles, unpack_nibbles
from dovetail.plan.manifest import TensorRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider
from dovetail.runtime.devices.foreign import suggest_sharing
from dovetail.runtime.steps.base import Array

__all__ = ["PackedMemory", "array_at", "array_in", "as_input"]

_READABLE_DEVICES: Final = frozenset((1, 3, 11, 13))
"""DLPack's types of devices whose memory the host reads: the CPU's, pinned and managed memory."""


def as_input(value: Any, tensor: TensorRecord, dtype: np.dtype[Any]) -> Array:
    """The array of one input: the caller's own memory if it is contiguous, else a copy of it.

    The type must be right already: a silent cast would hide a mistake and cost a copy.
    """
    array = value if type(value) is np.ndarray else _convert(value, tensor, dtype)
    if array.dtype != dtype:
        raise InputError(
            "an array of Python objects, not of numbers" if array.dtype == object else "wrong type",
            where=f"input '{tensor.name}'",
            expected=dtype.name,
            got=array.dtype.name if array.dtype.isnative else f"{array.dtype.name} in the other byte order",
            fix=f"convert it first, for example x.astype('{dtype.name}')"
            if isinstance(value, np.ndarray)
            else f"convert it to {dtype.name} first",
        )
    return array if array.flags.c_contiguous and array.flags.aligned else array.copy(order="C")


def _convert(value: Any, tensor: TensorRecord, dtype: np.dtype[Any]) -> Array:
    if isinstance(value, np.ndarray):
        return np.asarray(value)  # kernels and plugins know plain arrays only
    if isinstance(value, bool | int | float | list | tuple):
        return _from_numbers(value, tensor, dtype)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, tensor)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype == np.object_:
        raise InputError(
            "not an array",
            where=f"input '{tensor.name}'",
            expected="a NumPy array, an object with __dlpack__, or a buffer",
            got=type(value).__name__,
        )
    return array


def _from_numbers(value: Any, tensor: TensorRecord, dtype: np.dtype[Any]) -> Array:
    try:
        return np.asarray(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"these numbers make no array: {error}", where=f"input '{tensor.name}'", expected=dtype.name
        ) from error


def _from_dlpack(value: Any, tensor: TensorRecord) -> Array:
    try:
        device_type = int(value.__dlpack_device__()[0])
        array = _share(value) if device_type in _READABLE_DEVICES else None
    except (BufferError, RuntimeError, TypeError, ValueError, InputError) as error:
        raise InputError(
            f"its memory cannot be shared: {error.what if isinstance(error, InputError) else error}",
            where=f"input '{tensor.name}'",
            got=type(value).__name__,
            fix=suggest_sharing(value),
        ) from error
    if array is None:
        raise InputError(
            "an array on a device, and the input lies on the host" if not tensor.memory else "an array elsewhere",
            where=f"input '{tensor.name}'",
            expected=f"memory of {tensor.memory or 'the host'}",
            got=f"{type(value).__name__} on a device of DLPack's type {device_type}",
            fix="copy it first",
        )
    return array


def _share(value: Any) -> Array:
    """An array over the memory of another library's, of a type that NumPy itself may lack."""
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):
        return view_dlpack(value)


def array_at(address: int, shape: Sequence[int], dtype: np.dtype[Any], *, where: str | None = None) -> Array:
    """A view of memory that the caller bound by address; it owns nothing."""
    _check_address(address, math.prod(shape) * dtype.itemsize, where)
    return host_arrays.array_at(address, shape, dtype)


def array_in(
    provider: Provider | None, address: int, shape: Sequence[int], dtype: np.dtype[Any], *, where: str | None = None
) -> Any:
    """The same for memory of a device, as an array of it; without a provider for memory of the host."""
    if provider is None:
        return array_at(address, shape, dtype, where=where)
    _check_address(address, math.prod(shape) * dtype.itemsize, where)
    return call(provider.id, "array_at", provider.array_at, address, tuple(shape), dtype)


def _check_address(address: int, size_bytes: int, where: str | None) -> None:
    if size_bytes and not address:
        what = "a null address was bound to a tensor that is not empty"
        raise InputError(what, where=where, got=f"{size_bytes} bytes")


class PackedMemory:
    """Four-bit elements that the caller bound by address: two to a byte there, one to a byte in an array."""

    def __init__(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self._memory = array_at(address, ((math.prod(shape) + 1) // 2,), np.dtype(np.uint8))
        self._shape, self._dtype = tuple(shape), dtype

    def read(self) -> Array:
        """What the memory holds now."""
        return unpack_nibbles(self._memory, self._dtype, math.prod(self._shape)).reshape(self._shape)

    def write(self, array: Array) -> None:
        """Put an array of that size into the memory."""
        pack_nibbles(array, out=self._memory)
