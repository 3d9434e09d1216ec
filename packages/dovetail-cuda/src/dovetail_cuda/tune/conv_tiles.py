"""How kernels of convolutions are cut: tiles worth trying, by a rough count of what each costs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Final

from dovetail_cuda.compile.convolution import ConvTile, count_steps
from dovetail_cuda.lower.tensors import ConvTensor
from dovetail_cuda.lower.types import size_of

__all__ = ["list_conv_tiles"]

_SIZES: Final = (
    *((16, 16), (16, 32), (16, 64), (32, 16), (32, 32), (32, 64), (64, 16), (64, 32), (64, 64)),
    *((64, 128), (128, 32), (128, 64), (128, 128), (128, 256), (256, 64)),
)
_SPLITS: Final = (1, 2, 3, 4, 6, 8, 12)
_MOST_TILES: Final = 8
_MOST_EARLY: Final = 4
_MANY_WARPS: Final = 16
_RESIDENT: Final = 3
"""Programs that a multiprocessor has at once."""
_SHARED_BYTES: Final = 200 << 10
_STEP_CYCLES: Final = 120
"""What a step takes at least."""
_START_CYCLES: Final = 1800
_SPLIT_CYCLES: Final = 1500
"""What adding the splits of a tile up takes."""
_PRODUCTS_A_CYCLE: Final = 1000
_BYTES_A_CYCLE: Final = 50


def list_conv_tiles(conv: ConvTensor, multiprocessors: int, *, is_weight: bool = False) -> list[ConvTile]:
    """The tiles worth trying, the most promising first; where all programs run at once, some of them early too."""
    if conv.is_depthwise:
        picked = _list_depthwise(conv, multiprocessors)
    else:
        found = [tile for m, n in _SIZES for tile in _list_cuts(conv, m, n)]
        picked = _pick(sorted(found, key=lambda tile: _estimate(conv, tile, multiprocessors)))
    most = _RESIDENT * multiprocessors
    few = [tile for tile in picked if _count_programs(conv, tile) <= most][:_MOST_EARLY]
    return [*picked, *(replace(tile, starts_early=True, prefetches=is_weight) for tile in few)]


def _count_programs(conv: ConvTensor, tile: ConvTile) -> int:
    batch, filters, high, wide = conv.whole_shape
    groups = 1 if conv.is_depthwise else conv.group
    return -(-batch * high * wide // tile.m) * -(-filters // groups // tile.n) * groups * tile.split


def _pick(ranked: list[ConvTile]) -> list[ConvTile]:
    """The best, of which no more than two differ in their splits alone."""
    picked: list[ConvTile] = []
    for tile in ranked:
        alike = [each for each in picked if (each.m, each.n) == (tile.m, tile.n)]
        if len(alike) < 2 and len(picked) < _MOST_TILES:
            picked.append(tile)
    return picked


def _list_cuts(conv: ConvTensor, m: int, n: int) -> list[ConvTile]:
    deep, filters = conv.weight.shape[1], conv.weight.shape[0] // conv.group
    pixels = math.prod(conv.whole_shape) // conv.whole_shape[1]
    if (m > 16 and m >= 2 * pixels) or (n > 16 and n >= 2 * filters):
        return []
    made = []
    for k in (32, 64, 128):
        is_fitting = k == 32 if deep < 32 else k <= deep and (k > 32 or deep % 64 != 0)
        steps = count_steps(conv, k)
        stages = min(4 if k < 128 else 3, max(steps, 2))
        if not is_fitting or (m + n) * k * size_of(conv.dtype) * stages > _SHARED_BYTES:
            continue
        warps = 8 if m * n >= 128 * 128 else 4
        for splits in _SPLITS:
            if splits == 1 or (steps >= 4 * splits and m * n <= 64 * 128):
                made.append(ConvTile(m=m, n=n, k=k, num_warps=warps, num_stages=stages, split=splits))
    return made


def _estimate(conv: ConvTensor, tile: ConvTile, multiprocessors: int) -> float:
    """Cycles, roughly."""
    waves = max(_count_programs(conv, tile) / multiprocessors, 1.0)
    steps = -(-count_steps(conv, tile.k) // tile.split)
    moved = (tile.m + tile.n) * tile.k * size_of(conv.dtype) / _BYTES_A_CYCLE
    step = max(tile.m * tile.n * tile.k / _PRODUCTS_A_CYCLE, moved, _STEP_CYCLES)
    return waves * (steps * step + tile.m * tile.n / 16) + _START_CYCLES + (_SPLIT_CYCLES if tile.split > 1 else 0)


def _list_depthwise(conv: ConvTensor, multiprocessors: int) -> list[ConvTile]:
    batch, filters, high, wide = conv.whole_shape
    pixels, found = batch * high * wide, []
    for m, n, lanes in itertools.product((1, 2, 4, 8, 16, 32), (16, 32, 64, 128), (4, 8)):
        if n < 2 * filters and m < 2 * pixels and 128 <= m * n <= 2048 and m * n >= 32 * lanes:
            found.append(ConvTile(m=m, n=n, k=1, num_warps=m * n // (32 * lanes), num_stages=1))

    def rate(tile: ConvTile) -> float:
        """How far the warps of a multiprocessor are from many, and how much of a tile is wasted."""
        warps = -(-pixels // tile.m) * -(-filters // tile.n) * tile.num_warps / multiprocessors
        waste = -(-filters // tile.n) * tile.n / filters
        return abs(math.log2(warps / _MANY_WARPS)) + 4 * math.log2(waste)

    return sorted(found, key=rate)[:_MOST_TILES]
