"""Pooling over sliding windows: MaxPool, AveragePool, LpPool, their global forms, and MaxUnpool."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import require, require_room, spread, wrap_indices
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.kernels._windows import Window, make_window, pad_spatial, view_windows
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "average_pool",
    "global_average_pool",
    "global_lp_pool",
    "global_max_pool",
    "lp_pool",
    "max_pool",
    "max_unpool",
]

_BYTES = ("int8", "uint8")


def _lowest(dtype: np.dtype[Any]) -> float:
    return -math.inf if dtype.kind not in "iu" else int(np.iinfo(dtype).min)


def _fold_taps(padded: Array, window: Window, fold: Callable[[Array, Array], Array]) -> Array:
    """Combine the windows tap by tap, which reads the input with plain strides and needs no copy of the windows."""
    windows = view_windows(padded, window)
    first, *others = itertools.product(*map(range, window.kernel))
    place: Any = (..., *first)
    result: Array = windows[place].copy()
    for tap in others:
        place = (..., *tap)
        fold(result, windows[place])
    return result


def _max_into(result: Array, tap: Array) -> Array:
    return np.maximum(result, tap, out=result)


def _add_into(result: Array, tap: Array) -> Array:
    return np.add(result, tap, out=result)


@kernel("MaxPool", since=1, types={"T": FLOATS + _BYTES})
@float_reference
def max_pool(
    x: Array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    num_outputs: int = 1,
) -> Array | tuple[Array, Array]:
    """The largest element of each window, and where it is in the flattened input."""
    window = make_window(
        "MaxPool",
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    padded = pad_spatial(x, window, _lowest(x.dtype))
    if num_outputs == 1:
        return _fold_taps(padded, window, _max_into)
    return _find_maxima(x, padded, window, column_major=bool(storage_order))


def _find_maxima(x: Array, padded: Array, window: Window, *, column_major: bool) -> tuple[Array, Array]:
    rank = len(window.kernel)
    size = math.prod(window.kernel)
    windows = view_windows(padded, window).reshape(*x.shape[:2], *window.outputs, size)
    inside = view_windows(pad_spatial(np.ones(x.shape[2:], dtype=bool), window, 0), window)
    # Padding never wins, not even against an element that is the lowest value itself.
    allowed = np.broadcast_to(inside.reshape(*window.outputs, size), windows.shape)
    best = np.max(windows, axis=-1, keepdims=True)
    tap = np.argmax(((windows == best) | np.isnan(windows)) & allowed, axis=-1)
    taps = np.unravel_index(tap, window.kernel)
    spatial = np.zeros(tap.shape, dtype=np.int64)
    for axis in range(rank - 1, -1, -1) if column_major else range(rank):
        along = [1] * rank
        along[axis] = -1
        start = np.arange(window.outputs[axis]) * window.strides[axis] - window.begins[axis]
        spatial *= x.shape[2 + axis]
        spatial += start.reshape(along) + taps[axis] * window.dilations[axis]
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * rank)
    return best[..., 0], planes * math.prod(x.shape[2:]) + spatial


@kernel("AveragePool", since=1, types={"T": FLOATS})
@float_reference
def average_pool(
    x: Array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """The mean of each window; padding counts as zeros or not at all, and what lies past it never counts."""
    window = make_window(
        "AveragePool",
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    total = _fold_taps(pad_spatial(x, window, 0), window, _add_into)
    total /= _count_elements(x, window, count_pads=bool(count_include_pad))
    return total


def _count_elements(x: Array, window: Window, *, count_pads: bool) -> Array:
    ones = np.ones(x.shape[2:], dtype=x.dtype)
    if count_pads:
        ones = pad_spatial(ones, window, 1, overhang=False)
        padded = np.pad(ones, [(0, extra) for extra in window.overhangs])
    else:
        padded = pad_spatial(ones, window, 0)
    # A window that covers padding alone sums to zero, and zero is its mean.
    return np.maximum(_fold_taps(padded, window, _add_into), 1)


@kernel("LpPool", since=2, types={"T": FLOATS})
@float_reference
def lp_pool(
    x: Array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """The Lp norm of each window."""
    window = make_window(
        "LpPool",
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    powers = pad_spatial(np.abs(x) ** p, window, 0)
    return np.asarray(_fold_taps(powers, window, _add_into) ** (1.0 / p), dtype=x.dtype)


def _spatial_axes(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@kernel("GlobalAveragePool", since=1, types={"T": FLOATS})
@float_reference
def global_average_pool(x: Array) -> Array:
    """The mean of each channel."""
    require(0 not in x.shape[2:], "GlobalAveragePool", "a spatial axis is empty", got=x.shape)
    return np.asarray(np.mean(x, axis=_spatial_axes(x), keepdims=True))


@kernel("GlobalMaxPool", since=1, types={"T": FLOATS})
@float_reference
def global_max_pool(x: Array) -> Array:
    """The largest element of each channel."""
    require(0 not in x.shape[2:], "GlobalMaxPool", "a spatial axis is empty", got=x.shape)
    return np.asarray(np.max(x, axis=_spatial_axes(x), keepdims=True))


@kernel("GlobalLpPool", since=2, types={"T": FLOATS})
@float_reference
def global_lp_pool(x: Array, *, p: int = 2) -> Array:
    """The Lp norm of each channel."""
    total = np.sum(np.abs(x) ** p, axis=_spatial_axes(x), keepdims=True)
    return np.asarray(total ** (1.0 / p), dtype=x.dtype)


@kernel("MaxUnpool", since=9, types={"T1": FLOATS})
def max_unpool(
    x: Array,
    indices: Array,
    output_shape: Array | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Put each element back where MaxPool found it, zeros elsewhere."""
    op, rank = "MaxUnpool", x.ndim - 2
    require(indices.shape == x.shape, op, "indices and input differ in shape", expected=x.shape, got=indices.shape)
    steps = spread(strides, 1, rank, op=op, name="strides")
    both = spread(pads, 0, 2 * rank, op=op, name="pads")
    taps = spread(kernel_shape, 1, rank, op=op, name="kernel_shape")
    spatial = tuple(
        (n - 1) * s - both[i] - both[rank + i] + k
        for i, (n, s, k) in enumerate(zip(x.shape[2:], steps, taps, strict=True))
    )
    source = (*x.shape[:2], *spatial)
    require(min(source) >= 0, op, "'pads' must leave an output", got=both)
    shape = source if output_shape is None else tuple(int(n) for n in output_shape)
    require(len(shape) == x.ndim, op, "'output_shape' has the wrong length", expected=x.ndim, got=len(shape))
    require(min(shape) >= 0, op, "'output_shape' must not be negative", got=shape)
    require_room(op, shape, x.dtype)
    y = np.zeros(shape, dtype=x.dtype)
    positions = wrap_indices(op, indices, math.prod(source)).reshape(-1)
    if shape == source:
        y.reshape(-1)[positions] = x.reshape(-1)
        return y
    # The indices are positions in the tensor that was pooled; a larger output keeps their coordinates.
    coordinates = np.unravel_index(positions, source)
    require(all(a <= b for a, b in zip(source, shape, strict=True)), op, "'output_shape' is too small", got=shape)
    y[coordinates] = x.reshape(-1)
    return y
