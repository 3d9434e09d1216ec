"""Dropout of com.microsoft: with a bias and a residual, and with a mask of packed bits."""

from __future__ import annotations

from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import read_scalar, require
from dovetail.providers.cpu.kernels._support import reference, widen
from dovetail.providers.cpu.kernels.onnx.random import drop
from dovetail.providers.cpu.registry import kernel

__all__ = ["drop_biased", "drop_biased_to_bits", "drop_to_bits"]

_DOMAIN: Final = "com.microsoft"
_TYPES: Final = {"T": FLOATS, "T1": FLOATS, "T2": ("bool",)}
_WORD_BITS: Final = 32


def _drop(
    op: str,
    data: Array,
    bias: Array | None,
    residual: Array | None,
    ratio: Array | None,
    training_mode: Array | None,
    seed: int | None,
) -> tuple[Array, Array]:
    moved = widen(data)
    if bias is not None:
        fits = bias.shape in (data.shape, data.shape[-1:])
        require(fits, op, "'bias' does not fit the data", expected=data.shape[-1:], got=bias.shape)
        moved = moved + widen(bias)
    if training_mode is not None:
        read_scalar(op, "training_mode", training_mode)
    y, mask = drop(moved, ratio, training_mode, seed=seed, num_outputs=2)
    if residual is not None:
        require(residual.shape == data.shape, op, "'residual' differs from the data", got=residual.shape)
        y = y + widen(residual)
    return np.asarray(y).astype(data.dtype), mask


def _pack(mask: Array) -> Array:
    """One bit an element, the first in the lowest bit of the first word; the last word is filled with zeros."""
    bits = mask.reshape(-1)
    padded = np.pad(bits, (0, -bits.size % _WORD_BITS)).reshape(-1, _WORD_BITS)
    return np.packbits(padded, axis=1, bitorder="little").view("<u4").astype(np.uint32).reshape(-1)


@kernel("BiasDropout", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def drop_biased(
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Dropout of the data plus a bias, plus a residual; when inferring, only the sum."""
    return _drop("BiasDropout", data, bias, residual, ratio, training_mode, seed)[:num_outputs]


@kernel("BitmaskBiasDropout", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def drop_biased_to_bits(
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """BiasDropout with its mask as packed bits."""
    y, mask = _drop("BitmaskBiasDropout", data, bias, residual, ratio, training_mode, seed)
    return (y, _pack(mask))[:num_outputs]


@kernel("BitmaskDropout", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def drop_to_bits(
    data: Array,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    num_outputs: int = 1,
) -> tuple[Array, ...]:
    """Dropout with its mask as packed bits."""
    y, mask = _drop("BitmaskDropout", data, None, None, ratio, training_mode, seed)
    return (y, _pack(mask))[:num_outputs]
