"""Element types under two spellings: ``tensor(float)`` of the ONNX schemas, and ``float32`` of NumPy.

Registries name types as NumPy does. What is no plain tensor (sequences, optionals, maps) keeps its ONNX spelling, and
a tensor of strings is an array of objects. Of maps ONNX has two spellings; ``map(string,tensor(float))`` is used.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = ["dtype_from_onnx_type", "onnx_type_from_dtype"]

_SPELLED_OTHERWISE: Final = {
    "float": "float32",
    "double": "float64",
    "string": "object",
    "float4e2m1": "float4_e2m1fn",
    "float6e2m3": "float6_e2m3fn",
    "float6e3m2": "float6_e3m2fn",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
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
