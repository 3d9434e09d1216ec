"""How element types of weights are stored in the container: by its own name for them, or as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["STORED_TYPES"]

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
