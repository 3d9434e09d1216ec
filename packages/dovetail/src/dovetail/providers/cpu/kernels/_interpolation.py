"""Reading images between their elements: shared by DeformConv, GridSample, RoiAlign and Resize.

An image is (batch, channel, *spatial) and sampling points are (batch, axis, point) in element coordinates, outermost
axis first; the result is (batch, channel, point).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from dovetail.providers.cpu._numeric import Array

__all__ = ["cubic_weights", "gather_points", "sample", "sample_linear"]

ResolveIndices = Callable[[Array, int], tuple[Array, Array | None]]
"""From integer coordinates along an axis of a size to indices inside it, and which of them count (None: all)."""


def cubic_weights(distance: Array, a: float) -> Array:
    """The weight of an element at this distance in cubic convolution interpolation.

    >>> cubic_weights(np.array([0.0, 1.0, 2.0]), -0.75)
    array([1., 0., 0.])
    """
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, np.zeros_like(x)))


def gather_points(images: Array, indices: tuple[Array, ...]) -> Array:
    """The elements at integer points: indices is one (batch, point) array an axis, all inside the image."""
    sizes = images.shape[2:]
    if images.size == 0:
        return np.zeros((*images.shape[:2], indices[0].shape[-1]), dtype=images.dtype)
    flat = np.zeros(indices[0].shape, dtype=np.int64)
    for index, size in zip(indices, sizes, strict=True):
        flat = flat * size + index
    return np.take_along_axis(images.reshape(*images.shape[:2], -1), flat[:, None, :], axis=2)


def _inside(index: Array, size: int) -> tuple[Array, Array | None]:
    return np.clip(index, 0, max(size - 1, 0)), (index >= 0) & (index < size)


def sample_linear(images: Array, points: Array) -> Array:
    """Interpolate linearly along every axis; elements outside the image are zero."""
    return sample(images, points, offsets=(0, 1), weigh=lambda d: 1 - np.abs(d), resolve=_inside)


def sample(
    images: Array,
    points: Array,
    *,
    offsets: tuple[int, ...],
    weigh: Callable[[Array], Array],
    resolve: ResolveIndices,
) -> Array:
    """Interpolate with a separable kernel: weights depend on the distance to the elements at these offsets."""
    rank = points.shape[1]
    lower = np.floor(points)
    fraction = points - lower
    # A coordinate too large for an index, or not a number, is outside any image all the same.
    whole = np.nan_to_num(np.clip(lower, -(2.0**31), 2.0**31), nan=-(2.0**31)).astype(np.int64)
    total = np.zeros((*images.shape[:2], points.shape[2]), dtype=images.dtype)
    for corner in itertools.product(offsets, repeat=rank):
        weight = np.ones((points.shape[0], points.shape[2]), dtype=images.dtype)
        indices = []
        for axis, offset in enumerate(corner):
            index, counts = resolve(whole[:, axis] + offset, images.shape[2 + axis])
            part = weigh(fraction[:, axis] - offset)
            weight = weight * (part if counts is None else np.where(counts, part, 0))
            indices.append(index)
        total += gather_points(images, tuple(indices)) * weight[:, None, :]
    return total
