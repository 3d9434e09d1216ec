"""Gathering and scattering by index: Gather*, Scatter*, TensorScatter and OneHot."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import (
    fail,
    normalize_axis,
    read_scalar,
    require,
    require_room,
    wrap_indices,
)
from dovetail.providers.cpu.kernels._support import float_reference, reference
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "gather",
    "gather_elements",
    "gather_nd",
    "gather_nd_11",
    "one_hot",
    "scatter_assign",
    "scatter_elements",
    "scatter_nd",
    "scatter_nd_assign",
    "tensor_scatter",
]

_REDUCTIONS: Final[dict[str, Callable[..., None]]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


@kernel("Gather", since=1)
@reference
def gather(data: Array, indices: Array, *, axis: int = 0) -> Array:
    """Take slices along an axis, in the order and shape of the indices."""
    where = normalize_axis("Gather", axis, data.ndim)
    return np.take(data, wrap_indices("Gather", indices, data.shape[where]), axis=where)


@kernel("GatherElements", since=11)
@reference
def gather_elements(data: Array, indices: Array, *, axis: int = 0) -> Array:
    """Take single elements: the index says where along the axis, its own place says where along the others."""
    op = "GatherElements"
    where = normalize_axis(op, axis, data.ndim)
    return data[_element_positions(op, data, indices, where)]


def _element_positions(op: str, data: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    """An open mesh over the indices, with the wrapped indices themselves along the axis."""
    require(indices.ndim == data.ndim, op, "indices and data differ in rank", expected=data.ndim, got=indices.ndim)
    others = [n <= m for i, (n, m) in enumerate(zip(indices.shape, data.shape, strict=True)) if i != axis]
    require(all(others), op, "indices are larger than the data", expected=data.shape, got=indices.shape)
    mesh: list[Array] = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    mesh[axis] = wrap_indices(op, indices, data.shape[axis])
    return tuple(mesh)


@kernel("GatherND", since=11, until=11)
def gather_nd_11(data: Array, indices: Array) -> Array:
    """GatherND before it knew batches."""
    y: Array = gather_nd(data, indices)
    return y


@kernel("GatherND", since=12)
@reference
def gather_nd(data: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """Take the slices that tuples of indices name, batch by batch."""
    op = "GatherND"
    require(data.ndim >= 1 and indices.ndim >= 1, op, "data and indices must have an axis")
    require(0 <= batch_dims < min(data.ndim, indices.ndim), op, "'batch_dims' is out of range", got=batch_dims)
    batch, count = data.shape[:batch_dims], math.prod(data.shape[:batch_dims])
    require(indices.shape[:batch_dims] == batch, op, "batches differ", expected=batch, got=indices.shape[:batch_dims])
    rest = data.reshape(count, *data.shape[batch_dims:])
    tuples = indices.reshape(count, *indices.shape[batch_dims:])
    positions = _tuple_positions(op, rest.shape[1:], tuples)
    rows = np.arange(count).reshape(-1, *(1,) * (tuples.ndim - 2))
    y: Array = rest[(rows, *positions)]
    return y.reshape(*batch, *y.shape[1:])


def _tuple_positions(op: str, shape: tuple[int, ...], tuples: Array) -> tuple[Array, ...]:
    length = tuples.shape[-1]
    require(1 <= length <= len(shape), op, "an index tuple does not fit", expected=f"1..{len(shape)}", got=length)
    return tuple(wrap_indices(op, tuples[..., i], shape[i]) for i in range(length))


@kernel("Scatter", since=9, until=10)
@kernel("ScatterElements", since=11, until=15)
@reference
def scatter_assign(data: Array, indices: Array, updates: Array, *, axis: int = 0) -> Array:
    """Copy the data and replace single elements."""
    y: Array = scatter_elements(data, indices, updates, axis=axis)
    return y


@kernel("ScatterElements", since=16)
@float_reference
def scatter_elements(data: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none") -> Array:
    """Copy the data and put updates into single elements, replacing or combining."""
    op = "ScatterElements"
    where = normalize_axis(op, axis, data.ndim)
    shapes = (indices.shape, updates.shape)
    require(shapes[0] == shapes[1], op, "indices and updates differ in shape", expected=shapes[0], got=shapes[1])
    return _scatter(op, data, _element_positions(op, data, indices, where), updates, reduction)


@kernel("ScatterND", since=11, until=15)
@reference
def scatter_nd_assign(data: Array, indices: Array, updates: Array) -> Array:
    """Copy the data and replace the slices that tuples of indices name."""
    y: Array = scatter_nd(data, indices, updates)
    return y


@kernel("ScatterND", since=16)
@float_reference
def scatter_nd(data: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """Copy the data and put updates into the slices that tuples of indices name, replacing or combining."""
    op = "ScatterND"
    require(data.ndim >= 1 and indices.ndim >= 1, op, "data and indices must have an axis")
    positions = _tuple_positions(op, data.shape, indices)
    wanted = indices.shape[:-1] + data.shape[indices.shape[-1] :]
    require(updates.shape == wanted, op, "'updates' has the wrong shape", expected=wanted, got=updates.shape)
    return _scatter(op, data, positions, updates, reduction)


def _scatter(op: str, data: Array, positions: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    y = data.copy()
    if reduction == "none":
        y[positions] = updates
        return y
    combine = _REDUCTIONS.get(reduction)
    if combine is None:
        fail(op, "'reduction' is unknown", expected="none, " + ", ".join(_REDUCTIONS), got=reduction)
    combine(y, positions, updates)
    return y


def _scatter_into(past: Array, update: Array, *rest: Any, axis: int = -2, mode: str = "linear") -> None:
    """The same into an output, which is the cache itself where a step adds to it; positions may be left out."""
    *starts, out = rest
    if out.__array_interface__["data"] != past.__array_interface__["data"]:
        np.copyto(out, past)
    _write_rows(out, update, starts[0] if starts else None, axis % past.ndim, mode)


def _write_rows(present: Array, update: Array, write_indices: Array | None, axis: int, mode: str) -> None:
    """With the sequence axis second, one pair of index arrays addresses every sample's rows."""
    batch, size, count = present.shape[0], present.shape[axis], update.shape[axis]
    starts = np.zeros(batch, dtype=np.int64) if write_indices is None else write_indices
    rows = starts[:, None] + np.arange(count)
    columns = rows % size if mode == "circular" and size else wrap_indices("TensorScatter", rows, size, lowest=0)
    np.moveaxis(present, axis, 1)[np.arange(batch)[:, None], columns] = np.moveaxis(update, axis, 1)


@kernel("TensorScatter", since=24, into=_scatter_into)
@reference
def tensor_scatter(
    past_cache: Array, update: Array, write_indices: Array | None = None, *, axis: int = -2, mode: str = "linear"
) -> Array:
    """Write each sample's update into its cache from its own start position on."""
    op = "TensorScatter"
    where = normalize_axis(op, axis, past_cache.ndim)
    require(where != 0, op, "the batch axis cannot be the sequence axis")
    require(mode in ("linear", "circular"), op, "'mode' is unknown", expected="linear or circular", got=mode)
    wanted = (*past_cache.shape[:where], update.shape[where], *past_cache.shape[where + 1 :])
    require(update.shape == wanted, op, "'update' has the wrong shape", expected=wanted, got=update.shape)
    batch, size, count = past_cache.shape[0], past_cache.shape[where], update.shape[where]
    require(count <= size, op, "the update is longer than the cache", expected=f"<= {size}", got=count)
    found = (batch,) if write_indices is None else write_indices.shape
    require(found == (batch,), op, "'write_indices' has the wrong shape", expected=(batch,), got=found)
    present = past_cache.copy()
    _write_rows(present, update, write_indices, where, mode)
    return present


@kernel("OneHot", since=9)
@reference
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    """Mark each index on a new axis; an index outside it marks nothing."""
    op = "OneHot"
    size = int(read_scalar(op, "depth", depth))
    require(size >= 0, op, "'depth' must not be negative", got=size)
    require(values.shape == (2,), op, "'values' must hold two elements", expected=(2,), got=values.shape)
    where = normalize_axis(op, axis, indices.ndim + 1)
    require_room(op, (*indices.shape, size), np.dtype(np.int64))
    require_room(op, [size], np.dtype(np.int64))
    classes = np.expand_dims(_as_classes(indices, size), where)
    along: list[Any] = [1] * (indices.ndim + 1)
    along[where] = size
    marks = (classes == np.arange(size).reshape(along)).astype(np.int64)
    y: Array = values[marks]
    return y


def _as_classes(indices: Array, size: int) -> Array:
    whole = indices.astype(np.int64)
    return np.where(whole < 0, whole + size, whole)
