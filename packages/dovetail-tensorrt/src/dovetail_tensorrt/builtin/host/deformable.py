"""Sampling at places that the network computes: deformable attention and deformable convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.errors import PluginError
from dovetail_tensorrt.builtin.host.sampling import chunks, rows_of, sample_padded

__all__ = ["DeformableOptions", "attend_deformably", "convolve_deformably"]

Array = npt.NDArray[Any]


def attend_deformably(value: Array, shapes: Array, starts: Array, locations: Array, weights: Array) -> Array:
    """Multi-scale deformable attention -> (n, q, m, d).

    The loop is over levels and over chunks of queries. Cost: four rows of d elements for each of the n * q * m * l * p
    points.

    Args:
        value: The maps of all levels one after another, (n, s, m, d).
        shapes: Height and width of each level, (l, 2).
        starts: Where each level starts, (l,).
        locations: Horizontal and vertical place of each point from 0 to 1, (n, q, m, l, p, 2).
        weights: The weight of each point, (n, q, m, l, p).
    """
    batch, length, heads, depth = value.shape
    queries, points = locations.shape[1], locations.shape[4]
    result = np.zeros((batch, queries, heads, depth), np.float32)
    _check_levels(shapes, starts, length)
    if result.size == 0 or value.size == 0:
        return result
    rows = np.ascontiguousarray(value.transpose(0, 2, 1, 3)).reshape(-1, depth)
    image = (np.arange(batch)[:, None] * heads + np.arange(heads))[:, None, :, None] * length
    for level, ((height, width), start) in enumerate(zip(shapes.tolist(), starts.tolist(), strict=True)):
        for part in chunks(queries, batch * heads * points * depth):
            place = locations[:, part, :, level].astype(np.float32)
            x, y = place[..., 0] * width - np.float32(0.5), place[..., 1] * height - np.float32(0.5)
            sampled = sample_padded(rows, image + start, y, x, height, width)
            result[:, part] += np.einsum("nqmpd,nqmp->nqmd", sampled, weights[:, part, :, level].astype(np.float32))
    return result


def _check_levels(shapes: Array, starts: Array, length: int) -> None:
    ends = starts.astype(np.int64) + shapes[:, 0].astype(np.int64) * shapes[:, 1]
    is_wrong = (shapes < 0).any(axis=1) | (starts < 0) | (ends > length)
    if is_wrong.any():
        level = int(is_wrong.argmax())
        raise PluginError(
            f"level {level} does not lie in the value tensor",
            where="MultiscaleDeformableAttnPlugin_TRT",
            expected=f"level_start_index + height * width of at most {length}",
            got=f"start {int(starts[level])}, height and width {shapes[level].tolist()}",
        )


@dataclass(frozen=True, kw_only=True)
class DeformableOptions:
    """The parameters of a deformable convolution; pairs have the vertical one first."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    group: int
    deformable_group: int


def convolve_deformably(
    images: Array, offset: Array, mask: Array, weight: Array, bias: Array | None, options: DeformableOptions
) -> Array:
    """Modulated deformable convolution: (n, c, h, w) -> (n, o, oh, ow).

    The loop is over images and chunks of output rows. Cost: four rows of channels for each weight and output pixel,
    and one matrix product a group.
    """
    batch, channels = images.shape[:2]
    outputs, kernel = weight.shape[0], weight.shape[2:]
    high, wide = offset.shape[2:]
    result = np.zeros((batch, outputs, high, wide), np.float32)
    if result.size == 0:
        return result
    taps = kernel[0] * kernel[1]
    filters = weight.astype(np.float32).reshape(options.group, outputs // options.group, -1)
    for image in range(batch):
        for part in chunks(high, wide * taps * max(channels, 1)):
            columns = _sample_taps(images[image], offset[image][:, part], mask[image][:, part], kernel, part, options)
            columns = columns.reshape(options.group, -1, columns.shape[-1])
            result[image, :, part] = (filters @ columns).reshape(outputs, -1, wide)
    return result if bias is None else result + bias.astype(np.float32)[:, None, None]


def _sample_taps(
    image: Array, offset: Array, mask: Array, kernel: tuple[int, ...], part: slice, options: DeformableOptions
) -> Array:
    """What each weight is multiplied with, (c, taps, pixels)."""
    groups, taps, shape = options.deformable_group, kernel[0] * kernel[1], offset.shape[1:]
    own = image.reshape(groups, -1, *image.shape[1:])
    moved = offset.reshape(groups, taps, 2, *shape).astype(np.float32)
    y = _base(kernel[0], part.start, shape[0], 0, options)[None, :, None, :, None]
    x = _base(kernel[1], 0, shape[1], 1, options)[None, None, :, None, :]
    grid = (1, *kernel, *shape)
    y = np.broadcast_to(y, grid).reshape(1, taps, *shape) + moved[:, :, 0]
    x = np.broadcast_to(x, grid).reshape(1, taps, *shape) + moved[:, :, 1]
    height, width = image.shape[1:]
    first = (np.arange(groups) * height * width)[:, None, None, None]
    sampled = sample_padded(rows_of(own), first, y, x, height, width)
    sampled *= mask.reshape(groups, taps, *shape, 1).astype(np.float32)
    return np.moveaxis(sampled, -1, 1).reshape(image.shape[0], taps, -1)


def _base(taps: int, start: int, count: int, axis: int, options: DeformableOptions) -> Array:
    """Where each weight lies before it is moved, (taps, pixels)."""
    pixel = np.arange(start, start + count) * options.stride[axis] - options.padding[axis]
    return (np.arange(taps)[:, None] * options.dilation[axis] + pixel).astype(np.float32)
