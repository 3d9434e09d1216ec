"""Names of dtypes by group, and computing narrow floats in float32, for the NumPy kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from dovetail.element_types import ELEMENT_TYPES

__all__ = [
    "ALL",
    "BOOL",
    "FLOATS",
    "INTEGERS",
    "NARROW_FLOATS",
    "NATIVE",
    "NUMBERS",
    "Array",
    "in_float32",
    "mark_plain",
    "plain_kernel",
]

Array = npt.NDArray[Any]

NARROW_FLOATS: Final = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
FLOATS: Final = ("float32", "float64", "float16", "bfloat16")
INTEGERS: Final = tuple(
    each.name for kind in ("int", "uint") for each in ELEMENT_TYPES if each.kind == kind and not each.is_packed
)
NUMBERS: Final = FLOATS + INTEGERS
BOOL: Final = ("bool",)
ALL: Final = NUMBERS + BOOL
NATIVE: Final = frozenset(("float32", "float64", *INTEGERS, *BOOL))
"""The types that NumPy computes in as they are; kernels write these straight into their output."""

_NARROW: Final = frozenset(
    np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
)


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a kernel in float32 when its first array is a narrower float, and round the result once at the end.

    This is what "right" means for narrow types: the tuner compares tactics with this result.
    """

    @functools.wraps(function)
    def widened(*arrays: Any, **attributes: Any) -> Any:
        narrow = arrays[0].dtype
        if narrow not in _NARROW:
            return function(*arrays, **attributes)
        wide = [a.astype(np.float32) if isinstance(a, np.ndarray) and a.dtype == narrow else a for a in arrays]
        return _narrow(function(*wide, **attributes), narrow)

    return mark_plain(widened, function)


def mark_plain(wrapper: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Note that a wrapper only widens narrow floats or silences warnings: for other inputs the function serves."""
    wrapper.plain = getattr(function, "plain", function)  # type: ignore[attr-defined]
    return wrapper


def plain_kernel(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function inside such wrappers, if the kernel has any."""
    plain: Callable[..., Any] | None = getattr(function, "plain", None)
    return plain


def _narrow(result: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(result, tuple):
        return tuple(_narrow(part, dtype) for part in result)
    is_wide_float = isinstance(result, np.ndarray | np.generic) and result.dtype == np.float32
    return np.asarray(result).astype(dtype) if is_wide_float else result
