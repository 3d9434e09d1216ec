"""Rotation of features by angles that grow with the position, of ONNX and of com.microsoft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dovetail_cuda.lower.expr import Expr, apply, convert, position, select, within
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import reshape_to, transpose_to
from dovetail_cuda.lower.operators.gather import clamp_index, gather
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Tensor, refuse

__all__ = ["angles_at", "rotate", "rows_after"]

_TYPES: Final = ("float16", "bfloat16", "float32")
Coordinates = Sequence[Index]


def rotate(heads: Tensor, cos: Tensor, sin: Tensor, *, is_interleaved: bool) -> Tensor:
    """Pairs of the first features of (batch, length, heads, size) by angles (batch, length, half of those features)."""
    half = cos.shape[-1]
    turned, size = 2 * half, heads.shape[-1]
    if not 0 < turned <= size or cos.shape != (*heads.shape[:2], half) or sin.shape != cos.shape:
        raise refuse(f"angles of shape {cos.shape} do not turn heads of shape {heads.shape}")

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        d = at[-1]
        if is_interleaved:
            angle, other, first = d // 2 % half, d + 1 - d % 2 * 2, d % 2
        else:
            angle, other, first = d % half, (d + half) % turned, d // half
        own = heads.at(at, guard)
        c, s = (convert(each.at((at[0], at[1], angle), guard), own.dtype) for each in (cos, sin))
        partner = heads.at((*at[:-1], other % size), guard)
        text = "{0} * {2} + tl.where({4} == 0, -{1}, {1}) * {3}"
        made = apply(text, own, partner, c, s, position(first, "int32"), dtype=own.dtype)
        return select(within(d, 0, turned), made, own)

    return Tensor(shape=heads.shape, dtype=heads.dtype, pull=pull)


def angles_at(cache: Tensor, positions: Tensor, batch: int, length: int) -> Tensor:
    """The rows of a cache for tokens, by a position for each of them, or by the first."""
    if positions.shape == (batch, length):
        return gather(cache, positions)
    if positions.count != 1:
        raise refuse(f"positions of shape {positions.shape} are none of {batch} times {length} tokens")
    start = reshape_to(positions, ())
    return _rows_from(cache, batch, length, lambda at, guard: convert(start.at((), guard), "int64"))


def _rows_from(cache: Tensor, batch: int, length: int, start: Callable[[Coordinates, Expr | None], Expr]) -> Tensor:
    """The rows of a cache from a number on, which may be another for each sample."""

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        number = apply("{0} + {1}", start(at, guard), position(at[1]), dtype="int64")
        return cache.at((clamp_index(number, cache.shape[0]), at[2]), guard)

    return Tensor(shape=(batch, length, cache.shape[1]), dtype=cache.dtype, pull=pull, is_mapped=True)


def rows_after(cache: Tensor, past: Tensor, length: int) -> Tensor:
    """The rows of a cache for the tokens behind each sample's past."""
    return _rows_from(cache, past.shape[0], length, lambda at, guard: convert(past.at((at[0],), guard), "int64"))


def _part_heads(x: Tensor, num_heads: int, width: int) -> Tensor:
    """(batch, length, heads, size) of either form; without a count of heads, they are as wide as said."""
    if x.rank == 4:
        return transpose_to(x, (0, 2, 1, 3))
    count = num_heads or x.shape[2] // max(width, 1)
    if x.rank != 3 or count <= 0 or x.shape[2] % count:
        raise refuse(f"{x.shape} is nothing to rotate in {count} heads")
    return reshape_to(x, (*x.shape[:2], count, x.shape[2] // count))


def _join(turned: Tensor, x: Tensor) -> Tensor:
    return transpose_to(turned, (0, 2, 1, 3)) if x.rank == 4 else reshape_to(turned, x.shape)


@registry.register("RotaryEmbedding", since=23, types={"T": _TYPES})
def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Of ONNX: caches are of positions, or of tokens where there are no positions."""
    heads = _part_heads(x, num_heads, 0)
    batch, length = heads.shape[:2]
    _check_width(cos_cache, rotary_embedding_dim or heads.shape[3])
    cos, sin = (
        cache if position_ids is None else angles_at(cache, position_ids, batch, length)
        for cache in (cos_cache, sin_cache)
    )
    return _join(rotate(heads, cos, sin, is_interleaved=bool(interleaved)), x)


@registry.register("RotaryEmbedding", domain="com.microsoft", since=1, types={"T": _TYPES, "M": ("int64",)})
def rotary_embedding_by_position(
    x: Tensor,
    position_ids: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """Of com.microsoft: caches are of positions."""
    if scale != 1.0:
        raise refuse("it has no scale in RotaryEmbedding")
    heads = _part_heads(x, num_heads, 2 * cos_cache.shape[1])
    _check_width(cos_cache, rotary_embedding_dim or heads.shape[3])
    cos, sin = (angles_at(cache, position_ids, *heads.shape[:2]) for cache in (cos_cache, sin_cache))
    return _join(rotate(heads, cos, sin, is_interleaved=bool(interleaved)), x)


def _check_width(cache: Tensor, turned: int) -> None:
    if 2 * cache.shape[-1] != turned:
        raise refuse(f"a cache of {cache.shape[-1]} columns does not turn {turned} features")
