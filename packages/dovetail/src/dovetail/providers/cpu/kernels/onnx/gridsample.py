"""Sampling an image at the points of a grid (GridSample), and making such a grid (AffineGrid)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import require, require_room
from dovetail.providers.cpu.kernels._interpolation import cubic_weights, gather_points, sample
from dovetail.providers.cpu.kernels._support import float_reference, reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["affine_grid", "grid_sample", "grid_sample_16"]

_CUBIC_A = -0.75
_FAR = 2.0**31
"""Coordinates are cut here before they become integers; no axis is that long."""


@kernel("GridSample", since=16, until=19)
def grid_sample_16(
    x: Array, grid: Array, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Array:
    """GridSample under the mode names it had before it took volumes."""
    renamed = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    y: Array = grid_sample(x, grid, align_corners=align_corners, mode=renamed, padding_mode=padding_mode)
    return y


@kernel("GridSample", since=20)
@reference
def grid_sample(
    x: Array, grid: Array, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Array:
    """Interpolate the image at each point of the grid, whose coordinates run from -1 to 1, innermost axis first."""
    op, rank = "GridSample", x.ndim - 2
    require(rank >= 1 and grid.ndim == x.ndim, op, "grid and input differ in rank", expected=x.ndim, got=grid.ndim)
    require(grid.shape[-1] == rank, op, "a point has the wrong length", expected=rank, got=grid.shape[-1])
    require(grid.shape[0] == x.shape[0], op, "batches differ", expected=x.shape[0], got=grid.shape[0])
    require(mode in ("linear", "nearest", "cubic"), op, "'mode' is unknown", got=mode)
    require(padding_mode in ("zeros", "border", "reflection"), op, "'padding_mode' is unknown", got=padding_mode)
    shape = (*x.shape[:2], *grid.shape[1:-1])
    if 0 in shape:
        return np.zeros(shape, dtype=x.dtype)
    require(0 not in x.shape, op, "the input is empty", got=x.shape)
    padding = _Padding(padding_mode, bool(align_corners))
    points = np.stack(
        [_place(grid[..., rank - 1 - i], x.shape[2 + i], padding, mode) for i in range(rank)], axis=1
    ).reshape(x.shape[0], rank, -1)
    return _interpolate(x, points, mode, padding).reshape(shape)


class _Padding:
    """What coordinates outside an axis mean."""

    def __init__(self, mode: str, align_corners: bool) -> None:
        self.mode = mode
        self.align_corners = align_corners

    def borders(self, size: int) -> tuple[float, float]:
        """The coordinates of -1 and 1 on an axis."""
        return (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)

    def resolve(self, index: Array, size: int) -> tuple[Array, Array | None]:
        """Indices inside the axis for whole coordinates, and which of them count."""
        if self.mode == "zeros":
            return np.clip(index, 0, size - 1), (index >= 0) & (index < size)
        if self.mode == "reflection":
            index = _reflect(index.astype(np.float64), *self.borders(size)).astype(np.int64)
        return np.clip(index, 0, size - 1), None


def _reflect(x: Array, low: float, high: float) -> Array:
    """Fold coordinates into low..high as if both were mirrors."""
    length = high - low
    if length <= 0:
        return np.full_like(x, low)
    folded = np.abs(x - low) % (2 * length)
    return low + np.where(folded > length, 2 * length - folded, folded)


def _place(normalized: Array, size: int, padding: _Padding, mode: str) -> Array:
    """Element coordinates of normalized ones, moved inside as the padding asks."""
    wide: Array = normalized.astype(np.float64 if normalized.dtype == np.float64 else np.float32)
    x: Array = (wide + 1) / 2 * (size - 1) if padding.align_corners else ((wide + 1) * size - 1) / 2
    x = np.clip(np.nan_to_num(x, nan=-_FAR), -_FAR, _FAR)
    if mode == "nearest":
        x = np.rint(x)
    low, high = padding.borders(size)
    if padding.mode == "border":
        return np.where((x < low) | (x > high), np.clip(x, 0, size - 1), x)
    if padding.mode == "reflection":
        return np.where((x < low) | (x > high), _reflect(x, low, high), x)
    return x


def _interpolate(x: Array, points: Array, mode: str, padding: _Padding) -> Array:
    if mode == "nearest":
        return _pick(x, points, padding)
    wide = x.astype(np.float64 if x.dtype.kind in "iub" or x.dtype == np.float64 else np.float32)
    located = points.astype(wide.dtype)
    if mode == "linear":
        y = sample(wide, located, offsets=(0, 1), weigh=lambda d: 1 - np.abs(d), resolve=padding.resolve)
    else:
        y = sample(
            wide, located, offsets=(-1, 0, 1, 2), weigh=lambda d: cubic_weights(d, _CUBIC_A), resolve=padding.resolve
        )
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        y = np.clip(y, limits.min, limits.max)
    return y.astype(x.dtype)


def _pick(x: Array, points: Array, padding: _Padding) -> Array:
    """The nearest elements; nothing is computed, so every type is taken."""
    resolved = [padding.resolve(points[:, i].astype(np.int64), n) for i, n in enumerate(x.shape[2:])]
    y = gather_points(x, tuple(index for index, _ in resolved))
    masks = [counts for _, counts in resolved if counts is not None]
    if masks:
        outside = ~np.logical_and.reduce(masks)
        y[np.broadcast_to(outside[:, None, :], y.shape)] = "" if x.dtype == object else 0
    return y


@kernel("AffineGrid", since=20, types={"T1": FLOATS})
@float_reference
def affine_grid(theta: Array, size: Array, *, align_corners: int = 0) -> Array:
    """Apply each affine matrix to the regular grid of an image or volume of this size."""
    op = "AffineGrid"
    require(size.size in (4, 5), op, "'size' must have four or five elements", got=size.size)
    spatial: Sequence[int] = [int(n) for n in size[2:]]
    rank = len(spatial)
    wanted = (int(size[0]), rank, rank + 1)
    require(theta.shape == wanted, op, "'theta' has the wrong shape", expected=wanted, got=theta.shape)
    require(min(spatial) >= 0, op, "'size' must not be negative", got=spatial)
    require_room(op, (theta.shape[0], *spatial, rank), theta.dtype)
    require_room(op, (max(spatial),), np.dtype(np.float64))
    axes = [_spaced(n, theta.dtype, bool(align_corners)) for n in spatial]
    mesh = np.meshgrid(*axes, indexing="ij")
    # A point is (innermost, ..., outermost, 1), so that the last column of the matrix is the shift.
    points = np.stack([*reversed(mesh), np.ones_like(mesh[0])], axis=-1).reshape(math.prod(spatial), rank + 1)
    return np.asarray(points @ theta.swapaxes(1, 2)).reshape(theta.shape[0], *spatial, rank)


def _spaced(count: int, dtype: np.dtype[np.generic], align_corners: bool) -> Array:
    """Evenly spaced coordinates from -1 to 1: of the elements' centres, or of the outer edges."""
    steps = np.arange(count, dtype=np.float64)
    if align_corners:
        return (steps * (2 / max(count - 1, 1)) - 1).astype(dtype)
    return ((2 * steps + 1) / max(count, 1) - 1).astype(dtype)
