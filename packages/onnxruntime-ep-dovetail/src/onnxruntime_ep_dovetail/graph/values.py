"""Tensors of ONNX Runtime as NumPy arrays, without a copy."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from dovetail.host_arrays import array_at
from onnxruntime_ep_dovetail.abi import Functions

__all__ = [
    "is_dense",
    "is_number",
    "kind_of",
    "number_of",
    "number_of_dtype",
    "read_tensor",
    "tensor_array",
]

_OTHERWISE: Final = {24: ir.DataType.UINT2, 25: ir.DataType.INT2, 26: ir.DataType.FLOAT8E8M0}
"""ONNX Runtime numbers element types as ONNX does, up to these."""
_KNOWN: Final = frozenset(map(int, ir.DataType))
_NUMBERS: Final = {kind: number for number, kind in _OTHERWISE.items()}


def kind_of(element_type: int) -> ir.DataType:
    """The element type that ONNX Runtime means by a number; one that is newer than this is undefined.

    >>> kind_of(1).name, kind_of(24).name, kind_of(99).name
    ('FLOAT', 'UINT2', 'UNDEFINED')
    """
    if element_type in _OTHERWISE:
        return _OTHERWISE[element_type]
    return ir.DataType(element_type) if element_type in _KNOWN else ir.DataType.UNDEFINED


def is_dense(value: ir.Value) -> bool:
    """Whether a value is a tensor of numbers with whole bytes, so that it is memory and nothing else.

    >>> [is_dense(ir.Value(type=ir.TensorType(kind))) for kind in (ir.DataType.BOOL, ir.DataType.STRING)]
    [True, False]
    """
    if not isinstance(value.type, ir.TensorType):
        return False
    return is_number(value.type.dtype) and value.type.dtype.bitwidth >= 8


def is_number(kind: ir.DataType | None) -> bool:
    """Whether elements of a type are numbers, which have a size."""
    return kind not in (None, ir.DataType.STRING, ir.DataType.UNDEFINED)


def number_of(kind: ir.DataType) -> int:
    """ONNX Runtime's number for an element type.

    >>> number_of(ir.DataType.FLOAT), number_of(ir.DataType.FLOAT8E8M0)
    (1, 26)
    """
    return _NUMBERS.get(kind, int(kind))


def number_of_dtype(dtype: np.dtype[Any]) -> int:
    """ONNX Runtime's number for an element type of NumPy.

    >>> number_of_dtype(np.dtype("int64"))
    7
    """
    return number_of(ir.DataType.from_numpy(dtype))


def tensor_array(api: Functions, value: int) -> Any:
    """A view of the memory of a tensor of numbers; smaller elements than a byte are copied, one to a byte."""
    element, dims = _read_type(api, value)
    data = ctypes.c_void_p()
    api.GetTensorMutableData(value, ctypes.addressof(data))
    kind = kind_of(element)
    if kind.bitwidth < 8:
        return _unpack(data.value or 0, dims, kind)
    return array_at(data.value or 0, dims, kind.numpy())


def _read_type(api: Functions, value: int) -> tuple[int, tuple[int, ...]]:
    element, shape, rank = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
    read = api.GetTensorElementTypeAndShapeDataReference
    read(value, *(ctypes.addressof(place) for place in (element, shape, rank)))
    dims = tuple((ctypes.c_int64 * rank.value).from_address(shape.value or 0)) if rank.value else ()
    return element.value, dims


def _unpack(address: int, dims: tuple[int, ...], kind: ir.DataType) -> Any:
    count, bits = math.prod(dims), kind.bitwidth
    packed = array_at(address, (-(-count * bits // 8),), np.dtype(np.uint8))
    fields = np.stack([packed >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], -1).reshape(-1)[:count]
    if kind in (ir.DataType.INT4, ir.DataType.INT2):
        sign = 1 << bits - 1
        return ((fields.astype(np.int8) ^ sign) - sign).astype(kind.numpy()).reshape(dims)
    return fields.view(kind.numpy()).reshape(dims)


def read_tensor(api: Functions, value: int) -> ir.TensorProtocol:
    """A copy of an ``OrtValue`` that is a tensor, texts included."""
    element, dims = _read_type(api, value)
    if element == int(ir.DataType.STRING):
        return ir.StringTensor(_read_texts(api, value, math.prod(dims)), shape=ir.Shape(dims))
    array = tensor_array(api, value).copy()
    return ir.Tensor(array, dtype=ir.DataType.from_numpy(array.dtype), shape=ir.Shape(array.shape))


def _read_texts(api: Functions, value: int, count: int) -> list[bytes]:
    size = ctypes.c_size_t()
    api.GetStringTensorDataLength(value, ctypes.addressof(size))
    buffer, offsets = ctypes.create_string_buffer(size.value + 1), (ctypes.c_size_t * count)()
    if count:
        api.GetStringTensorContent(value, ctypes.addressof(buffer), size.value, ctypes.addressof(offsets), count)
    ends = [*offsets[1:], size.value]
    return [buffer.raw[start:end] for start, end in zip(offsets, ends, strict=False)]
