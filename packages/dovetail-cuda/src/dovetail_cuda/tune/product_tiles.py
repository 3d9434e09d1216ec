"""The tiles of a product that are worth trying: few, for each is compiled and timed.

Which they are is estimated from what tiles were seen to take: loads that are on their way hide the waiting for memory,
so that deep pipelines win where a multiprocessor has one program, and tiles of 64 rows and more have the faster units.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dovetail_cuda.compile.products import ProductTile
from dovetail_cuda.compile.vectors import VectorTile
from dovetail_cuda.graph.regions import ProductRegion
from dovetail_cuda.lower.types import size_of
from dovetail_cuda.tune.kit import Kit

__all__ = ["list_tiles", "list_vector_tiles"]

_SPARE_BYTES: Final = 7 << 10
"""Shared memory that is left for what follows the sum."""
_SHAPES: Final = (
    # rows, columns, what is summed at once, warps, stages
    (16, 64, 64, 4, 4),
    (16, 64, 128, 4, 3),
    (16, 64, 128, 4, 6),
    (32, 32, 64, 4, 4),
    (32, 32, 128, 4, 4),
    (32, 64, 64, 4, 4),
    (32, 64, 128, 4, 4),
    (64, 32, 64, 4, 6),
    (64, 32, 128, 4, 4),
    (64, 32, 128, 4, 6),
    (64, 64, 64, 4, 4),
    (64, 64, 64, 4, 6),
    (64, 64, 128, 4, 3),
    (64, 64, 128, 4, 4),
    (64, 64, 128, 4, 6),
    (64, 128, 64, 4, 4),
    (128, 32, 64, 4, 6),
    (128, 32, 128, 4, 4),
    (128, 64, 64, 4, 3),
    (128, 64, 64, 4, 4),
    (128, 128, 64, 8, 3),
    (128, 128, 64, 4, 4),
    (128, 256, 64, 8, 3),
    (256, 128, 64, 8, 3),
)
_SPLITS: Final = (1, 2, 3, 4, 6)
_MOST: Final = 12
_MOST_ROWS: Final = 4
"""Products of more rows are multiplied in tiles only."""
_COLUMNS: Final = {True: (4, 8, 16, 32), False: (64, 128)}
"""Columns that a program has whole, by whether what is summed lies together; else many must, for lines of memory."""
_LOADED: Final = 256
"""Elements that are loaded at once of each column."""
_HELD: Final = (8, 128)
"""Elements of the right operand that a thread holds, at least and at most."""
_RESIDENT: Final = 3
"""Programs that a multiprocessor has at once, mostly."""


def list_tiles(region: ProductRegion, kit: Kit) -> list[ProductTile]:
    """The tiles worth trying, the most promising first; where all run at once, weights are read into the cache."""
    if region.dtype == "float64":
        return []
    found = {tile: _estimate(region, tile, kit) for tile in _list_possible(region, kit)}
    best = sorted(found, key=found.__getitem__)[:_MOST]
    most = _RESIDENT * kit.multiprocessors if kit.find_kind(region.right.buffer) == "weight" else 0
    return [replace(tile, prefetches=_count_programs(region, tile) <= most) for tile in best]


def list_vector_tiles(region: ProductRegion, kit: Kit) -> list[VectorTile]:
    """The tiles for a product of few rows, whose columns are held in registers."""
    if region.m > _MOST_ROWS or region.dtype == "float64":
        return []
    is_weight, along = kit.find_kind(region.right.buffer) == "weight", region.right.is_swapped
    loaded, found = _LOADED if along else 32, []
    for n in _COLUMNS[along]:
        for warps in (4, 8, 16):
            held = n * -(-region.k // loaded) * loaded // (32 * warps)
            if _HELD[0] <= held <= _HELD[1] and n < 2 * region.n and (warps < 16 or held > _HELD[1] // 4):
                rows = 1 << (region.m - 1).bit_length()
                tile = VectorTile(m=rows, n=n, k=loaded, num_warps=warps, num_stages=1, prefetches=is_weight)
                found.append(tile)
    return found[:_MOST]


def _list_possible(region: ProductRegion, kit: Kit) -> list[ProductTile]:
    """Tiles that do not waste most of themselves, and fit shared memory."""
    width, found = size_of(region.dtype), []
    for m, n, k, warps, stages in _SHAPES:
        is_wasteful = (m > 16 and m >= 2 * region.m) or (n > 32 and n >= 2 * region.n) or (k > 64 and k > region.k)
        if is_wasteful or (m + n) * k * width * stages > kit.shared_bytes - _SPARE_BYTES:
            continue
        blocks = region.batch * -(-region.m // m) * -(-region.n // n)
        for split in _SPLITS:
            is_even = region.k % (k * split) == 0 and region.k // split >= 2 * k
            if split == 1 or (is_even and blocks * split <= 3 * kit.multiprocessors):
                found.append(ProductTile(m=m, n=n, k=k, num_warps=warps, num_stages=stages, split=split))
    return found


def _count_programs(region: ProductRegion, tile: ProductTile) -> int:
    return region.batch * -(-region.m // tile.m) * -(-region.n // tile.n) * tile.split


def _estimate(region: ProductRegion, tile: ProductTile, kit: Kit) -> float:
    """About how many clocks the busiest multiprocessor takes."""
    mine = -(-_count_programs(region, tile) // kit.multiprocessors)
    resident = _count_resident(region, tile, kit)
    together, rounds = min(mine, resident), -(-mine // resident)
    steps, is_wide = -(-region.k // (tile.k * tile.split)), tile.m >= 64
    step_bytes = (tile.m + tile.n) * tile.k * size_of(region.dtype) * together
    loaded = steps * step_bytes / min(56, min(tile.num_stages - 1, steps) * step_bytes / 1500)
    multiplied = steps * together * tile.m * tile.n * tile.k / (768 if is_wide else 256)
    waited = steps * (60 if is_wide else 250)
    last = 1500 + tile.m * tile.n / 24 + (2500 + tile.split * tile.m * tile.n / 10 if tile.split > 1 else 0)
    return rounds * (max(loaded, multiplied) + waited) + last * max(1.0, 0.7 * rounds)


def _count_resident(region: ProductRegion, tile: ProductTile, kit: Kit) -> int:
    """How many programs fit a multiprocessor by their shared memory, threads and registers."""
    shared = (tile.m + tile.n) * tile.k * size_of(region.dtype) * tile.num_stages
    threads = 32 * tile.num_warps
    registers = threads * (tile.m * tile.n // threads + 64)
    return max(1, min(kit.shared_bytes // shared, 2048 // threads, 65536 // registers))
