"""What the kernel modules share: the decorators around every kernel, and more groups of dtype names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from dovetail.element_types import names_of
from dovetail.providers.cpu._numeric import FLOATS, Array, in_float32, mark_plain

__all__ = [
    "COMPLEX",
    "FLOAT4",
    "FLOAT6",
    "FLOAT8",
    "IEEE_FLOATS",
    "INT2",
    "INT4",
    "SIGNED",
    "SINGLE_FLOATS",
    "STRING",
    "WORDS",
    "float_reference",
    "reference",
    "widen",
]

IEEE_FLOATS: Final = ("float32", "float64", "float16")
"""What schemas allow as floats before they allow bfloat16."""
SINGLE_FLOATS: Final = ("float32", "float16", "bfloat16")
"""Single precision and narrower."""
SIGNED: Final = (*FLOATS, "int8", "int16", "int32", "int64")
WORDS: Final = ("int32", "int64", "uint32", "uint64")
FLOAT8: Final = names_of("float", bits=8)
FLOAT6: Final = names_of("float", bits=6)
FLOAT4: Final = names_of("float", bits=4)
INT4: Final = names_of("int", "uint", bits=4)
INT2: Final = names_of("int", "uint", bits=2)
COMPLEX: Final = names_of("complex")
STRING: Final = ("object",)
"""String tensors are arrays of Python str, whose dtype is named object."""


def reference(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a kernel without floating-point warnings, and return arrays where NumPy would return scalars."""

    @functools.wraps(function)
    def quiet(*arrays: Any, **attributes: Any) -> Any:
        with np.errstate(all="ignore"):
            return _without_scalars(function(*arrays, **attributes))

    return mark_plain(quiet, function)


def float_reference(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like ``reference``, and computed in float32 when the first array is a narrower float."""
    return reference(in_float32(function))


def _without_scalars(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_without_scalars(part) for part in result)
    return np.asarray(result) if isinstance(result, np.generic) else result


def widen(x: Array) -> Array:
    """The array in the dtype that its floats are computed in: float64 stays, every other type becomes float32."""
    return x if x.dtype == np.float64 else x.astype(np.float32)
