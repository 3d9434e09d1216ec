"""Tensors of ONNX Runtime as NumPy arrays, without a copy."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxruntime_ep_dovetail.abi import Functions

__all__ = ["array_at", "dtype_of", "tensor_array"]

STRING = 8
"""The element type of strings, which are objects of C++ and no memory of ours."""


def dtype_of(element_type: int) -> np.dtype[Any]:
    """The NumPy type of one of ONNX Runtime's, whose numbers are those of ONNX.

    >>> dtype_of(1)
    dtype('float32')
    """
    return ir.DataType(element_type).numpy()


def array_at(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A view of memory; it must not outlive it."""
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.ndarray(shape, dtype, memory)


def tensor_array(api: Functions, value: int) -> Any:
    """A view of the memory of a tensor of numbers; elements of four bits are copied, one to a byte."""
    element, shape, rank, data = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_void_p()
    read_shape = api.GetTensorElementTypeAndShapeDataReference
    read_shape(value, *(ctypes.addressof(place) for place in (element, shape, rank)))
    api.GetTensorMutableData(value, ctypes.addressof(data))
    dims = tuple((ctypes.c_int64 * rank.value).from_address(shape.value or 0)) if rank.value else ()
    kind = ir.DataType(element.value)
    if kind.bitwidth < 8:
        return _unpack(data.value or 0, dims, kind)
    return array_at(data.value or 0, dims, kind.numpy())


def _unpack(address: int, dims: tuple[int, ...], kind: ir.DataType) -> Any:
    count = math.prod(dims)
    packed = array_at(address, ((count + 1) // 2,), np.dtype(np.uint8))
    nibbles = np.stack([packed & 0xF, packed >> 4], -1).reshape(-1)[:count]
    if kind == ir.DataType.INT4:
        nibbles = ((nibbles.astype(np.int8) ^ 8) - 8).astype(kind.numpy())
        return nibbles.reshape(dims)
    return nibbles.astype(np.uint8).view(kind.numpy()).reshape(dims)
