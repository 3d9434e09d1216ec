"""Descriptions of tensors and fields, from the contract's objects to a library's memory and back."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from dovetail.errors import PluginError
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType, element_type
from dovetail.plugin.native.layout import (
    MAX_DIMS,
    NativeDims,
    NativeDynamicDesc,
    NativeField,
    NativeFieldCollection,
    NativeTensorDesc,
)
from dovetail.types import Dims, DynamicPluginTensorDesc, PluginTensorDesc

__all__ = ["PackedFields", "pack_addresses", "pack_descs", "pack_dynamic_descs", "read_fields", "read_text"]

_PACKED_IN_HALVES: Final = frozenset((PluginFieldType.INT4, PluginFieldType.FP4))


def pack_descs(descs: Sequence[PluginTensorDesc]) -> ctypes.Array[NativeTensorDesc]:
    """Descriptors for ``onShapeChange`` and ``enqueue``."""
    return (NativeTensorDesc * len(descs))(*map(_pack_desc, descs))


def pack_dynamic_descs(descs: Sequence[DynamicPluginTensorDesc]) -> ctypes.Array[NativeDynamicDesc]:
    """Descriptors for the callbacks of a build."""
    return (NativeDynamicDesc * len(descs))(
        *(NativeDynamicDesc(_pack_desc(d.desc), _pack_dims(d.min), _pack_dims(d.max), _pack_dims(d.opt)) for d in descs)
    )


def pack_addresses(addresses: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
    """Addresses as an array of pointers."""
    return (ctypes.c_void_p * len(addresses))(*map(int, addresses))


def _pack_desc(desc: PluginTensorDesc) -> NativeTensorDesc:
    return NativeTensorDesc(_pack_dims(desc.dims), _number(desc.type), _number(desc.format), desc.scale)


def _number(member: Any) -> int:
    """The number of a type or format; -1 where a proposal leaves it open."""
    return -1 if member is None else int(member)


def _pack_dims(dims: Dims) -> NativeDims:
    if not dims.is_valid:
        return NativeDims(-1)
    return NativeDims(len(dims), (ctypes.c_int64 * MAX_DIMS)(*dims))


class PackedFields:
    """Fields in memory that a library can read for as long as this object lives.

    Text is followed by a NUL that its length does not count.
    """

    def __init__(self, fields: Iterable[PluginField], *, where: str) -> None:
        self._buffers: list[ctypes.Array[ctypes.c_char]] = []
        packed = [self._pack(field, where) for field in fields]
        self._fields = (NativeField * len(packed))(*packed)
        self.collection: Final = NativeFieldCollection(len(packed), self._fields)

    def _pack(self, field: PluginField, where: str) -> NativeField:
        raw, length = _bytes_of(field, where)
        buffer = ctypes.create_string_buffer(raw, len(raw) + 1)
        self._buffers.append(buffer)
        return NativeField(field.name.encode(), ctypes.addressof(buffer), int(field.type), length)


def _bytes_of(field: PluginField, where: str) -> tuple[bytes, int]:
    _refuse_halves(field.type, field.name, where)
    if field.buffer is None:
        return b"", 0
    if field.type is PluginFieldType.DIMS:
        raw = field.buffer.tobytes()
        return raw, len(raw) // ctypes.sizeof(NativeDims)
    values = field.read()
    return values.tobytes(), values.size


def _refuse_halves(field_type: PluginFieldType, name: str, where: str) -> None:
    if field_type in _PACKED_IN_HALVES:
        raise PluginError(
            f"field '{name}' of type {field_type.name} cannot be given to a C++ plugin or taken from one",
            where=where,
            fix="use INT8, or UNKNOWN with the packed bytes",
        )


def read_fields(address: int | None, callback: str, where: str) -> PluginFieldCollection:
    """Copies of a library's fields.

    Raises:
        PluginError: There is no collection, or a field has no name, an unknown type or a negative length.
    """
    if not address:
        raise PluginError(
            f"{callback} returned null", where=where, expected="a PluginFieldCollection, empty if need be"
        )
    collection = NativeFieldCollection.from_address(address)
    if collection.count < 0 or (collection.count and not collection.fields):
        raise PluginError(f"{callback} returned a broken collection", where=where, got=f"nbFields={collection.count}")
    fields = [collection.fields[index] for index in range(collection.count)]
    return PluginFieldCollection([_read_field(field, callback, where) for field in fields])


def _read_field(field: NativeField, callback: str, where: str) -> PluginField:
    name = read_text(field.name)
    if name is None or field.length < 0 or field.type not in set(PluginFieldType):
        raise PluginError(
            f"{callback} returned a broken field",
            where=where,
            expected="a name, a known type, a length of 0 or more",
            got=f"name {name!r}, type {field.type}, length {field.length}",
        )
    field_type = PluginFieldType(field.type)
    if not field.data:
        return PluginField(name, None, field_type)
    _refuse_halves(field_type, name, where)
    dtype = element_type(field_type) or np.dtype(np.int8)
    step = ctypes.sizeof(NativeDims) if field_type is PluginFieldType.DIMS else dtype.itemsize
    raw = bytearray(ctypes.string_at(field.data, field.length * step))
    return PluginField(name, np.frombuffer(raw, dtype), field_type)


def read_text(raw: bytes | None) -> str | None:
    """A library's text; None for a null pointer."""
    return None if raw is None else raw.decode(errors="replace")
