"""Plugin fields: the named values that create a plugin and that a plan stores for it.

A field keeps the buffer it was given, without a copy, and reads it as its declared type. ``encode_fields`` and
``decode_fields`` are the only way fields enter and leave a plan.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from dovetail.contract_enum import ContractEnum
from dovetail.errors import PluginError

__all__ = [
    "MAX_NAME_BYTES",
    "PluginField",
    "PluginFieldCollection",
    "PluginFieldType",
    "decode_fields",
    "element_type",
    "encode_fields",
]

MAX_NAME_BYTES: Final = 1023
"""Names, versions, namespaces and field names have at most 1024 bytes with their final NUL."""


class PluginFieldType(ContractEnum):
    """How the bytes of a field are to be read."""

    FLOAT16 = 0
    FLOAT32 = 1
    FLOAT64 = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    CHAR = 6
    DIMS = 7
    UNKNOWN = 8
    BF16 = 9
    INT64 = 10
    FP8 = 11
    INT4 = 12
    FP4 = 13


_NUMPY_TYPES: Final[dict[PluginFieldType, np.dtype[Any]]] = {
    PluginFieldType.FLOAT16: np.dtype(np.float16),
    PluginFieldType.FLOAT32: np.dtype(np.float32),
    PluginFieldType.FLOAT64: np.dtype(np.float64),
    PluginFieldType.INT8: np.dtype(np.int8),
    PluginFieldType.INT16: np.dtype(np.int16),
    PluginFieldType.INT32: np.dtype(np.int32),
    PluginFieldType.CHAR: np.dtype(np.int8),
    PluginFieldType.UNKNOWN: np.dtype(np.int8),
    PluginFieldType.BF16: np.dtype(ml_dtypes.bfloat16),
    PluginFieldType.INT64: np.dtype(np.int64),
    PluginFieldType.FP8: np.dtype(ml_dtypes.float8_e4m3fn),
    PluginFieldType.INT4: np.dtype(ml_dtypes.int4),
    PluginFieldType.FP4: np.dtype(ml_dtypes.float4_e2m1fn),
}


_WHOLE: Final = frozenset((PluginFieldType.CHAR, PluginFieldType.UNKNOWN))
"""What is read to the end of the buffer, whatever its elements are."""


class SingleValue(np.ndarray[Any, np.dtype[Any]]):
    """The value of a field that has one; it is a number too, as plugins read it, which NumPy has given up for arrays.

    >>> int(np.array([3]).view(SingleValue)), float(np.array([0.5]).view(SingleValue))
    (3, 0.5)
    """

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())


class PluginField:
    """One named value.

    What is given may be anything with a buffer (an array, bytes, a bytearray) or None, as in a list of field names. The
    buffer is kept, not copied, and reinterpreted as ``type``; ``data`` is a copy of what is read. ``size`` counts the
    elements of the buffer, and so many values are read, so a small int64 declared INT32 reads as that number. Text and
    UNKNOWN are all bytes of the buffer.

    >>> PluginField("pads", np.array([1, 2], np.int32), PluginFieldType.INT32).data.tolist()
    [1, 2]
    >>> bytes(PluginField("mode", b"same", PluginFieldType.CHAR).data)
    b'same'
    """

    __slots__ = ("_buffer", "name", "size", "type")

    def __init__(self, name: str = "", data: Any = None, type: PluginFieldType = PluginFieldType.UNKNOWN) -> None:  # noqa: A002
        self.name = name
        self.type = PluginFieldType(type)
        self._buffer = _as_buffer(name, data)
        self.size: int = 0 if self._buffer is None else self._buffer.size

    @property
    def data(self) -> npt.NDArray[Any] | None:
        """The values read as the field's type, in memory of their own; None when the field only names itself.

        A creator may keep them: what it was given may be gone or used by others when it returns.
        """
        if self._buffer is None:
            return None
        values = self.read().copy()
        return values.view(SingleValue) if values.size == 1 else values

    @data.setter
    def data(self, value: Any) -> None:
        self._buffer = _as_buffer(self.name, value)
        self.size = 0 if self._buffer is None else self._buffer.size

    @property
    def buffer(self) -> npt.NDArray[Any] | None:
        """The array that was passed, as it was passed."""
        return self._buffer

    def read(self) -> npt.NDArray[Any]:
        """The values as a view of the buffer, for whoever needs them only now."""
        assert self._buffer is not None  # noqa: S101 - narrowed by the caller
        dtype = _NUMPY_TYPES.get(self.type)
        if dtype is None:
            raise AttributeError(f"field '{self.name}' of type {self.type.name} has no array form")
        if self._buffer.dtype == dtype and self._buffer.ndim == 1:
            return self._buffer
        flat = np.ascontiguousarray(self._buffer).reshape(-1)
        if flat.nbytes % dtype.itemsize:
            raise PluginError(
                f"field '{self.name}' has {flat.nbytes} bytes, which is not a whole number of {self.type.name}",
                fix="pass an array of the declared type",
            )
        values = flat.view(dtype)
        return values if self.type in _WHOLE or values.size <= self.size else values[: self.size]

    def __repr__(self) -> str:
        return f"PluginField({self.name!r}, {self.type.name}, size={self.size})"


def _as_buffer(name: str, data: Any) -> npt.NDArray[Any] | None:
    if data is None:
        return None
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return np.frombuffer(data, np.int8)
    try:
        return np.asarray(memoryview(data))
    except TypeError:
        raise PluginError(
            f"field '{name}' needs a buffer",
            got=type(data).__name__,
            fix="pass a NumPy array or bytes; np.array([value], dtype) for one number",
        ) from None


class PluginFieldCollection(list[PluginField]):
    """A list of fields that can also be asked by name.

    >>> PluginFieldCollection([PluginField("a")]).names
    ['a']
    """

    __slots__ = ()

    @property
    def names(self) -> list[str]:
        """The names of all fields, in order."""
        return [field.name for field in self]

    def find(self, name: str) -> PluginField | None:
        """The field of that name, if there is one."""
        return next((field for field in self if field.name == name), None)


def element_type(field_type: PluginFieldType) -> np.dtype[Any] | None:
    """The NumPy type of a field's elements; None for DIMS, which are structures.

    >>> element_type(PluginFieldType.INT32)
    dtype('int32')
    """
    return _NUMPY_TYPES.get(field_type)


def encode_fields(fields: Iterable[PluginField], *, where: str) -> list[dict[str, Any]]:
    """The form a manifest stores; the bytes are copied at this moment."""
    encoded = []
    for field in fields:
        if not isinstance(field, PluginField):
            raise PluginError(
                "get_fields_to_serialize returned something else than fields", where=where, got=repr(field)
            )
        _check_name(field.name, where)
        values = field.buffer if field.type is PluginFieldType.DIMS or field.buffer is None else field.read()
        raw = b"" if values is None else values.tobytes()
        size = 0 if values is None else values.size
        encoded.append(
            {"name": field.name, "type": field.type.name, "size": size, "data": base64.b64encode(raw).decode()}
        )
    return encoded


def _check_name(name: str, where: str) -> None:
    if not name or len(name.encode()) > MAX_NAME_BYTES:
        raise PluginError(
            "a field name is empty or too long",
            where=where,
            expected=f"1 to {MAX_NAME_BYTES} bytes",
            got=repr(name[:40]),
        )


def decode_fields(stored: Sequence[Mapping[str, Any]]) -> PluginFieldCollection:
    """Fields from a manifest, each over fresh memory of its own.

    The memory is writable and not shared with anything: a creator that keeps ``buffer``, which the contract
    forbids, must not be able to reach a plan through it.
    """
    return PluginFieldCollection(_decode_field(item) for item in stored)


def _decode_field(item: Mapping[str, Any]) -> PluginField:
    raw = np.frombuffer(bytearray(base64.b64decode(item["data"], validate=True)), np.int8)
    field_type = PluginFieldType[item["type"]]
    if field_type is PluginFieldType.DIMS:
        return PluginField(item["name"], raw, field_type)
    return PluginField(item["name"], raw.view(_NUMPY_TYPES[field_type]), field_type)


def iterate_fields(fields: object) -> Iterator[PluginField]:
    """Walk whatever a plugin calls a collection: our class, a list, or nothing."""
    if fields is None:
        return iter(())
    if not isinstance(fields, Iterable):
        raise PluginError("a field collection is expected", got=type(fields).__name__)
    return iter(fields)
