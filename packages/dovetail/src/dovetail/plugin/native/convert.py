"""Descriptions of tensors and fields, from the contract's objects to a library's memory and back."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from dovetail.errors import PluginError
from dovetail.formats import pack_nibbles, unpack_nibbles
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType, element_type
from dovetail.plugin.native.call_memory import CallMemory, is_overwritten
from dovetail.plugin.native.layout import (
    MAX_DIMS,
    NativeDims,
    NativeDims32,
    NativeDynamicDesc,
    NativeField,
    NativeFieldCollection,
    NativeTensorDesc,
)
from dovetail.plugin.required import broken_rule
from dovetail.types import Dims, DynamicPluginTensorDesc, PluginTensorDesc

__all__ = [
    "PackedFields",
    "pack_addresses",
    "pack_descs",
    "pack_dynamic_descs",
    "pack_proposal",
    "read_fields",
    "read_text",
]

_PEEKED_BYTES: Final = 64
"""Bytes of a field that are compared with overwritten memory."""
_FOUR_BITS: Final = frozenset((PluginFieldType.INT4, PluginFieldType.FP4))
_MAX_LENGTH: Final = 2**31 - 1
_MAX_FIELDS: Final = 1 << 16
"""Limit of the fields of a plugin: a larger number is a mistake, and reading them would leave their memory."""
"""The length of a field has 32 bits with a sign."""
_DIMS64: Final = np.dtype(NativeDims)
_DIMS32: Final = np.dtype(NativeDims32)


def pack_descs(descs: Sequence[PluginTensorDesc]) -> ctypes.Array[NativeTensorDesc]:
    """Descriptors for ``onShapeChange`` and ``enqueue``."""
    return (NativeTensorDesc * len(descs))(*map(_pack_desc, descs))


def pack_dynamic_descs(descs: Sequence[DynamicPluginTensorDesc]) -> ctypes.Array[NativeDynamicDesc]:
    """Descriptors for the callbacks of a build."""
    return (NativeDynamicDesc * len(descs))(
        *(NativeDynamicDesc(_pack_desc(d.desc), _pack_dims(d.min), _pack_dims(d.max), _pack_dims(d.opt)) for d in descs)
    )


def pack_proposal(pos: int, in_out: Sequence[DynamicPluginTensorDesc]) -> ctypes.Array[NativeDynamicDesc]:
    """Descriptors up to a position; those above it have no type and no format, and are not read here."""
    descs = (NativeDynamicDesc * len(in_out))(*pack_dynamic_descs(in_out[: pos + 1]))
    for open_desc in descs[pos + 1 :]:
        open_desc.desc.type = open_desc.desc.format = -1
    return descs


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
    """Fields in memory that a library can read until `end` is called.

    A NUL follows text and is not part of its length. Two elements of four bits share a byte. A field without data, and
    an empty one that is not text, has a null address and length 0: plans store both as no bytes.

    Args:
        fields: The fields.
        dims_bytes: Size of a shape in the headers of the library, in bytes.
        memory: Memory of the call.
    """

    def __init__(self, fields: Iterable[PluginField], dims_bytes: int, memory: CallMemory) -> None:
        self._memory = memory
        packed = [self._pack(field, dims_bytes) for field in fields]
        array = (NativeField * len(packed))(*packed)
        address = memory.copy(bytes(array), "the array of fields")
        collection = NativeFieldCollection(len(packed), ctypes.cast(address, ctypes.POINTER(NativeField)))
        self.address: Final = memory.copy(bytes(collection), "the PluginFieldCollection")

    def _pack(self, field: PluginField, dims_bytes: int) -> NativeField:
        packed = NativeField(None, None, int(field.type), 0)
        name = self._memory.copy(field.name.encode(), f"the name of field '{field.name}'")
        ctypes.c_void_p.from_buffer(packed, NativeField.name.offset).value = name
        if field.buffer is None:
            return packed
        raw, length = _bytes_of(field, dims_bytes)
        if not length and field.type is not PluginFieldType.CHAR:  # empty text stays a NUL that C++ can read
            return packed
        if length > _MAX_LENGTH:
            raise PluginError(
                f"field '{field.name}' is too long for C++", expected=f"at most {_MAX_LENGTH}", got=length
            )
        packed.data, packed.length = self._memory.copy(raw, f"the data of field '{field.name}'"), length
        return packed


def _bytes_of(field: PluginField, dims_bytes: int) -> tuple[bytes, int]:
    if field.type is PluginFieldType.DIMS:
        return _bytes_of_shapes(field, dims_bytes)
    values = field.read()
    return (pack_nibbles(values) if field.type in _FOUR_BITS else values).tobytes(), values.size


def _bytes_of_shapes(field: PluginField, dims_bytes: int) -> tuple[bytes, int]:
    raw = b"" if field.buffer is None else field.buffer.tobytes()
    if len(raw) % _DIMS64.itemsize:
        raise PluginError(f"field '{field.name}' holds no whole shapes", expected=f"{_DIMS64.itemsize} bytes a shape")
    shapes = np.frombuffer(raw, _DIMS64)
    converted = shapes.astype(_dims_type(dims_bytes))
    if not np.array_equal(converted["sizes"], shapes["sizes"]):
        raise PluginError(f"field '{field.name}' has a size that the headers of version 8 cannot say, with 32 bits")
    return converted.tobytes(), len(shapes)


def _dims_type(dims_bytes: int) -> np.dtype[Any]:
    return _DIMS64 if dims_bytes == _DIMS64.itemsize else _DIMS32


def read_fields(address: int | None, dims_bytes: int, callback: str, where: str) -> PluginFieldCollection:
    """Copies of a library's fields.

    Raises:
        PluginError: There is no collection, or a field has no name, an unknown type or a negative length.
    """
    if not address:
        raise PluginError(
            f"{callback} returned null", where=where, expected="a PluginFieldCollection, empty if need be"
        )
    collection = NativeFieldCollection.from_address(address)
    if not 0 <= collection.count <= _MAX_FIELDS or (collection.count and not collection.fields):
        raise PluginError(
            f"{callback} returned a broken collection",
            where=where,
            expected=f"0 to {_MAX_FIELDS} fields, and their address",
            got=f"nbFields={collection.count}",
        )
    fields = [collection.fields[index] for index in range(collection.count)]
    return PluginFieldCollection([_read_field(field, dims_bytes, callback, where) for field in fields])


def _read_field(field: NativeField, dims_bytes: int, callback: str, where: str) -> PluginField:
    name = read_text(field.name)
    if name is None or field.length < 0 or field.type not in set(PluginFieldType):
        raise PluginError(
            f"{callback} returned a broken field",
            where=where,
            expected="a name, a known type, a length of 0 or more",
            got=f"name {name!r}, type {field.type}, length {field.length}",
        )
    field_type = PluginFieldType(field.type)
    if is_overwritten(field.name) or (field.data and is_overwritten(_peek(field, field_type))):
        raise broken_rule(
            "R39", f"{callback} returned a field over the memory of createPlugin, which is freed", where=where
        )
    data = _read_data(field, field_type, dims_bytes) if field.data else None
    return PluginField(name, data, field_type)


def _peek(field: NativeField, field_type: PluginFieldType) -> bytes:
    """Return the first bytes of the values of a field."""
    dtype = element_type(field_type) or np.dtype(np.int8)
    bits = 4 if field_type in _FOUR_BITS else 8 * dtype.itemsize
    return ctypes.string_at(field.data, min(field.length * bits // 8, _PEEKED_BYTES))


def _read_data(field: NativeField, field_type: PluginFieldType, dims_bytes: int) -> np.ndarray:
    """A copy of a field's values, in the layout that fields have in Python."""
    length = int(field.length)
    if field_type is PluginFieldType.DIMS:
        shapes = np.frombuffer(_copy_bytes(field, length * dims_bytes), _dims_type(dims_bytes))
        return np.frombuffer(bytearray(shapes.astype(_DIMS64).tobytes()), np.int8)
    dtype = element_type(field_type) or np.dtype(np.int8)
    if field_type in _FOUR_BITS:
        packed = np.frombuffer(_copy_bytes(field, (length + 1) // 2), np.uint8)
        return unpack_nibbles(packed, dtype, length)
    return np.frombuffer(_copy_bytes(field, length * dtype.itemsize), dtype)


def _copy_bytes(field: NativeField, size_bytes: int) -> bytearray:
    """A copy of memory of the library's, which ``ctypes.string_at`` makes only of less than 2 GiB."""
    return bytearray((ctypes.c_char * size_bytes).from_address(field.data))


def read_text(raw: bytes | None) -> str | None:
    """A library's text; None for a null pointer."""
    return None if raw is None else raw.decode(errors="replace")
