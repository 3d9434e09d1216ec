"""Tensors as raw bytes, the form of the binary extension and of gRPC: arrays are views of what came in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail_serve.errors import RequestError
from dovetail_serve.tensors.datatypes import BYTES, Datatype
from dovetail_serve.tensors.strings import raw_from_strings, strings_from_raw

__all__ = ["array_from_raw", "array_from_strings", "raw_from_array"]

Array = npt.NDArray[Any]


def array_from_raw(raw: memoryview, shape: Sequence[int], count: int, datatype: Datatype, where: str) -> Array:
    """An array over ``raw``, which must hold exactly ``count`` elements, the product of ``shape``.

    It is a copy only where the elements would not be aligned, which kernels need.
    """
    if datatype is BYTES:
        return array_from_strings(strings_from_raw(raw, count, where), shape)
    if len(raw) != count * datatype.least_bytes:
        raise RequestError(
            "the tensor has another number of bytes than its shape needs",
            where=where,
            expected=f"{count * datatype.least_bytes} bytes for {list(shape)} of {datatype.name}",
            got=f"{len(raw)} bytes",
        )
    if not count:
        return np.empty(shape, datatype.dtype)
    if datatype.name == "BOOL":
        _check_booleans(raw, where)
    array = np.frombuffer(raw, datatype.dtype).reshape(shape)
    return array if array.flags.aligned else array.copy()


def _check_booleans(raw: memoryview, where: str) -> None:
    largest = np.frombuffer(raw, np.uint8).max()
    if largest > 1:
        raise RequestError("an element of BOOL is neither 0 nor 1", where=where, got=largest)


def array_from_strings(strings: Sequence[bytes], shape: Sequence[int]) -> Array:
    """An array of objects, as BYTES tensors are."""
    array = np.empty(math.prod(shape), object)
    array[:] = strings
    return array.reshape(shape)


def raw_from_array(array: Array) -> memoryview | bytes:
    r"""The raw bytes of a tensor; a view where the array is contiguous.

    >>> bytes(raw_from_array(np.array([1, 2], np.int16)))
    b'\x01\x00\x02\x00'
    """
    if array.dtype == object:
        return raw_from_strings(array)
    if not array.size:
        return b""
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    # Types of ml_dtypes offer no buffer of their own.
    return (array if array.dtype.kind != "V" else array.view(np.uint16)).data.cast("B")
