"""Pooling over regions of interest: RoiAlign and MaxRoiPool."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import fail, require, require_room, wrap_indices
from dovetail.providers.cpu.kernels._support import IEEE_FLOATS, float_reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["max_roi_pool", "roi_align", "roi_align_unshifted"]


@kernel("RoiAlign", since=10, until=15, types={"T1": IEEE_FLOATS})
def roi_align_unshifted(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """RoiAlign before opset 16, which never shifts by half an element."""
    y: Array = roi_align(
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )
    return y


@kernel("RoiAlign", since=16, types={"T1": FLOATS})
@float_reference
def roi_align(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """Pool bilinear samples on a regular grid inside each bin of each region."""
    op = "RoiAlign"
    require(x.ndim == 4 and 0 not in x.shape[2:], op, "the input must be (batch, channel, height, width)", got=x.shape)
    require(rois.shape == (batch_indices.size, 4), op, "'rois' has the wrong shape", got=rois.shape)
    require(mode in ("avg", "max"), op, "'mode' is unknown", expected="avg or max", got=mode)
    bins = (output_height, output_width)
    require(min(bins) > 0, op, "'output_height' and 'output_width' must be positive", got=bins)
    require_room(op, (rois.shape[0], x.shape[1], *bins), x.dtype)
    images = wrap_indices(op, batch_indices.reshape(-1), x.shape[0], lowest=0)
    shifted = coordinate_transformation_mode == "half_pixel"
    corners = rois * x.dtype.type(spatial_scale) - x.dtype.type(0.5 if shifted else 0.0)
    y = np.zeros((rois.shape[0], x.shape[1], output_height, output_width), dtype=x.dtype)
    for n, (left, top, right, bottom) in enumerate(corners):
        rows = _axis_samples(top, bottom, x.shape[2], output_height, sampling_ratio, shifted)
        columns = _axis_samples(left, right, x.shape[3], output_width, sampling_ratio, shifted)
        if rows[0].size and columns[0].size:
            pool = _pool_mean if mode == "avg" else _pool_max
            y[n] = pool(x[images[n]], rows, columns)
    return y


Samples = tuple[Array, Array]
"""Elements and weights of the samples along an axis: two arrays (bins, samples a bin, 2 neighbours)."""


def _axis_samples(start: float, end: float, size: int, bins: int, ratio: int, shifted: bool) -> Samples:
    length = end - start if shifted else max(end - start, 1.0)
    if not math.isfinite(length):
        fail("RoiAlign", "a region is not finite", got=f"{start}..{end}")
    count = ratio if ratio > 0 else max(math.ceil(length / bins), 0)
    require_room("RoiAlign", (bins, count, 2), np.dtype(np.float64))
    # The samples of a bin cover it evenly, so that their mean is its integral.
    offsets = np.arange(bins)[:, None] + (np.arange(count) + 0.5) / max(count, 1)
    points = start + offsets * (length / bins)
    outside = (points < -1.0) | (points > size)
    inside = np.clip(points, 0, size - 1)
    low = np.minimum(inside.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    fraction = np.where(high == low, 0.0, inside - low)
    weights = np.where(outside[..., None], 0.0, np.stack([1 - fraction, fraction], axis=-1))
    return np.stack([low, high], axis=-1), weights


def _pool_mean(image: Array, rows: Samples, columns: Samples) -> Array:
    """Bilinear interpolation and the mean are both separable: two small matrix products a region."""
    down, across = (_mean_matrix(s, n, image.dtype) for s, n in zip((rows, columns), image.shape[1:], strict=True))
    return down @ image @ across.T


def _mean_matrix(samples: Samples, size: int, dtype: np.dtype[np.generic]) -> Array:
    elements, weights = samples
    bins, count = elements.shape[:2]
    matrix = np.zeros((bins, size), dtype=np.float64)
    np.add.at(matrix, (np.arange(bins)[:, None, None], elements), weights / count)
    return matrix.astype(dtype)


def _pool_max(image: Array, rows: Samples, columns: Samples) -> Array:
    """The largest weighted neighbour of a bin, which is how ONNX defines this mode."""
    (bins_y, count_y, _), (bins_x, count_x, _) = rows[0].shape, columns[0].shape
    shape_y, shape_x = (1, bins_y, count_y * 2, 1, 1), (1, 1, 1, bins_x, count_x * 2)
    values = image[:, rows[0].reshape(shape_y[1:]), columns[0].reshape(shape_x[1:])]
    weighted = values * (rows[1].reshape(shape_y) * columns[1].reshape(shape_x))
    return np.asarray(weighted.max(axis=(2, 4)), dtype=image.dtype)


@kernel("MaxRoiPool", since=1, types={"T": FLOATS})
@float_reference
def max_roi_pool(x: Array, rois: Array, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Array:
    """The largest element of each bin of each region, zero for an empty bin."""
    op = "MaxRoiPool"
    require(x.ndim == 4, op, "the input must have four axes", got=x.shape)
    require(rois.ndim == 2 and rois.shape[1] == 5, op, "'rois' must be (regions, 5)", got=rois.shape)
    require(bool(np.isfinite(rois).all()), op, "a region is not finite")
    fits = len(pooled_shape) == 2 and min(pooled_shape) > 0
    require(fits, op, "'pooled_shape' must be two positive numbers", got=tuple(pooled_shape))
    require_room(op, (rois.shape[0], x.shape[1], *pooled_shape), x.dtype)
    images = wrap_indices(op, rois[:, 0], x.shape[0], lowest=0)
    scaled = rois[:, 1:] * spatial_scale
    corners = (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int64)
    y = np.zeros((rois.shape[0], x.shape[1], *pooled_shape), dtype=x.dtype)
    for n, (left, top, right, bottom) in enumerate(corners.tolist()):
        rows = _bin_edges(top, bottom, pooled_shape[0], x.shape[2])
        columns = _bin_edges(left, right, pooled_shape[1], x.shape[3])
        for (i, (y0, y1)), (j, (x0, x1)) in itertools.product(enumerate(rows), enumerate(columns)):
            if y0 < y1 and x0 < x1:
                y[n, :, i, j] = x[images[n], :, y0:y1, x0:x1].max(axis=(1, 2))
    return y


def _bin_edges(start: int, end: int, bins: int, size: int) -> list[tuple[int, int]]:
    length = max(end - start + 1, 1) / bins
    edges = ((math.floor(i * length) + start, math.ceil((i + 1) * length) + start) for i in range(bins))
    return [(min(max(low, 0), size), min(max(high, 0), size)) for low, high in edges]
