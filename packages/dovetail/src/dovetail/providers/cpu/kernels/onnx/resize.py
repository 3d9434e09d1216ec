"""Resize in all its modes, and the older Upsample.

Every mode but ``nearest`` is a weighted sum along one axis at a time: an axis becomes a table of elements and weights
for each output position. ``nearest`` only moves elements, so it takes every type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, normalize_axes, require, require_room
from dovetail.providers.cpu.kernels._interpolation import cubic_weights
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["resize", "resize_10", "resize_11", "upsample", "upsample_7"]


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """How one axis is resized."""

    index: int
    size: int
    resized: int
    scale: float
    start: float = 0.0
    """The region of interest, as a fraction of the axis."""
    end: float = 1.0

    @property
    def exact(self) -> float:
        """The resized length before it was rounded to a whole number."""
        return self.scale * self.size


@dataclass(frozen=True, kw_only=True)
class _ResizeRule:
    """The attributes that say how positions and weights are computed."""

    mode: str
    coordinates: str
    nearest: str
    cubic_a: float
    antialias: bool
    exclude_outside: bool


@kernel("Upsample", since=7, until=8)
def upsample_7(x: Array, *, mode: str = "nearest", scales: Sequence[float]) -> Array:
    """Upsample with the scales as an attribute."""
    return upsample(x, np.asarray(scales, dtype=np.float32), mode=mode)


@kernel("Upsample", since=9, until=9)
def upsample(x: Array, scales: Array, *, mode: str = "nearest") -> Array:
    """Enlarge by these factors, from the left edge of each element."""
    y: Array = _resize_left_aligned(x, scales, op="Upsample", mode=mode)
    return y


@kernel("Resize", since=10, until=10)
def resize_10(x: Array, scales: Array, *, mode: str = "nearest") -> Array:
    """Resize as opset 10 has it: from the left edge, rounding down."""
    y: Array = _resize_left_aligned(x, scales, op="Resize", mode=mode)
    return y


@float_reference
def _resize_left_aligned(x: Array, scales: Array, *, op: str, mode: str) -> Array:
    rule = _ResizeRule(
        mode="linear" if mode == "bilinear" else mode,
        coordinates="asymmetric",
        nearest="floor",
        cubic_a=-0.75,
        antialias=False,
        exclude_outside=False,
    )
    return _resize(x, _plan_scales(op, x, scales, tuple(range(x.ndim)), None), rule, 0.0, op)


@kernel("Resize", since=11, until=17)
def resize_11(
    x: Array,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    """Resize before antialiasing, named axes and kept aspect ratios."""
    y: Array = resize(
        x,
        roi,
        scales,
        sizes,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        extrapolation_value=extrapolation_value,
        mode=mode,
        nearest_mode=nearest_mode,
    )
    return y


@kernel("Resize", since=18)
@float_reference
def resize(
    x: Array,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    """Resample along the axes to new sizes, given as factors or as lengths."""
    op = "Resize"
    chosen = normalize_axes(op, axes, x.ndim)
    regions = roi if coordinate_transformation_mode == "tf_crop_and_resize" else None
    if sizes is not None and sizes.size:
        plans = _plan_sizes(op, x, sizes, chosen, regions, keep_aspect_ratio_policy)
    elif scales is not None:
        plans = _plan_scales(op, x, scales, chosen, regions)
    else:
        fail(op, "neither 'scales' nor 'sizes' is given")
    rule = _ResizeRule(
        mode=mode,
        coordinates=coordinate_transformation_mode,
        nearest=nearest_mode,
        cubic_a=cubic_coeff_a,
        antialias=bool(antialias),
        exclude_outside=bool(exclude_outside),
    )
    return _resize(x, plans, rule, extrapolation_value, op)


def _regions(op: str, roi: Array | None, count: int) -> list[tuple[float, float]]:
    if roi is None or roi.size == 0:
        return [(0.0, 1.0)] * count
    require(roi.size == 2 * count, op, "'roi' has the wrong length", expected=2 * count, got=roi.size)
    bounds = roi.astype(np.float64).reshape(2, count)
    return [(float(start), float(end)) for start, end in bounds.T]


def _plan_scales(op: str, x: Array, scales: Array, axes: Sequence[int], roi: Array | None) -> list[_Axis]:
    require(scales.size == len(axes), op, "'scales' has the wrong length", expected=len(axes), got=scales.size)
    factors = scales.reshape(-1)
    require(bool((factors > 0).all() and np.isfinite(factors).all()), op, "'scales' must be positive", got=factors)
    regions = _regions(op, roi, len(axes))
    return [
        # The product is rounded to float32 before it is cut, as shape inference does it.
        _Axis(
            index=axis,
            size=x.shape[axis],
            resized=int(np.floor(np.float64(np.float32(x.shape[axis]) * np.float32(factor)))),
            scale=float(factor),
            start=region[0],
            end=region[1],
        )
        for axis, factor, region in zip(axes, factors, regions, strict=True)
    ]


def _plan_sizes(op: str, x: Array, sizes: Array, axes: Sequence[int], roi: Array | None, policy: str) -> list[_Axis]:
    require(sizes.size == len(axes), op, "'sizes' has the wrong length", expected=len(axes), got=sizes.size)
    lengths = [int(n) for n in sizes.reshape(-1)]
    require(min(lengths, default=0) >= 0, op, "'sizes' must not be negative", got=lengths)
    factors = [n / max(x.shape[axis], 1) for n, axis in zip(lengths, axes, strict=True)]
    if policy != "stretch":
        require(policy in ("not_larger", "not_smaller"), op, "'keep_aspect_ratio_policy' is unknown", got=policy)
        common = min(factors) if policy == "not_larger" else max(factors)
        factors = [common] * len(axes)
        lengths = [int(np.floor(common * x.shape[axis] + 0.5)) for axis in axes]
    regions = _regions(op, roi, len(axes))
    return [
        _Axis(index=axis, size=x.shape[axis], resized=n, scale=factor, start=region[0], end=region[1])
        for axis, n, factor, region in zip(axes, lengths, factors, regions, strict=True)
    ]


def _resize(x: Array, axes: list[_Axis], rule: _ResizeRule, extrapolation_value: float, op: str) -> Array:
    require(rule.mode in ("nearest", "linear", "cubic"), op, "'mode' is unknown", got=rule.mode)
    require(rule.mode == "nearest" or x.dtype.kind in "biufc", op, "only 'nearest' takes this type", got=x.dtype)
    shape = list(x.shape)
    for axis in axes:
        shape[axis.index] = axis.resized
        # One long axis is tabulated whole, even when another one is empty.
        require_room(op, [axis.resized], np.dtype(np.float64))
    require_room(op, shape, x.dtype)
    y, outside = x, []
    for axis in axes:
        identity = axis.resized == axis.size and axis.scale == 1.0 and (axis.start, axis.end) == (0.0, 1.0)
        if identity:
            continue
        require(axis.size > 0 or axis.resized == 0, op, f"axis {axis.index} is empty and cannot be enlarged")
        positions = _original_positions(op, axis, rule.coordinates)
        if rule.coordinates == "tf_crop_and_resize":
            outside.append((axis.index, (positions < 0) | (positions > axis.size - 1)))
        if rule.mode == "nearest":
            y = np.take(y, _nearest_elements(op, positions, rule.nearest, axis.size), axis=axis.index)
        else:
            y = _weigh_axis(y, axis, *_tabulate(positions, axis, rule))
    result = y if y.dtype == x.dtype else _round_to(y, x.dtype)
    if result is x:
        return x.copy()
    return _extrapolate(result, outside, extrapolation_value)


def _original_positions(op: str, axis: _Axis, mode: str) -> Array:
    """Where each output position lies on the input axis, in elements."""
    out = np.arange(axis.resized, dtype=np.float64)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and axis.resized > 1):
        return (out + 0.5) / axis.scale - 0.5
    if mode == "pytorch_half_pixel":
        return np.zeros_like(out)
    if mode == "half_pixel_symmetric":
        middle = axis.size / 2 * (1 - axis.resized / axis.exact)
        return middle + (out + 0.5) / axis.scale - 0.5
    if mode == "asymmetric":
        return out / axis.scale
    if mode == "tf_half_pixel_for_nn":
        return (out + 0.5) / axis.scale
    last = axis.size - 1
    if mode == "align_corners":
        return out * last / (axis.exact - 1) if axis.resized > 1 else np.zeros_like(out)
    require(mode == "tf_crop_and_resize", op, "'coordinate_transformation_mode' is unknown", got=mode)
    if axis.resized > 1:
        return axis.start * last + out * (axis.end - axis.start) * last / (axis.exact - 1)
    return np.full_like(out, 0.5 * (axis.start + axis.end) * last)


def _nearest_elements(op: str, positions: Array, mode: str, size: int) -> Array:
    if mode == "round_prefer_floor":
        nearest = np.ceil(positions - 0.5)
    elif mode == "round_prefer_ceil":
        nearest = np.floor(positions + 0.5)
    elif mode == "floor":
        nearest = np.floor(positions)
    else:
        require(mode == "ceil", op, "'nearest_mode' is unknown", got=mode)
        nearest = np.ceil(positions)
    return np.clip(nearest, 0, size - 1).astype(np.int64)


def _tabulate(positions: Array, axis: _Axis, rule: _ResizeRule) -> tuple[Array, Array]:
    """For each output position the elements it reads and their weights, which sum to one."""
    stretch = min(axis.scale, 1.0) if rule.antialias else 1.0
    radius = int(np.ceil((1 if rule.mode == "linear" else 2) / stretch))
    elements = np.floor(positions)[:, None] + np.arange(1 - radius, radius + 1)
    distances = (elements - positions[:, None]) * stretch
    linear = rule.mode == "linear"
    weights = np.maximum(1 - np.abs(distances), 0) if linear else cubic_weights(distances, rule.cubic_a)
    if rule.exclude_outside:
        weights = np.where((elements >= 0) & (elements < axis.size), weights, 0)
    if rule.exclude_outside or rule.antialias:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return np.clip(elements, 0, axis.size - 1).astype(np.int64), weights


def _weigh_axis(x: Array, axis: _Axis, elements: Array, weights: Array) -> Array:
    wide = x if x.dtype.kind in "fc" else x.astype(np.float64)
    table = weights.astype(wide.dtype)
    tail = (1,) * (x.ndim - axis.index - 1)
    shape = (*x.shape[: axis.index], axis.resized, *x.shape[axis.index + 1 :])
    y = np.zeros(shape, dtype=wide.dtype)
    for tap in range(elements.shape[1]):
        y += np.take(wide, elements[:, tap], axis=axis.index) * table[:, tap].reshape(-1, *tail)
    return y


def _round_to(y: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind not in "iu":
        return y.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(y), limits.min, limits.max).astype(dtype)


def _extrapolate(y: Array, outside: list[tuple[int, Array]], value: float) -> Array:
    if not outside:
        return y
    mask = np.zeros(y.shape, dtype=bool)
    for index, flags in outside:
        mask |= flags.reshape(-1, *(1,) * (y.ndim - index - 1))
    return np.where(mask, np.asarray(value).astype(y.dtype), y)
