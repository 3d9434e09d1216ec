"""What the attention ops of com.microsoft share: heads, masks as numbers to add, rotation by position, and the mixing.

Heads are (batch, head, length, size). Everything is computed in float32; a score that must not count is the lowest
float32 rather than minus infinity, so that a query which may look nowhere gets the mean of what it may not see, as the
ops define it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import require

__all__ = [
    "LOWEST",
    "Attended",
    "attend",
    "check_bias",
    "hide_future",
    "hide_masked",
    "join_heads",
    "rotate",
    "split_heads",
]

LOWEST: Final = np.finfo(np.float32).min


@dataclass(frozen=True, kw_only=True)
class Attended:
    """The result of one attention."""

    values: Array
    """(batch, head, queries, size)."""
    scores: Array
    """What went into the softmax: (batch, head, queries, keys)."""
    weights: Array
    """What came out of it."""


def split_heads(op: str, x: Array, heads: int, *, name: str = "num_heads") -> Array:
    """(batch, length, heads * size) in float32, as (batch, head, length, size)."""
    require(x.ndim == 3, op, "an input must be (batch, length, features)", got=x.shape)
    fits = heads > 0 and x.shape[2] % heads == 0
    require(fits, op, f"'{name}' must divide the features", expected=f"a divisor of {x.shape[2]}", got=heads)
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2).astype(np.float32)


def join_heads(x: Array) -> Array:
    """(batch, head, length, size) as (batch, length, heads * size)."""
    batch, heads, length, size = x.shape
    return x.swapaxes(1, 2).reshape(batch, length, heads * size)


def attend(
    query: Array,
    key: Array,
    value: Array,
    *,
    scale: float,
    bias: Array | None = None,
    softcap: float = 0.0,
    sink: Array | None = None,
) -> Attended:
    """Mix the values by how well their keys match each query.

    Args:
        query: Its heads may be a multiple of those of the keys, which they then share.
        key: (batch, head, keys, size).
        value: (batch, head, keys, size of a value).
        scale: What the products are multiplied with.
        bias: What is added to them, broadcast.
        softcap: When positive, the bound that tanh bends the scaled products to, before the bias.
        sink: One more score a head, (head,), that takes its share of the weights and has no value.
    """
    shared = key.shape[1]
    grouped = query.reshape(query.shape[0], shared, query.shape[1] // shared, *query.shape[2:])
    products = np.matmul(grouped, key[:, :, None].swapaxes(-1, -2)).reshape(*query.shape[:3], key.shape[2])
    scores = products * np.float32(scale)
    if softcap > 0:
        scores = np.float32(softcap) * np.tanh(scores / np.float32(softcap))
    if bias is not None:
        # Two numbers that each forbid a score may not add up to minus infinity.
        scores = np.maximum(scores + bias, LOWEST)
    weights = _softmax(scores, sink)
    spread = weights.reshape(*grouped.shape[:4], key.shape[2])
    mixed = np.matmul(spread, value[:, :, None]).reshape(*query.shape[:3], value.shape[3])
    return Attended(values=np.asarray(mixed), scores=np.asarray(scores), weights=weights)


def _softmax(scores: Array, sink: Array | None) -> Array:
    if scores.shape[-1] == 0:
        return scores
    top = scores.max(axis=-1, keepdims=True)
    extra = None if sink is None else sink.astype(np.float32).reshape(1, -1, 1, 1)
    if extra is not None:
        top = np.maximum(top, extra)
    powers = np.exp(scores - top)
    total = powers.sum(axis=-1, keepdims=True)
    if extra is not None:
        total = total + np.exp(extra - top)
    return np.asarray(powers / total)


def hide_future(queries: int, keys: int, past: int) -> Array:
    """What keeps each query from the keys after it: (1, 1, queries, keys)."""
    later = np.arange(keys) > np.arange(queries)[:, None] + past
    return np.where(later, LOWEST, np.float32(0))[None, None]


def hide_masked(op: str, name: str, mask: Array, batch: int, queries: int, keys: int, value: float) -> Array:
    """A mask as numbers to add, (batch, 1, queries or 1, keys): zero where a key counts, ``value`` where it does not.

    The mask is one of: lengths (batch,), ends and starts (2 * batch,), lengths before two lists of offsets
    (3 * batch + 2,), ones and zeros a key (batch, keys), or a query and a key (batch, queries, keys).
    """
    place = np.arange(keys)
    if mask.ndim == 1:
        require(mask.size in (batch, 2 * batch, 3 * batch + 2), op, f"'{name}' has the wrong shape", got=mask.shape)
        seen = place < mask[:batch, None]
        if mask.size == 2 * batch:
            seen &= place >= mask[batch:, None]
        seen = seen[:, None]
    elif mask.shape in ((batch, 1), (1, 1)) and keys != 1:
        # A mask without a mask's shape says that there is none.
        seen = np.ones((1, 1, keys), dtype=bool)
    elif mask.shape == (batch, keys):
        seen = mask[:, None] > 0
    else:
        forms = f"({batch}, {keys}) or ({batch}, {queries}, {keys}) or a list of {batch} lengths"
        fits = mask.shape == (batch, queries, keys)
        require(fits, op, f"'{name}' has the wrong shape", expected=forms, got=mask.shape)
        seen = mask > 0
    return np.where(seen, np.float32(0), np.float32(value))[:, None]


def check_bias(op: str, bias: Array, shape: tuple[int, int, int, int]) -> Array:
    """The attention bias in float32; its first two axes may have size one."""
    batch, heads, queries, keys = shape
    fits = bias.ndim == 4 and bias.shape[0] in (1, batch) and bias.shape[1] in (1, heads)
    fits = fits and bias.shape[2:] == (queries, keys)
    require(fits, op, "'attention_bias' has the wrong shape", expected=shape, got=bias.shape)
    return bias.astype(np.float32)


def rotate(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """Rotate pairs of the first features by angles: x (..., size), cosine and sine (..., half of what is rotated)."""
    half = cos.shape[-1]
    first = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    y = x.copy()
    y[..., first] = cos * x[..., first] - sin * x[..., second]
    y[..., second] = sin * x[..., first] + cos * x[..., second]
    return y
