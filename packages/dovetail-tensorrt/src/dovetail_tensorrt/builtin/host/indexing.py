"""Elements by their index: scatter with a reduction, the largest of a row, pillars onto a map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import PluginError

__all__ = ["REDUCTIONS", "find_largest", "scatter_elements", "scatter_pillars"]

Array = npt.NDArray[Any]

REDUCTIONS: Final[Mapping[str, np.ufunc]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_LOW_WORD: Final = np.uint64(0xFFFFFFFF)


def scatter_elements(data: Array, indices: Array, updates: Array, axis: int, reduction: str) -> Array:
    """Data with updates reduced into it at indices along an axis, as ONNX's ScatterElements defines it.

    Cost: one copy of the data and one pass over the updates, in their order.
    """
    result = data.copy()
    if indices.size == 0:
        return result
    size = data.shape[axis]
    wrong = indices[(indices < -size) | (indices >= size)]
    if wrong.size:
        raise PluginError(
            "an index is out of bounds", where="ScatterElements", expected=f"{-size} to {size - 1}", got=int(wrong[0])
        )
    place: list[Array] = list(np.ogrid[tuple(slice(count) for count in indices.shape)])
    place[axis] = np.where(indices < 0, indices + size, indices)
    with np.errstate(all="ignore"):
        REDUCTIONS[reduction].at(result, tuple(place), updates)
    return result


def find_largest(values: Array, count: int, axis: int, *, is_largest: bool) -> tuple[Array, Array]:
    """The largest, or smallest, elements along an axis in their order, and their indices as INT32.

    Of equal elements the first wins; NaN is larger than all numbers. Cost: one partial sort of 64-bit keys a row.
    """
    rows = np.moveaxis(values, axis, -1)
    keys = _order_keys(rows)
    keys = ~keys if is_largest else keys  # the smallest key comes first
    wide = keys.astype(np.uint64) << np.uint64(32) | np.arange(rows.shape[-1], dtype=np.uint64)
    if 0 < count < rows.shape[-1]:
        wide = np.partition(wide, count - 1, axis=-1)
    chosen = (np.sort(wide[..., :count], axis=-1) & _LOW_WORD).astype(np.int64)
    found = np.take_along_axis(rows, chosen, axis=-1)
    return np.moveaxis(found, -1, axis), np.moveaxis(chosen.astype(np.int32), -1, axis)


def _order_keys(values: Array) -> Array:
    """Unsigned integers that have the order of the values."""
    sign = np.uint32(0x80000000)
    if values.dtype == np.int32:
        return values.view(np.uint32) ^ sign
    plain = np.where(np.isnan(values), np.float32(np.nan), values + np.float32(0))  # no sign of zero, one NaN
    bits = np.ascontiguousarray(plain, np.float32).view(np.uint32)
    return np.where(bits & sign, ~bits, bits | sign)


def scatter_pillars(features: Array, places: Array, counts: Array, height: int, width: int) -> Array:
    """Pillars on a dense map: (n, p, c), (n, p, 4), (n,) -> (n, c, height, width), zero where there is none.

    Only the first ``counts`` pillars of a frame count. One that lies outside of the map has no place in it and is left
    out; of several at one place the last wins. Cost: one pass over the map and one over the pillars.
    """
    batch, most, channels = features.shape
    dense = np.zeros((batch, height * width, channels), features.dtype)
    y, x = places[..., 2].astype(np.int64), places[..., 3].astype(np.int64)
    is_there = np.arange(most) < counts.reshape(batch, 1)
    is_there &= (y >= 0) & (y < height) & (x >= 0) & (x < width)
    frame, pillar = np.nonzero(is_there)
    dense[frame, (y * width + x)[frame, pillar]] = features[frame, pillar]
    return np.moveaxis(dense, -1, 1).reshape(batch, channels, height, width)
