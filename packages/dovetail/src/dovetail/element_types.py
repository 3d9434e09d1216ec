"""The one table of element types: what each is called by NumPy, ONNX, the plugin contract and the plan container.

Everything else that knows types derives from it. A new type is a row here, a member of ``DataType`` where the plugin
contract has it, and the kernels that compute with it.

ONNX schemas write ``tensor(float)`` where NumPy says ``float32``. What is no plain tensor (sequences, optionals, maps)
keeps its ONNX spelling, and a tensor of strings is an array of objects. Of maps ONNX has two spellings;
``map(string,tensor(float))`` is used.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

import ml_dtypes  # noqa: F401 - gives NumPy the names of narrow types
import numpy as np

__all__ = ["BY_NAME", "ELEMENT_TYPES", "ElementType", "dtype_from_onnx_type", "names_of", "onnx_type_from_dtype"]


class ElementType(NamedTuple):
    """One element type."""

    name: str
    """NumPy's name; ml_dtypes has those that NumPy lacks."""
    kind: str
    """``float``, ``int``, ``uint``, ``bool``, ``complex`` or ``scale``: a power of two that scales others."""
    bits: int
    onnx_number: int
    """The number in ``TensorProto.DataType``."""
    onnx_name: str
    """The name in a schema, as in ``tensor(float)``."""
    contract: str = ""
    """The member of ``DataType``; empty where the plugin contract lacks the type."""
    container: str = ""
    """The name in a safetensors file; types without one are stored as bytes."""
    label: str = ""
    """How layer information spells it; empty for the name in capitals."""
    tolerance: float = 0.0
    """The share of the largest magnitude by which two right results may differ."""
    largest: float | None = None
    """The largest finite number, where a computation rounds to it."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type, in which an element of less than eight bits takes a byte."""
        return np.dtype(self.name)

    @property
    def is_packed(self) -> bool:
        """Whether several elements share a byte in memory outside of arrays."""
        return self.bits < 8


ELEMENT_TYPES: Final = (
    ElementType("float32", "float", 32, 1, "float", "FLOAT", "F32", "FP32", 1e-4),
    ElementType("uint8", "uint", 8, 2, "uint8", "UINT8", "U8"),
    ElementType("int8", "int", 8, 3, "int8", "INT8", "I8"),
    ElementType("uint16", "uint", 16, 4, "uint16", "", "U16"),
    ElementType("int16", "int", 16, 5, "int16", "", "I16"),
    ElementType("int32", "int", 32, 6, "int32", "INT32", "I32"),
    ElementType("int64", "int", 64, 7, "int64", "INT64", "I64"),
    ElementType("bool", "bool", 8, 9, "bool", "BOOL", "BOOL"),
    ElementType("float16", "float", 16, 10, "float16", "HALF", "F16", "FP16", 2e-2),
    ElementType("float64", "float", 64, 11, "double", "", "F64", "", 1e-6),
    ElementType("uint32", "uint", 32, 12, "uint32", "", "U32"),
    ElementType("uint64", "uint", 64, 13, "uint64", "", "U64"),
    ElementType("complex64", "complex", 64, 14, "complex64", tolerance=1e-4),
    ElementType("complex128", "complex", 128, 15, "complex128", tolerance=1e-6),
    ElementType("bfloat16", "float", 16, 16, "bfloat16", "BF16", "BF16", "BF16", 5e-2),
    ElementType("float8_e4m3fn", "float", 8, 17, "float8e4m3fn", "FP8", "F8_E4M3", "FP8", 0.25, 448.0),
    ElementType("float8_e4m3fnuz", "float", 8, 18, "float8e4m3fnuz", tolerance=0.25, largest=240.0),
    ElementType("float8_e5m2", "float", 8, 19, "float8e5m2", "", "F8_E5M2", "", 0.25, 57344.0),
    ElementType("float8_e5m2fnuz", "float", 8, 20, "float8e5m2fnuz", tolerance=0.25, largest=57344.0),
    ElementType("uint4", "uint", 4, 21, "uint4"),
    ElementType("int4", "int", 4, 22, "int4", "INT4"),
    ElementType("float4_e2m1fn", "float", 4, 23, "float4e2m1", "FP4", "", "FP4", 0.25),
    ElementType("float8_e8m0fnu", "scale", 8, 24, "float8e8m0", "E8M0", tolerance=0.25),
    ElementType("uint2", "uint", 2, 25, "uint2"),
    ElementType("int2", "int", 2, 26, "int2"),
    ElementType("float6_e2m3fn", "float", 6, 27, "float6e2m3", tolerance=0.25),
    ElementType("float6_e3m2fn", "float", 6, 28, "float6e3m2", tolerance=0.25),
)
"""All types of ONNX that are numbers, in the order of its numbers."""

BY_NAME: Final = {each.name: each for each in ELEMENT_TYPES}


def names_of(*kinds: str, bits: int | None = None) -> tuple[str, ...]:
    """The names of the types of some kinds, and of some size where one is given.

    >>> names_of("float", bits=16)
    ('float16', 'bfloat16')
    """
    return tuple(each.name for each in ELEMENT_TYPES if each.kind in kinds and bits in (None, each.bits))


_SPELLED_OTHERWISE: Final = {
    "string": "object",
    **{each.onnx_name: each.name for each in ELEMENT_TYPES if each.onnx_name != each.name},
}
_BARE_MAP: Final = re.compile(r"map\((\w+), *(\w+)\)")
_BACK: Final = {dtype: onnx for onnx, dtype in _SPELLED_OTHERWISE.items()}


@lru_cache(maxsize=1024)
def dtype_from_onnx_type(onnx_type: str) -> str:
    """The NumPy name of a tensor type; any other type in its one spelling.

    >>> [dtype_from_onnx_type(name) for name in ("tensor(float)", "tensor(string)", "seq(tensor(float))")]
    ['float32', 'object', 'seq(tensor(float))']
    >>> dtype_from_onnx_type("seq(map(string, float))")
    'seq(map(string,tensor(float)))'
    """
    if not onnx_type.startswith("tensor("):
        return _BARE_MAP.sub(r"map(\1,tensor(\2))", onnx_type)
    element = onnx_type.removeprefix("tensor(").removesuffix(")")
    return _SPELLED_OTHERWISE.get(element, element)


def onnx_type_from_dtype(dtype: str) -> str:
    """The ONNX spelling of a type named as NumPy names it.

    >>> onnx_type_from_dtype("float32"), onnx_type_from_dtype("seq(tensor(float))")
    ('tensor(float)', 'seq(tensor(float))')
    """
    return dtype if "(" in dtype else f"tensor({_BACK.get(dtype, dtype)})"
