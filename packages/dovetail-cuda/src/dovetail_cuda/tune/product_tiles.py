"""The tiles of a product that are worth trying: few, for each is compiled and timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dovetail_cuda.compile.products import ProductTile
from dovetail_cuda.graph.regions import ProductRegion
from dovetail_cuda.lower.types import size_of

__all__ = ["list_tiles"]

_SHARED_BYTES: Final = 220 << 10
_SHAPES: Final = (
    # rows, columns, what is summed at once, warps, stages
    (16, 64, 64, 4, 4),
    (16, 64, 128, 4, 4),
    (32, 32, 128, 4, 4),
    (32, 64, 64, 4, 4),
    (32, 64, 128, 4, 4),
    (64, 32, 128, 4, 4),
    (64, 64, 64, 4, 4),
    (64, 64, 128, 4, 3),
    (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 3),
    (128, 128, 64, 8, 3),
    (128, 256, 64, 8, 3),
)
_SPLITS: Final = (1, 2, 3, 4, 6, 8)
_MOST: Final = 14
_RESIDENT: Final = 3
"""Programs that a multiprocessor has at once."""


def list_tiles(region: ProductRegion, multiprocessors: int, *, is_right_weight: bool) -> list[ProductTile]:
    """The tiles worth trying, the most promising first; where all run at once, weights are read into the cache."""
    if region.dtype == "float64":
        return []
    found = {tile: _estimate(region, tile, multiprocessors) for tile in _list_possible(region, multiprocessors)}
    best = sorted(found, key=found.__getitem__)[:_MOST]
    most = _RESIDENT * multiprocessors
    return [replace(tile, prefetches=is_right_weight and _count_programs(region, tile) <= most) for tile in best]


def _count_programs(region: ProductRegion, tile: ProductTile) -> int:
    return region.batch * -(-region.m // tile.m) * -(-region.n // tile.n) * tile.split


def _list_possible(region: ProductRegion, multiprocessors: int) -> list[ProductTile]:
    """Tiles that do not waste most of themselves, and fit shared memory."""
    width, found = size_of(region.dtype), []
    for m, n, k, warps, stages in _SHAPES:
        is_wasteful = (m > 16 and m >= 2 * region.m) or (n > 32 and n >= 2 * region.n) or (k > 64 and k > region.k)
        if is_wasteful or (m + n) * k * width * stages > _SHARED_BYTES:
            continue
        blocks = region.batch * -(-region.m // m) * -(-region.n // n)
        for split in _SPLITS:
            is_even = region.k % (k * split) == 0 and region.k // split >= 2 * k
            if split == 1 or (is_even and blocks * split <= 3 * multiprocessors):
                found.append(ProductTile(m=m, n=n, k=k, num_warps=warps, num_stages=stages, split=split))
    return found


def _estimate(region: ProductRegion, tile: ProductTile, multiprocessors: int) -> float:
    """About how long a tile takes, in clocks: waves of programs, each with steps of loads or of multiplications."""
    width = size_of(region.dtype)
    programs = _count_programs(region, tile)
    steps = -(-region.k // (tile.k * tile.split))
    loads = (tile.m + tile.n) * tile.k * width / 40  # what one multiprocessor gets of the cache in a clock
    multiplied = tile.m * tile.n * tile.k / (1024 if tile.m >= 64 else 512)
    resident = max(1, min(2048 // (tile.num_warps * 64), _SHARED_BYTES // ((tile.m + tile.n) * tile.k * width * 3)))
    waves = -(-programs // multiprocessors)
    overlap = min(waves, resident)  # programs of one multiprocessor hide each other's waiting
    step = max(loads, multiplied) + 60 / overlap
    last = 600 + tile.m * tile.n / 64 + (1500 + tile.split * tile.m * tile.n / 16 if tile.split > 1 else 0)
    return waves * steps * step + last
