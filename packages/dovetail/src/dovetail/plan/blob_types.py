"""How element types of weights are stored in the container: by its own name for them, or as bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import ml_dtypes  # noqa: F401 - registers bfloat16, fp8 and the four-bit types with NumPy by name
import numpy as np

__all__ = ["FOUR_BIT_TYPES", "STORED_TYPES", "stored_size_bytes"]

STORED_TYPES: Final[Mapping[str, str]] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""NumPy name -> the container's name; types it lacks are stored as bytes (U8)."""

FOUR_BIT_TYPES: Final = frozenset(("int4", "uint4", "float4_e2m1fn"))
"""Types stored two elements to a byte."""


def stored_size_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes that an array takes in the container.

    >>> stored_size_bytes("int4", (3,)), stored_size_bytes("float32", (2, 2))
    (2, 16)
    """
    count = math.prod(shape)
    return (count + 1) // 2 if dtype in FOUR_BIT_TYPES else count * np.dtype(dtype).itemsize
