"""Normalisations: by batch, instance, group or layer statistics, by local response, and by norms.

Statistics are computed in float32 at least, and the result is rounded once to the type that the schema demands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dovetail.errors import ModelError
from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import normalize_axes, normalize_axis, require
from dovetail.providers.cpu.kernels._conversion import dtype_of
from dovetail.providers.cpu.kernels._support import IEEE_FLOATS, float_reference, reference, widen
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "normalize_batch",
    "normalize_batch_by_outputs",
    "normalize_by_norm",
    "normalize_group",
    "normalize_group_by_group",
    "normalize_instance",
    "normalize_layer",
    "normalize_local_response",
    "normalize_mean_variance",
    "normalize_rms",
    "standardize",
]

_MVN_EPSILON: Final = 1e-9
"""The op's function body adds it to the standard deviation."""


def standardize(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """Zero mean and unit variance over the axes; also the mean and the inverse of the standard deviation."""
    mean = np.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    inverse = 1 / np.sqrt(np.mean(np.square(centred), axis=axes, keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


def _per_channel(values: Array, rank: int) -> Array:
    """A vector of one value a channel, shaped so that it broadcasts along axis 1."""
    return widen(values).reshape((1, -1) + (1,) * (rank - 2) if rank > 1 else (-1,))


def _spatial_axes(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@reference
def _normalize_batch(x: Array, scale: Array, bias: Array, mean: Array, var: Array, *, epsilon: float) -> Array:
    wide_mean, wide_var = _per_channel(mean, x.ndim), _per_channel(var, x.ndim)
    normal = (widen(x) - wide_mean) / np.sqrt(wide_var + epsilon)
    return (normal * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)).astype(x.dtype)


def _batch_statistics(x: Array) -> tuple[Array, Array]:
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    wide = widen(x)
    return np.mean(wide, axis=axes), np.var(wide, axis=axes)


def _blend(running: Array, current: Array, momentum: float) -> Array:
    return (widen(running) * momentum + current * (1 - momentum)).astype(running.dtype)


@kernel("BatchNormalization", since=9, until=13, types={"T": IEEE_FLOATS})
@reference
def normalize_batch_by_outputs(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Batch normalisation of older opsets: it trains when more than the first output is asked for."""
    if num_outputs == 1:
        return (_normalize_batch(x, scale, bias, mean, var, epsilon=epsilon),)
    current_mean, current_var = _batch_statistics(x)
    y = _normalize_batch(x, scale, bias, current_mean, current_var, epsilon=epsilon)
    blended = _blend(mean, current_mean, momentum), _blend(var, current_var, momentum)
    return (y, *blended, current_mean.astype(mean.dtype), current_var.astype(var.dtype))[:num_outputs]


@kernel("BatchNormalization", since=14, until=14, types={"T": FLOATS, "U": FLOATS})
@kernel("BatchNormalization", since=15, types={"T": FLOATS, "T1": FLOATS, "T2": FLOATS})
@reference
def normalize_batch(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Normalisation a channel with given statistics, or in training mode with those of the batch."""
    if not training_mode:
        return (_normalize_batch(x, scale, bias, mean, var, epsilon=epsilon),)
    current_mean, current_var = _batch_statistics(x)
    y = _normalize_batch(x, scale, bias, current_mean, current_var, epsilon=epsilon)
    return (y, _blend(mean, current_mean, momentum), _blend(var, current_var, momentum))[:num_outputs]


@kernel("InstanceNormalization", since=6, types={"T": FLOATS})
@float_reference
def normalize_instance(x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5) -> Array:
    """Normalisation of each channel of each instance."""
    normal, _, _ = standardize(x, _spatial_axes(x), epsilon)
    return normal * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)


def _normalize_groups(x: Array, num_groups: int, epsilon: float) -> Array:
    """Standardized values of shape (N, groups, channels of a group, elements of a channel)."""
    channels = x.shape[1]
    require(
        num_groups > 0 and channels % num_groups == 0,
        "GroupNormalization",
        "the channels do not divide into the groups",
        expected=f"a multiple of {num_groups}",
        got=channels,
    )
    grouped = x.reshape(x.shape[0], num_groups, channels // num_groups, math.prod(x.shape[2:]))
    return standardize(grouped, (2, 3), epsilon)[0]


@kernel("GroupNormalization", since=18, until=20, types={"T": FLOATS})
@float_reference
def normalize_group_by_group(x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float = 1e-5) -> Array:
    """Normalisation of groups of channels, with one scale and bias a group."""
    normal = _normalize_groups(x, num_groups, epsilon)
    return (normal * scale.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)).reshape(x.shape)


@kernel("GroupNormalization", since=21, types={"T": FLOATS})
@float_reference
def normalize_group(
    x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Array:
    """Normalisation of groups of channels, with one scale and bias a channel.

    Everything is computed in float32 at least, so that the stash type, which may ask for that, changes nothing.
    """
    normal = _normalize_groups(x, num_groups, epsilon).reshape(x.shape)
    return normal * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)


@kernel("LayerNormalization", since=17, types={"T": FLOATS, "U": ("float32", "bfloat16")})
@reference
def normalize_layer(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Normalisation over the axes from ``axis`` on; the statistics come in the stash type."""
    normal, mean, inverse = standardize(widen(x), _axes_from("LayerNormalization", axis, x), epsilon)
    y = normal * widen(scale) if bias is None else normal * widen(scale) + widen(bias)
    stash = dtype_of(stash_type)
    return (y.astype(x.dtype), mean.astype(stash), inverse.astype(stash))[:num_outputs]


@kernel("RMSNormalization", since=23, types={"T": FLOATS, "V": FLOATS})
@reference
def normalize_rms(x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Array:
    """Division by the root of the mean square over the axes from ``axis`` on.

    Everything is computed in float32 at least, so that the stash type, which may ask for that, changes nothing.
    """
    wide = widen(x)
    mean_square = np.mean(np.square(wide), axis=_axes_from("RMSNormalization", axis, x), keepdims=True)
    return np.asarray((wide / np.sqrt(mean_square + epsilon) * widen(scale)).astype(scale.dtype))


def _axes_from(op: str, axis: int, x: Array) -> tuple[int, ...]:
    return tuple(range(normalize_axis(op, axis, x.ndim), x.ndim))


@kernel("LRN", since=1, types={"T": FLOATS})
@float_reference
def normalize_local_response(
    x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Array:
    """Division by a power of the squares summed over ``size`` neighbouring channels."""
    before, after = (size - 1) // 2, size // 2
    squares = np.pad(np.square(x), [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
    windows = np.lib.stride_tricks.sliding_window_view(squares, size, axis=1)
    return np.asarray(x / np.power(bias + alpha / size * windows.sum(axis=-1), beta))


@kernel("LpNormalization", since=1, types={"T": FLOATS})
@float_reference
def normalize_by_norm(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """Division by the norm along an axis; zeros stay zero."""
    if p not in (1, 2):
        raise ModelError(f"LpNormalization of order {p} does not exist", expected="p = 1 or p = 2")
    along = normalize_axis("LpNormalization", axis, x.ndim)
    norm: Any = np.linalg.norm(x, ord=p, axis=along, keepdims=True)
    return np.where(norm == 0, 0, x / norm).astype(x.dtype)


@kernel("MeanVarianceNormalization", since=9, types={"T": FLOATS})
@float_reference
def normalize_mean_variance(x: Array, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    """Zero mean and unit deviation over the axes."""
    chosen = normalize_axes("MeanVarianceNormalization", axes, x.ndim)
    centred = x - np.mean(x, axis=chosen, keepdims=True)
    return np.asarray(centred / (np.std(x, axis=chosen, keepdims=True) + _MVN_EPSILON))
