"""How kernels without products are cut: by a few rules, for there is little to choose."""

from __future__ import annotations

from typing import Final

from dovetail_cuda.compile.source import Tile
from dovetail_cuda.graph.regions import ElementRegion
from dovetail_cuda.lower.sizes import greatest

__all__ = ["choose_tile"]

_MOST_COLUMNS: Final = 16384
"""A row up to this is held in registers; a longer one is gone over in loops."""
_LOOP_COLUMNS: Final = 4096
_LANES: Final = 2048
"""Elements of a tile, where the rows are short enough for several."""


def choose_tile(region: ElementRegion, multiprocessors: int) -> Tile:
    """Tiles small enough that every multiprocessor has two, and large enough that each has work."""
    count = greatest(region.count)
    if region.rows is None:
        size = _power_above(-(-count // (2 * multiprocessors)), low=128, high=1024)
        return Tile(rows=size, num_warps=max(size // 256, 1))
    if not region.has_sums:
        side = 64 if count * region.rows.num_columns >= 64 * 64 * 2 * multiprocessors else 32
        return Tile(rows=side, columns=side, num_warps=4)
    width = greatest(region.rows.num_columns)
    columns = _power_above(width, low=1, high=_MOST_COLUMNS) if width <= _MOST_COLUMNS else _LOOP_COLUMNS
    rows = _power_above(-(-count // (2 * multiprocessors)), low=1, high=max(_LANES // columns, 1))
    return Tile(rows=rows, columns=columns, num_warps=_power_above(rows * columns // 512, low=1, high=16))


def _power_above(number: int, *, low: int, high: int) -> int:
    """The power of two from a number on, within bounds that are powers of two."""
    return min(max(1 << max(number - 1, 0).bit_length(), low), high)
