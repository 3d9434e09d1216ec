"""Element types: as NumPy names them, as Triton does, and the type that arithmetic is done in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = [
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "SIGNED",
    "TYPES",
    "WIDE",
    "compute_type",
    "is_float",
    "is_signed",
    "size_of",
    "triton_name",
]

_TRITON: Final = {
    "bool": ("i1", "int1", 1),
    "int8": ("i8", "int8", 1),
    "int16": ("i16", "int16", 2),
    "int32": ("i32", "int32", 4),
    "int64": ("i64", "int64", 8),
    "uint8": ("u8", "uint8", 1),
    "uint16": ("u16", "uint16", 2),
    "uint32": ("u32", "uint32", 4),
    "uint64": ("u64", "uint64", 8),
    "float16": ("fp16", "float16", 2),
    "bfloat16": ("bf16", "bfloat16", 2),
    "float32": ("fp32", "float32", 4),
    "float64": ("fp64", "float64", 8),
}
FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SIGNED: Final = (*FLOATS, "int8", "int16", "int32", "int64")
WIDE: Final = (*FLOATS, "int32", "int64", "uint32", "uint64")
"""What sums are made of."""
NUMBERS: Final = (*FLOATS, *INTEGERS)
TYPES: Final = (*NUMBERS, "bool")
"""Everything that kernels read and write."""


def triton_name(dtype: str, *, short: bool = False) -> str:
    """How Triton calls a type: in signatures (short), or as a member of its language."""
    names = _TRITON[dtype]
    return names[0] if short else names[1]


def size_of(dtype: str) -> int:
    """Bytes of an element."""
    return _TRITON[dtype][2]


def compute_type(dtype: str) -> str:
    """What arithmetic on a type is done in: half precision is only how numbers are stored."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def is_float(dtype: str) -> bool:
    """Whether it is a floating-point type."""
    return dtype in FLOATS


def is_signed(dtypes: Iterable[str]) -> bool:
    """Whether there is a sign in any of the types."""
    return any(not dtype.startswith(("u", "b")) or dtype == "bfloat16" for dtype in dtypes)
