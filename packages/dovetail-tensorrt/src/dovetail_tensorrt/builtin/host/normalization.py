"""Normalization of each instance or group of channels over its own mean and variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["normalize_groups", "normalize_instances"]

Array = npt.NDArray[Any]


def normalize_groups(values: Array, scale: Array, bias: Array, num_groups: int, epsilon: float) -> Array:
    """Group normalization of (n, c, ...): each group of channels of an instance gets mean 0 and variance 1.

    Cost: three passes, in FP32.
    """
    if values.size == 0:
        return values
    groups = values.astype(np.float32).reshape(len(values), num_groups, -1)
    mean = groups.mean(axis=2, keepdims=True, dtype=np.float64).astype(np.float32)
    centered = groups - mean
    variance = np.mean(centered * centered, axis=2, keepdims=True, dtype=np.float64)
    normal = centered / np.sqrt(variance + epsilon).astype(np.float32)
    channels = (1, -1, *(1,) * (values.ndim - 2))
    result: Array = normal.reshape(values.shape) * scale.reshape(channels) + bias.reshape(channels)
    return result


def normalize_instances(
    values: Array, scale: Array, bias: Array, epsilon: float, negative_slope: float | None
) -> Array:
    """Instance normalization of (n, c, ...), and a leaky ReLU if there is a slope for negative numbers."""
    result = normalize_groups(values, scale, bias, max(values.shape[1], 1), epsilon)
    return result if negative_slope is None else np.where(result < 0, result * np.float32(negative_slope), result)
