"""Caches of keys and values for GroupQueryAttention: how elements are stored, and which rows hold which positions.

A cache is (batch, head, row, size). A plain one holds position p in row p and has room for all positions; a sliding one
holds the last positions only, in order from row 0, and evicts several at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, require
from dovetail.providers.cpu.kernels.contrib.blocks import unpack_bits

__all__ = ["Rows", "Storage", "make_storage", "slide_rows", "stage_rows"]


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The elements of a cache: real numbers, or integers of some bits times a scale."""

    bits: int
    """0 for real numbers; 4 bits lie two in a byte, eight more than their value, the first in the lower half."""
    scale: Array | None

    def encode(self, x: Array, dtype: np.dtype[np.generic]) -> Array:
        """Real numbers as the cache holds them."""
        if self.scale is None:
            return x.astype(dtype)
        top = 2 ** (self.bits - 1)
        numbers = np.clip(np.rint(x / self.scale), -top, top - 1)
        if self.bits == 8:
            return numbers.astype(np.int8)
        halves = (numbers + top).astype(np.uint8)
        return np.asarray(halves[..., ::2] | halves[..., 1::2] << np.uint8(4))

    def decode(self, stored: Array) -> Array:
        """What the cache holds as real numbers, in float32."""
        if self.scale is None:
            return stored.astype(np.float32)
        numbers = stored if self.bits == 8 else unpack_bits(stored, 4).astype(np.int8) - np.int8(8)
        return np.asarray(numbers.astype(np.float32) * self.scale)


def make_storage(
    op: str, which: str, quant_type: str, scale: Array | None, bits: int | None, heads: int, size: int
) -> Storage:
    """How the cache of keys ('k') or of values ('v') holds its elements."""
    if quant_type == "NONE":
        require(scale is None, op, f"'{which}_scale' needs '{which}_quant_type'")
        return Storage(bits=0, scale=None)
    kinds = ("PER_TENSOR", "PER_CHANNEL")
    require(quant_type in kinds, op, f"'{which}_quant_type' is unknown", expected=", ".join(kinds), got=quant_type)
    width = 8 if bits is None else bits
    require(width in (4, 8), op, "'kv_cache_bit_width' is not supported", expected="4 or 8", got=bits)
    require(width == 8 or size % 2 == 0, op, "four bits need heads of an even size", got=size)
    if scale is None:
        fail(op, f"'{which}_scale' is missing")
    wanted = 1 if quant_type == "PER_TENSOR" else heads * size
    require(scale.size == wanted, op, f"'{which}_scale' has the wrong size", expected=wanted, got=scale.size)
    shaped = scale.reshape(()) if wanted == 1 else scale.reshape(1, heads, 1, size)
    return Storage(bits=width, scale=shaped.astype(np.float32))


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Where the keys of each sample lie while the new ones are attended to; all arrays are (batch,)."""

    past: Array
    """How many positions there were before."""
    total: Array
    """How many there are now."""
    first: Array
    """The position that row 0 holds."""

    def positions(self, count: int) -> Array:
        """The positions of so many rows: (batch, row)."""
        return np.asarray(self.first[:, None] + np.arange(count))


def stage_rows(past: Array | None, new: Array, rows: Rows, room: int) -> Array:
    """The past rows that are still held and the new ones after them, in so many rows."""
    staged = np.zeros((*new.shape[:2], room, new.shape[3]), dtype=new.dtype)
    if past is not None:
        kept = min(past.shape[2], room)
        staged[:, :, :kept] = past[:, :, :kept]
    for sample, start in enumerate((rows.past - rows.first).tolist()):
        staged[sample, :, start : start + new.shape[2]] = new[sample]
    return staged


def slide_rows(staged: Array, rows: Rows, held: Array, capacity: int) -> Array:
    """The last positions of each sample, ``held`` of them, moved to row 0 of a cache of this capacity."""
    cache = np.zeros((*staged.shape[:2], capacity, staged.shape[3]), dtype=staged.dtype)
    ends = (rows.total - rows.first).tolist()
    for sample, (end, count) in enumerate(zip(ends, held.tolist(), strict=True)):
        cache[sample, :, :count] = staged[sample, :, end - count : end]
    return cache
