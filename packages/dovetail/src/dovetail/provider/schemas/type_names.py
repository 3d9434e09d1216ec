"""Element types under two spellings: ``tensor(float)`` of the ONNX schemas, and ``float32`` of NumPy.

Registries name types as NumPy does. What is no plain tensor (sequences, optionals, maps) keeps its ONNX spelling, and
a tensor of strings is an array of objects. Of maps ONNX has two spellings; ``map(string,tensor(float))`` is used.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from dovetail.element_types import ELEMENT_TYPES

__all__ = ["dtype_from_onnx_type", "onnx_type_from_dtype"]

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
