"""The activations of com.microsoft: the forms of GELU, and those fused with a bias."""

from __future__ import annotations

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import normalize_axis, require
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.kernels.onnx.activation import gelu as exact_or_tanh_gelu
from dovetail.providers.cpu.kernels.onnx.activation import sigmoid, softmax
from dovetail.providers.cpu.registry import kernel

__all__ = ["bias_add", "bias_gelu", "bias_softmax", "bias_split_gelu", "fast_gelu", "gelu", "quick_gelu"]

_DOMAIN = "com.microsoft"


def _add_bias(op: str, x: Array, bias: Array) -> Array:
    """A vector added along the last axis."""
    wanted = x.shape[-1:]
    require(bias.shape == wanted, op, "the bias must be as long as the last axis", expected=wanted, got=bias.shape)
    return x + bias


@kernel("Gelu", domain=_DOMAIN, since=1, types={"T": FLOATS})
@float_reference
def gelu(x: Array) -> Array:
    """Elements times the normal distribution function."""
    return np.asarray(exact_or_tanh_gelu(x))


@kernel("BiasGelu", domain=_DOMAIN, since=1, types={"T": FLOATS})
@float_reference
def bias_gelu(a: Array, b: Array) -> Array:
    """GELU of the input plus a bias."""
    return np.asarray(exact_or_tanh_gelu(_add_bias("BiasGelu", a, b)))


@kernel("FastGelu", domain=_DOMAIN, since=1, types={"T": FLOATS})
@float_reference
def fast_gelu(x: Array, bias: Array | None = None) -> Array:
    """GELU by its tanh approximation, of the input plus an optional bias."""
    moved = x if bias is None else _add_bias("FastGelu", x, bias)
    return np.asarray(exact_or_tanh_gelu(moved, approximate="tanh"))


@kernel("QuickGelu", domain=_DOMAIN, since=1, types={"T": FLOATS})
@float_reference
def quick_gelu(x: Array, *, alpha: float = 1.702) -> Array:
    """Elements times the logistic function of ``alpha`` times themselves."""
    return np.asarray(x * sigmoid(alpha * x))


@kernel("BiasSplitGelu", domain=_DOMAIN, since=1, types={"T": ("float32", "float16")})
@float_reference
def bias_split_gelu(x: Array, bias: Array) -> Array:
    """The left half of the input plus bias, times GELU of the right half."""
    moved = _add_bias("BiasSplitGelu", x, bias)
    require(x.shape[-1] % 2 == 0, "BiasSplitGelu", "the last axis must be even", got=x.shape)
    left, right = np.split(moved, 2, axis=-1)
    return np.asarray(left * exact_or_tanh_gelu(right))


@kernel("BiasAdd", domain=_DOMAIN, since=1, types={"T": ("float32", "float16")})
@float_reference
def bias_add(x: Array, bias: Array, skip: Array) -> Array:
    """The input plus a bias plus a residual of the same shape."""
    require(skip.shape == x.shape, "BiasAdd", "'skip' differs from the input", expected=x.shape, got=skip.shape)
    return _add_bias("BiasAdd", x, bias) + skip


@kernel("BiasSoftmax", domain=_DOMAIN, since=1, types={"T": ("float32", "float64", "float16")})
@float_reference
def bias_softmax(data: Array, bias: Array, *, axis: int = 1, is_inner_broadcast: int) -> Array:
    """Softmax over the axes from ``axis`` on, taken as one, of the scores plus a bias.

    The bias lacks axes of the scores: those next to the softmax when ``is_inner_broadcast`` is set, else the first.
    """
    op = "BiasSoftmax"
    first = normalize_axis(op, axis, data.ndim)
    spread = _spread_inner(op, data, bias, first) if is_inner_broadcast else _spread_outer(op, data, bias)
    scores = (data + spread).reshape(*data.shape[:first], -1)
    return np.asarray(softmax(scores, scores.ndim - 1)).reshape(data.shape)


def _spread_outer(op: str, data: Array, bias: Array) -> Array:
    """A bias whose leading axes are missing, or have size one."""
    kept = bias.reshape(bias.shape[next((i for i, n in enumerate(bias.shape) if n != 1), bias.ndim) :])
    tail = data.shape[data.ndim - kept.ndim :] if kept.ndim <= data.ndim else None
    require(kept.shape == tail, op, "'bias' is not the tail of the scores", expected=data.shape, got=bias.shape)
    return kept


def _spread_inner(op: str, data: Array, bias: Array, axis: int) -> Array:
    """A bias with size one on the axes before the softmax where it is repeated."""
    fits = bias.ndim == data.ndim and all(n in (1, m) for n, m in zip(bias.shape[:axis], data.shape, strict=False))
    fits = fits and bias.shape[axis:] == data.shape[axis:]
    require(fits, op, "'bias' does not broadcast before the axis", expected=data.shape, got=bias.shape)
    return bias
