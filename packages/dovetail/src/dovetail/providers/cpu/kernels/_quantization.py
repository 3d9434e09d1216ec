"""Turning exact sums or real values back into quantized tensors: shared by the quantized conv and matmul."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from dovetail.providers.cpu._numeric import Array

__all__ = ["quantize", "requantize"]


def requantize(sums: Array, scale: Array, y_scale: Array, y_zero_point: Array) -> Array:
    """Quantize integer sums whose unit is ``scale``; the ratio of scales is rounded once, in float32."""
    ratio = scale.astype(np.float32) / _unwrap(y_scale.astype(np.float32))
    return _saturate(np.rint(sums.astype(np.float32) * ratio), y_zero_point)


def quantize(values: Array, y_scale: Array, y_zero_point: Array) -> Array:
    """Quantize real values to the type of the zero point, rounding halves to even and saturating."""
    scaled = values.astype(np.float32) / _unwrap(y_scale.astype(np.float32))
    if y_zero_point.dtype.kind in "iu":
        scaled = np.rint(scaled)
    return _saturate(scaled, y_zero_point)


def _saturate(scaled: Array, zero_point: Array) -> Array:
    dtype = zero_point.dtype
    zero = zero_point.astype(np.float32)
    limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    shifted = scaled + _unwrap(zero)
    return np.asarray(np.clip(shifted, float(limits.min), float(limits.max))).astype(dtype)


def _unwrap(values: Array) -> Array:
    """A single value without axes, so that it never adds one to the result."""
    return values if values.size > 1 else values.reshape(())
