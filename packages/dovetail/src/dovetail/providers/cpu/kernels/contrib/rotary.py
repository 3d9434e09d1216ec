"""RotaryEmbedding of com.microsoft, whose caches hold the cosine and sine of every position."""

from __future__ import annotations

from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._attend import rotate
from dovetail.providers.cpu.kernels._checks import require, wrap_indices
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["rotary_embedding", "rows_at"]

_DOMAIN: Final = "com.microsoft"
_TYPES: Final = {"T": ("float32", "float16", "bfloat16"), "M": ("int64",)}


@kernel("RotaryEmbedding", domain=_DOMAIN, since=1, types=_TYPES)
@float_reference
def rotary_embedding(
    x: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Array:
    """Rotate pairs of features by angles that grow with the position.

    The positions are one a token, or the first, from which the others count. A batch that is packed is one long
    sequence whose positions start over, which changes nothing here. Neither does ``scale``: like ONNX Runtime's CPU,
    the kernel takes only 1.
    """
    op = "RotaryEmbedding"
    require(scale == 1.0, op, "'scale' is not supported", expected=1.0, got=scale)
    require(is_packed_batching in (0, 1), op, "'is_packed_batching' is unknown", got=is_packed_batching)
    heads = _by_head(op, x, cos_cache, num_heads, rotary_embedding_dim)
    rotated = rotary_embedding_dim or heads.shape[3]
    require(0 < rotated <= heads.shape[3] and rotated % 2 == 0, op, "'rotary_embedding_dim' does not fit", got=rotated)
    cos, sin = (
        rows_at(op, name, cache, position_ids, heads.shape[:2], rotated // 2)[:, :, None]
        for name, cache in (("cos_cache", cos_cache), ("sin_cache", sin_cache))
    )
    y = rotate(heads, cos, sin, interleaved=bool(interleaved))
    return y.reshape(x.shape) if x.ndim == 3 else np.ascontiguousarray(y.swapaxes(1, 2))


def _by_head(op: str, x: Array, cache: Array, num_heads: int, rotary_embedding_dim: int) -> Array:
    """(batch, length, head, size); without a count of heads the caches, which then cover a whole head, tell it."""
    require(x.ndim in (3, 4), op, "the input must have three or four axes", got=x.shape)
    require(cache.ndim == 2, op, "'cos_cache' must be a matrix", got=cache.shape)
    if x.ndim == 4:
        return x.swapaxes(1, 2)
    require(rotary_embedding_dim == 0 or num_heads > 0, op, "'rotary_embedding_dim' needs 'num_heads'")
    count = num_heads or x.shape[2] // max(2 * cache.shape[1], 1)
    require(count > 0 and x.shape[2] % count == 0, op, "'num_heads' must divide the features", got=count)
    return x.reshape(*x.shape[:2], count, x.shape[2] // count)


def rows_at(op: str, name: str, cache: Array, positions: Array, lead: tuple[int, ...], half: int) -> Array:
    """The cached values of each token, (batch, length, half)."""
    fits = cache.ndim == 2 and cache.shape[1] == half
    require(fits, op, f"'{name}' has the wrong width", expected=half, got=cache.shape)
    if positions.size == 1 and positions.ndim <= 1:
        counted = positions.reshape(()) + np.arange(lead[1], dtype=np.int64)
        positions = np.broadcast_to(counted, (lead[0], lead[1]))
    require(
        positions.shape == tuple(lead), op, "'position_ids' has the wrong shape", expected=lead, got=positions.shape
    )
    return cache[wrap_indices(op, positions, cache.shape[0], lowest=0)]
