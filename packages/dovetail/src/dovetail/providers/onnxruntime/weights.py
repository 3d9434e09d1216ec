"""Weights as ONNX Runtime has them: as bytes where NumPy lacks the type, and of four bits two elements to a byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.formats import FOUR_BIT_TYPES, pack_nibbles, stored_size_bytes
from dovetail.providers.onnxruntime.wire import type_number

__all__ = ["share_weight", "weight_bytes", "weight_size_bytes"]

Array = npt.NDArray[Any]


def weight_size_bytes(array: Array) -> int:
    """Bytes that a weight takes in a plan and in a model."""
    # To ask a type for its name takes as long as all else here, and a plan has hundreds of weights.
    return array.nbytes if array.dtype.isbuiltin == 1 else stored_size_bytes(array.dtype.name, array.shape)


def weight_bytes(array: Array) -> bytes:
    """The contents of a weight as a model has them."""
    return (pack_nibbles(array) if array.dtype.name in FOUR_BIT_TYPES else array).tobytes()


def share_weight(array: Array) -> tuple[Any, Array]:
    """A value over the memory of a weight, and the array to keep while it is used."""
    from onnxruntime import OrtValue

    if array.dtype.isbuiltin == 1:
        return OrtValue.ortvalue_from_numpy(array), array
    raw = _pack(array) if array.dtype.name in FOUR_BIT_TYPES else array.view(f"u{array.dtype.itemsize}")
    return OrtValue.ortvalue_from_numpy_with_onnx_type(raw, type_number(array.dtype.name)), raw


def _pack(array: Array) -> Array:
    """Two elements a byte, at the start of an array of the shape that the value is to have."""
    raw = np.zeros(array.shape, np.uint8)
    packed = pack_nibbles(array)
    raw.reshape(-1)[: packed.size] = packed
    return raw
