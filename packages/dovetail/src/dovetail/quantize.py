"""Changing the element type of a tensor: rounding between floats, and scales for INT8 and FP8.

A quantized number q with scale s stands for q * s. A scale of -1 means the tensor has none.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import BuildError
from dovetail.types import DataType

__all__ = ["convert_type"]

Array = npt.NDArray[Any]
_INT8: Final = np.dtype(np.int8)
_FP8: Final = DataType.FP8.numpy
_FP8_MAX: Final = 448.0


def convert_type(
    array: Array, dtype: np.dtype[Any], *, source_scale: float = -1.0, target_scale: float = -1.0
) -> Array:
    """The same numbers in another type, rounded once, saturated where the type is narrow.

    >>> convert_type(np.array([0.26, -9.0], np.float32), np.dtype(np.int8), target_scale=0.05).tolist()
    [5, -128]
    """
    if array.dtype == dtype and source_scale == target_scale:
        return array
    real = _dequantize(array, source_scale) if array.dtype == _INT8 else array
    if dtype == _INT8:
        return _quantize(real, target_scale)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == _FP8:
            real = np.clip(real, -_FP8_MAX, _FP8_MAX)  # it has no infinity: what is too large would become NaN
        return real.astype(dtype)


def _dequantize(array: Array, scale: float) -> Array:
    _require_scale(scale)
    return array.astype(np.float32) * np.float32(scale)


def _quantize(array: Array, scale: float) -> Array:
    _require_scale(scale)
    steps = np.rint(array.astype(np.float32) / np.float32(scale))
    return np.asarray(np.clip(np.nan_to_num(steps, nan=0.0), -128, 127)).astype(np.int8)


def _require_scale(scale: float) -> None:
    if scale <= 0:
        raise BuildError(
            "an INT8 tensor has no scale",
            fix="set a dynamic range on the tensor, put Q/DQ nodes around it, or pass a calibrator",
        )
