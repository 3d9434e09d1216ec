"""Tensors as bytes and back, and whether two tensors agree within the tolerance of their type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail._coverage import same_specials
from dovetail.formats import pack, pack_nibbles, packed_shape, size_bytes, unpack, unpack_nibbles
from dovetail.types import DataType, TensorFormat, volume

__all__ = ["TOLERANCES", "decode", "difference", "encode", "first_equal_bits", "guard_unit"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

TOLERANCES: Final[dict[DataType, float]] = {
    DataType.FLOAT: 1e-4,
    DataType.HALF: 2e-2,
    DataType.BF16: 5e-2,
    DataType.FP8: 0.13,
    DataType.FP4: 0.51,
    DataType.INT8: 1,
    DataType.UINT8: 1,
    DataType.INT4: 1,
}
"""How far two results may be apart: absolute and relative for floats, steps for small integers, else not at all."""


def encode(array: Array, dtype: DataType, layout: TensorFormat) -> Bytes:
    """The bytes of a tensor in memory."""
    if dtype.bits == 4:
        return pack_nibbles(array)
    return np.ascontiguousarray(pack(array, layout)).reshape(-1).view(np.uint8)


def decode(raw: Bytes, dtype: DataType, layout: TensorFormat, dims: Sequence[int]) -> Array:
    """The tensor of these logical dims that starts at the first byte."""
    if dtype.bits == 4:
        return unpack_nibbles(raw, dtype, volume(dims)).reshape(tuple(dims))
    used = np.ascontiguousarray(raw[: size_bytes(dims, dtype, layout)])
    return unpack(used.view(dtype.numpy).reshape(packed_shape(dims, layout, dtype)), layout, dims)


def difference(got: Array, expected: Array, dtype: DataType) -> str | None:
    """The worst element that is further off than the type allows, in words; None when there is none."""
    if got.shape != expected.shape:
        return f"shape {got.shape} instead of {expected.shape}"
    tolerance = TOLERANCES.get(dtype, 0.0)
    a, b = (array.astype(np.float64) for array in (got, expected))
    with np.errstate(invalid="ignore", over="ignore"):
        allowed = tolerance * np.maximum(1.0, np.abs(b)) if dtype.is_float else np.full(b.shape, tolerance)
        excess = np.abs(a - b) - allowed
    excess = np.where((a == b) | same_specials(a, b), -1.0, excess)
    excess = np.where(np.isnan(excess), np.inf, excess)
    if not excess.size or excess.max() <= 0:
        return None
    index = tuple(int(i) for i in np.unravel_index(int(excess.argmax()), excess.shape))
    return f"element {index} is {a[index]:g} instead of {b[index]:g}"


def first_equal_bits(pairs: Sequence[tuple[Array, Array]]) -> tuple[tuple[int, ...], int] | None:
    """The first element that is bit for bit equal in every pair, and how many such there are."""
    same = np.logical_and.reduce([_bits(a) == _bits(b) for a, b in pairs])
    hits = np.flatnonzero(same)
    if not hits.size:
        return None
    return tuple(int(i) for i in np.unravel_index(int(hits[0]), same.shape)), int(hits.size)


def guard_unit(dtype: DataType, kind: int) -> bytes:
    """64 bytes of plausible numbers to lie around an input; the two kinds differ by more than any tolerance.

    Integers are valid indices, so that reading one too many shows in the result and not as a crash.
    """
    count = 64 * 8 // dtype.bits
    if dtype.is_float and dtype.bits >= 16:
        numbers = (3.0, -5.0)[kind] * (1 + np.arange(count) % 3 / 4)
        return numbers.astype(dtype.numpy).tobytes()
    if dtype in (DataType.INT32, DataType.INT64, DataType.BOOL):
        return np.full(count, kind).astype(dtype.numpy).tobytes()
    return bytes((3, 9, 5)[(i + kind) % 3] for i in range(64))


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
