"""Regions of feature maps, resampled to one size: ROI align, ROI align over a pyramid, crop and resize."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.errors import PluginError
from dovetail_tensorrt.builtin.host.sampling import chunks, rows_of, sample_inside, weigh_corners

__all__ = ["PyramidOptions", "RoiOptions", "align_pyramid", "align_regions", "crop_and_resize"]

Array = npt.NDArray[Any]

_MAX_GRID = 1 << 12
"""Points a side of one bin; a region that needs more is no region of an image."""


@dataclass(frozen=True, kw_only=True)
class RoiOptions:
    """The parameters of ROI align.

    Attributes:
        height: Of an output.
        width: Of an output.
        sampling_ratio: Points a side of each bin; 0 takes as many as there are pixels.
        spatial_scale: From coordinates of a region to those of the map.
        has_half_pixel: Whether coordinates are shifted by half a pixel.
        is_average: Whether points of a bin are averaged; otherwise the largest corner counts.
    """

    height: int
    width: int
    sampling_ratio: int
    spatial_scale: float
    has_half_pixel: bool
    is_average: bool


def align_regions(images: Array, regions: Array, batch: Array, options: RoiOptions) -> Array:
    """ROI align: (n, c, h, w), (r, 4), (r,) -> (r, c, height, width).

    Regions whose bins have as many points are done together; there is no loop over regions or pixels. Cost: four rows
    of channels for each point, r * height * width * points a bin in all.
    """
    count, channels = len(regions), images.shape[1]
    result = np.zeros((count, channels, options.height, options.width), np.float32)
    if result.size == 0 or images.size == 0:
        return result
    _check_batch(batch, len(images))
    start, size = _place_regions(regions, options)
    bins = size / np.array([options.height, options.width], np.float32)
    rows = rows_of(images)
    for (tall, wide), members in _group_grids(bins, options.sampling_ratio):
        each = options.height * options.width * tall * wide * channels
        for part in chunks(len(members), each):
            chosen = members[part]
            y = _points(start[chosen, 0], bins[chosen, 0], options.height, tall)
            x = _points(start[chosen, 1], bins[chosen, 1], options.width, wide)
            first = batch[chosen].astype(np.int64) * (images.shape[2] * images.shape[3])
            pooled = _pool(rows, first, y, x, (tall, wide), images.shape[2:], is_average=options.is_average)
            result[chosen] = np.moveaxis(pooled, -1, 1)
    return result


def _check_batch(batch: Array, count: int) -> None:
    wrong = batch[(batch < 0) | (batch >= count)]
    if wrong.size:
        raise PluginError(
            "a batch index names no image", where="ROIAlign_TRT", expected=f"0 to {count - 1}", got=int(wrong[0])
        )


def _place_regions(regions: Array, options: RoiOptions) -> tuple[Array, Array]:
    """Start and size of each region on the map, each (r, 2) with the vertical coordinate first."""
    shift = np.float32(0.5 if options.has_half_pixel else 0)
    corners = regions.astype(np.float32) * np.float32(options.spatial_scale) - shift
    start, end = corners[:, 1::-1], corners[:, 3:1:-1]
    size = end - start
    return start, size if options.has_half_pixel else np.maximum(size, np.float32(1))


def _group_grids(bins: Array, ratio: int) -> Iterator[tuple[tuple[int, int], Array]]:
    """Numbers of points a bin, and which regions have them; regions without a point are left out."""
    if ratio > 0:
        yield (ratio, ratio), np.arange(len(bins))
        return
    with np.errstate(invalid="ignore"):
        wanted = np.ceil(np.nan_to_num(bins, nan=0, posinf=np.inf, neginf=0))
    if wanted.size and wanted.max() > _MAX_GRID:
        raise PluginError(
            "a region is too large to be sampled",
            expected=f"at most {_MAX_GRID} points a side of a bin",
            got=float(wanted.max()),
            fix="give a sampling_ratio, or check the coordinates of the regions",
        )
    grids, member = np.unique(wanted.astype(np.int64), axis=0, return_inverse=True)
    for number, (tall, wide) in enumerate(grids.tolist()):
        if tall > 0 and wide > 0:
            yield (tall, wide), np.flatnonzero(member.reshape(-1) == number)


def _points(start: Array, bin_size: Array, num_bins: int, per_bin: int) -> Array:
    """Coordinates of all points along one side, (r, bins * points)."""
    where = np.arange(num_bins, dtype=np.float32)[:, None] + (
        np.arange(per_bin, dtype=np.float32) + np.float32(0.5)
    ) / np.float32(per_bin)
    points: Array = start[:, None] + where.reshape(-1) * bin_size[:, None]
    return points


def _pool(
    rows: Array, first: Array, y: Array, x: Array, grid: tuple[int, int], size: tuple[int, ...], *, is_average: bool
) -> Array:
    """Pool the points of each bin, (r, bins high, bins wide, channels)."""
    height, width = size
    is_inside = ((y >= -1) & (y <= height))[:, :, None] & ((x >= -1) & (x <= width))[:, None, :]
    y, x = (np.clip(np.nan_to_num(each), 0, limit - 1)[...] for each, limit in ((y, height), (x, width)))
    shape = is_inside.shape
    y, x = np.broadcast_to(y[:, :, None], shape), np.broadcast_to(x[:, None, :], shape)
    corners = weigh_corners(first[:, None, None], y, x, height, width)
    points = [rows[place] * weight[..., None].astype(np.float32) for place, weight in corners]
    value = sum(points) if is_average else np.maximum.reduce(points)
    value = np.where(is_inside[..., None], value, np.float32(0))
    split = value.reshape(len(y), shape[1] // grid[0], grid[0], shape[2] // grid[1], grid[1], rows.shape[1])
    pooled: Array = split.mean(axis=(2, 4)) if is_average else split.max(axis=(2, 4))
    return pooled


@dataclass(frozen=True, kw_only=True)
class PyramidOptions:
    """The parameters of ROI align over a pyramid.

    Attributes:
        pooled_size: Height and width of an output.
        image_size: Height and width of the image.
        first_area: The pixels above which a region leaves the finest map.
        is_absolute: Whether coordinates are pixels of the image; otherwise they go from 0 to 1.
        has_y_first: Whether the vertical coordinate comes first.
        adds_one: Whether the last pixel counts when a region is measured.
        transform: Half pixels: 2 for both sides, 1 for points only, 0 for none, -1 for corners on pixels.
        sampling_ratio: Points a side of each bin; 0 takes as many as there are pixels.
    """

    pooled_size: int
    image_size: tuple[int, int]
    first_area: float
    is_absolute: bool
    has_y_first: bool
    adds_one: bool
    transform: int
    sampling_ratio: int


def align_pyramid(regions: Array, maps: list[Array], options: PyramidOptions) -> Array:
    """ROI align over four maps: (n, r, 4) and maps (n, c, h, w) -> (n, r, c, pooled, pooled).

    Each region is taken from the map that fits its area. Regions of one map whose bins have as many points are done
    together. Cost: four rows of channels for each point.
    """
    batch, count = regions.shape[:2]
    channels, pooled = maps[0].shape[1], options.pooled_size
    result = np.zeros((batch * count, channels, pooled, pooled), np.float32)
    if result.size:
        inside = _clip(regions.reshape(-1, 4).astype(np.float32), options)
        boxes = inside / _limits(options)
        image = np.repeat(np.arange(batch), count)
        level = _choose_levels(inside, options)
        for number, features in enumerate(maps):
            members = np.flatnonzero(level == number)
            if members.size and features.size:
                _align_level(result, features, boxes, image, members, options)
    return result.reshape(batch, count, channels, pooled, pooled)


def _limits(options: PyramidOptions) -> Array:
    """The largest y1, x1, y2, x2, in the units that regions are given in."""
    return np.array(options.image_size * 2 if options.is_absolute else (1,) * 4, np.float32)


def _clip(boxes: Array, options: PyramidOptions) -> Array:
    """Boxes as y1, x1, y2, x2 inside of the image, with the smaller corner first."""
    if not options.has_y_first:
        boxes = boxes[:, [1, 0, 3, 2]]
    ordered = np.concatenate([np.fmin(boxes[:, :2], boxes[:, 2:]), np.fmax(boxes[:, :2], boxes[:, 2:])], axis=1)
    clipped: Array = np.fmax(np.fmin(ordered, _limits(options)), np.float32(0))
    return clipped


def _choose_levels(boxes: Array, options: PyramidOptions) -> Array:
    """The map of each box: a region of whole pixels that has exactly the area of a border stays on the finer side.

    Areas are pixels in FP64, where sides and products of FP32 coordinates lose nothing at a border.
    """
    pixels = (1, 1) if options.is_absolute else options.image_size
    sides = (boxes[:, 2:].astype(np.float64) - boxes[:, :2]) * pixels + int(options.adds_one)
    level: Array = (sides.prod(axis=1)[:, None] > options.first_area * np.array([1, 4, 16])).sum(axis=1)
    return level


def _align_level(
    result: Array, features: Array, boxes: Array, image: Array, members: Array, options: PyramidOptions
) -> None:
    size = np.array(features.shape[2:], np.float32)
    start, extent, offset = _place_on_map(boxes[members], size, options)
    pooled, channels = options.pooled_size, features.shape[1]
    step = extent / np.float32(max(pooled - 1, 1) if options.transform == -1 else pooled)
    grids = _group_grids(np.maximum(extent / np.float32(pooled), np.float32(1)), options.sampling_ratio)
    rows = rows_of(features)
    for (tall, wide), found in grids:
        for part in chunks(len(found), pooled * pooled * tall * wide * channels):
            chosen = found[part]
            y = _clamped_points(start[chosen, 0], step[chosen, 0], pooled, tall, offset, features.shape[2])
            x = _clamped_points(start[chosen, 1], step[chosen, 1], pooled, wide, offset, features.shape[3])
            first = image[members[chosen]][:, None, None] * (features.shape[2] * features.shape[3])
            shape = (len(chosen), pooled * tall, pooled * wide)
            spread = np.broadcast_to(y[:, :, None], shape), np.broadcast_to(x[:, None, :], shape)
            value = sample_inside(rows, first, *spread, features.shape[2], features.shape[3])
            split = value.reshape(len(chosen), pooled, tall, pooled, wide, channels)
            result[members[chosen]] = np.moveaxis(split.mean(axis=(2, 4)), -1, 1)


def _place_on_map(boxes: Array, size: Array, options: PyramidOptions) -> tuple[Array, Array, float]:
    """Start and extent of regions on a map, (r, 2) each, and where in its share of a bin a point lies."""
    if options.transform == -1:
        start, end = boxes[:, :2] * (size - 1), boxes[:, 2:] * (size - 1)
        return start, end - start, 0.0
    shift = np.float32(0.5 if options.transform == 2 else 0)
    start, end = boxes[:, :2] * size - shift, boxes[:, 2:] * size - shift
    return start, end - start, 0.5 if options.transform else 0.0


def _clamped_points(start: Array, step: Array, num_bins: int, per_bin: int, offset: float, limit: int) -> Array:
    part = (np.arange(per_bin, dtype=np.float32) + np.float32(offset)) / np.float32(per_bin)
    where = (np.arange(num_bins, dtype=np.float32)[:, None] + part).reshape(-1)
    points: Array = np.clip(start[:, None] + step[:, None] * where, 0, np.float32(limit - 1))
    return points


def crop_and_resize(images: Array, boxes: Array, height: int, width: int) -> Array:
    """Crop and resize: (n, c, h, w), (n, b, 4) from 0 to 1 with y first -> (n, b, c, height, width).

    What lies outside of the image is zero. Cost: four rows of channels for each pixel of the outputs.
    """
    batch, count, channels = images.shape[0], boxes.shape[1], images.shape[1]
    result = np.zeros((batch * count, channels, height, width), np.float32)
    if result.size and images.size:
        rows, size = rows_of(images), images.shape[2:]
        flat = boxes.reshape(-1, 4).astype(np.float32)
        image = np.repeat(np.arange(batch), count)
        for part in chunks(len(flat), height * width * channels):
            y = _crop_points(flat[part, 0], flat[part, 2], height, size[0])
            x = _crop_points(flat[part, 1], flat[part, 3], width, size[1])
            result[part] = _crop(rows, image[part], y, x, size)
    return result.reshape(batch, count, channels, height, width)


def _crop_points(low: Array, high: Array, count: int, size: int) -> Array:
    last = np.float32(size - 1)
    if count == 1:  # the middle
        low = high = np.float32(0.5) * (low + high)
    step = (high - low) * last / np.float32(max(count - 1, 1))
    points: Array = low[:, None] * last + np.arange(count, dtype=np.float32) * step[:, None]
    return points


def _crop(rows: Array, image: Array, y: Array, x: Array, size: tuple[int, ...]) -> Array:
    is_inside = ((y >= 0) & (y <= size[0] - 1))[:, :, None] & ((x >= 0) & (x <= size[1] - 1))[:, None, :]
    y, x = (np.clip(np.nan_to_num(each), 0, limit - 1) for each, limit in ((y, size[0]), (x, size[1])))
    spread = np.broadcast_to(y[:, :, None], is_inside.shape), np.broadcast_to(x[:, None, :], is_inside.shape)
    value = sample_inside(rows, image[:, None, None] * (size[0] * size[1]), *spread, size[0], size[1])
    return np.moveaxis(np.where(is_inside[..., None], value, np.float32(0)), -1, 1)
