"""Arrays exchanged by DLPack, in any memory: capsules that are given out, and capsules that are taken in.

The structures are those of DLPack 1.0. A capsule is taken over once: whoever does renames it, and calls its deleter
when the memory is not needed any more. Both forms are read and written, the versioned one where the other side knows
it.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from dovetail.errors import InputError
from dovetail.finalizers import finalize

__all__ = ["ImportedTensor", "export_dlpack", "import_dlpack"]

_PLAIN: Final = b"dltensor"
_VERSIONED: Final = b"dltensor_versioned"
_USED: Final = {_PLAIN: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}
_VERSION: Final = (1, 0)
_READ_ONLY: Final = 1
_CODES: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""By NumPy's kind of type."""
_NAMED_CODES: Final = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
"""By the name of a type that NumPy itself does not have."""
_MAX_DIMS: Final = 64
_SWEEP_REFERENCES: Final = 2
"""Those of a capsule that nobody else has: of the table, and of the call that counts them."""


class _DlDevice(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DlDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DlDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DlDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_api: Final = ctypes.pythonapi
_new_capsule: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)
_is_valid: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_get_pointer: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_set_name: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", _api))

_exported: Final[dict[int, Any]] = {}
"""What keeps exported memory alive, by the address of its structure, until the deleter is called."""


def _let_go(managed: int) -> None:
    _exported.pop(managed, None)


_deleter: Final = _Deleter(_let_go)
_pending: Final[dict[int, Any]] = {}
"""Capsules that nobody had taken over when they were last looked at, by the address of their structure.

A capsule cannot have a destructor in Python: it often goes while an exception is on its way, which Python code that is
called then would lose. So capsules that only this table has are found when the next one is made.
"""


def _sweep() -> None:
    """Let go of the memory of capsules that went without having been taken over."""
    for place in list(_pending):
        is_taken = not any(_is_valid(id(_pending[place]), name) for name in _USED)
        is_gone = sys.getrefcount(_pending[place]) <= _SWEEP_REFERENCES
        if is_taken or is_gone:
            _pending.pop(place, None)
        if is_gone and not is_taken:
            _let_go(place)


def export_dlpack(
    address: int,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    device: tuple[int, int],
    owner: object,
    *,
    max_version: tuple[int, int] | None = None,
    strides: Sequence[int] | None = None,
    is_read_only: bool = False,
) -> Any:
    """A capsule for memory.

    Args:
        address: Of the first element.
        shape: The dimensions.
        dtype: The type of elements.
        device: Type and number of the device, as DLPack has them.
        owner: What is kept alive until the memory is not needed any more.
        max_version: The newest version that the consumer reads; None for one that knows no versions.
        strides: How far apart elements are in each dimension, counted in elements; None for row by row.
        is_read_only: Whether the consumer must not write; one that knows no versions cannot be told.

    Raises:
        BufferError: DLPack has no such type, or the consumer cannot be told that it must not write.
    """
    _sweep()
    is_versioned = max_version is not None and max_version >= _VERSION
    if is_read_only and not is_versioned:
        raise BufferError("the memory is read-only, which this consumer of DLPack cannot be told: pass a copy")
    managed: Any = _ManagedVersioned(*_VERSION) if is_versioned else _Managed()
    if is_read_only:
        managed.flags = _READ_ONLY
    dims = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    steps = None if strides is None else (ctypes.c_int64 * max(len(strides), 1))(*strides)
    managed.tensor = _Tensor(address, _DlDevice(*device), len(shape), _describe_type(dtype), dims, steps, 0)
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p).value
    place = ctypes.addressof(managed)
    _exported[place] = (managed, dims, steps, owner)
    capsule = _pending[place] = _new_capsule(place, _VERSIONED if is_versioned else _PLAIN, None)
    return capsule


def _describe_type(dtype: np.dtype[Any]) -> _DlDataType:
    code = _NAMED_CODES.get(dtype.name)
    if code is None and dtype.isbuiltin == 1:
        code = _CODES.get(dtype.kind)
    if code is None:
        raise BufferError(f"DLPack has no type for {dtype.name}")
    return _DlDataType(code, dtype.itemsize * 8, 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class ImportedTensor:
    """Memory of somebody else's, which stays as it is for as long as this object lives."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: tuple[int, int]
    is_read_only: bool
    strides: tuple[int, ...] | None = None
    """Counted in elements; None where they lie row by row."""


def import_dlpack(value: Any, stream: int | None = None, *, any_strides: bool = False) -> ImportedTensor:
    """What an object with ``__dlpack__`` gives.

    Args:
        value: The object.
        stream: The handle of the queue that will use the memory, behind whatever still writes it.
        any_strides: Whether elements may lie otherwise than row by row.

    Raises:
        InputError: It gives no capsule, or memory that is not row by row where it has to be.
    """
    capsule = _ask(value, stream)
    name = next((name for name in _USED if _is_valid(id(capsule), name)), None)
    if name is None:
        raise InputError("__dlpack__ gave no capsule of DLPack", got=type(capsule).__name__)
    place = _get_pointer(id(capsule), name)
    kind = _Managed if name == _PLAIN else _ManagedVersioned
    managed: Any = kind.from_address(place)
    _set_name(id(capsule), _USED[name])
    imported = _read(managed.tensor, is_read_only=name == _VERSIONED and bool(managed.flags & _READ_ONLY))
    finalize(imported, _call_deleter, managed.deleter, place)
    _check_memory(imported, managed.tensor)
    if imported.strides is not None and not any_strides:
        raise InputError(
            "its elements do not lie row by row", got=f"strides {imported.strides}", fix="make it contiguous first"
        )
    return imported


def _ask(value: Any, stream: int | None) -> Any:
    try:
        return value.__dlpack__(stream=stream, max_version=_VERSION)
    except TypeError:  # older producers know no versions
        return value.__dlpack__(stream=stream)


def _read(tensor: Any, *, is_read_only: bool) -> ImportedTensor:
    if not 0 <= tensor.ndim <= _MAX_DIMS:
        raise InputError("a tensor with too many dimensions", got=tensor.ndim)
    shape = tuple(tensor.shape[: tensor.ndim])
    return ImportedTensor(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        dtype=_find_type(tensor.dtype),
        device=(tensor.device.device_type, tensor.device.device_id),
        is_read_only=is_read_only,
        strides=_find_strides(shape, tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None),
    )


def _find_type(described: Any) -> np.dtype[Any]:
    found = [dtype for dtype in _TYPES if _is_type(dtype, described)]
    if not found:
        raise InputError("a type of DLPack that has no array", got=(described.code, described.bits, described.lanes))
    return found[0]


def _is_type(dtype: np.dtype[Any], described: Any) -> bool:
    own = _describe_type(dtype)
    return (own.code, own.bits, own.lanes) == (described.code, described.bits, described.lanes)


_NUMBERS: Final = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
_TYPES: Final[tuple[np.dtype[Any], ...]] = (
    *(np.dtype(name) for name in _NUMBERS.split()),
    *(np.dtype(getattr(ml_dtypes, name)) for name in _NAMED_CODES),
)


def _check_memory(imported: ImportedTensor, tensor: Any) -> None:
    if min(imported.shape, default=0) < 0:
        raise InputError("a size below 0", got=imported.shape)
    num_elements = math.prod(imported.shape)
    if num_elements and not tensor.data:
        raise InputError("its memory is at address 0", got=f"{imported.shape} of {imported.dtype}")


def _find_strides(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The strides; None where the elements lie row by row."""
    expected = 1
    for axis in reversed(range(len(shape))) if strides is not None and 0 not in shape else ():
        if shape[axis] != 1 and strides is not None and strides[axis] != expected:
            return strides
        expected *= shape[axis]
    return None


def _call_deleter(deleter: int | None, place: int) -> None:
    if deleter:
        _Deleter(deleter)(place)
