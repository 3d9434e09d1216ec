"""Activation functions: element by element, gated, and those that normalise along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from dovetail.errors import ModelError
from dovetail.providers.cpu._numeric import FLOATS, INTEGERS, NUMBERS, Array
from dovetail.providers.cpu.kernels._checks import normalize_axis
from dovetail.providers.cpu.kernels._erf import erf
from dovetail.providers.cpu.kernels._support import IEEE_FLOATS, SIGNED, WORDS, float_reference
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "celu",
    "clip",
    "clip_fixed",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "hardmax",
    "leaky_relu",
    "log_softmax",
    "mish",
    "parametric_relu",
    "relu",
    "selu",
    "shrink",
    "sigmoid",
    "softmax",
    "softplus",
    "softsign",
    "swiglu",
    "swish",
    "thresholded_relu",
]

_FLOAT32_MAX: Final = float(np.finfo(np.float32).max)
_ZEROS: Final = {np.dtype(name): np.zeros((), name) for name in ("float32", "float64", *INTEGERS)}
"""An array costs a ufunc less than the number 0, which it has to convert in every call."""
_SELU_ALPHA: Final = 1.67326319217681884765625
_SELU_GAMMA: Final = 1.05070102214813232421875


def _relu_into(x: Array, out: Array) -> None:
    np.maximum(x, _ZEROS[x.dtype], out=out)


@kernel("Relu", since=6, types={"T": SIGNED}, into=_relu_into)
@float_reference
def relu(x: Array) -> Array:
    """The positive part."""
    return np.maximum(x, 0)


def _sigmoid_terms(x: Array) -> tuple[Array, Array]:
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, decay), 1 + decay


def _sigmoid_into(x: Array, out: Array) -> None:
    np.divide(*_sigmoid_terms(x), out)


@kernel("Sigmoid", since=6, types={"T": FLOATS}, into=_sigmoid_into)
@float_reference
def sigmoid(x: Array) -> Array:
    """The logistic function, written so that the exponential never overflows and the small tail keeps its digits."""
    return np.asarray(np.divide(*_sigmoid_terms(x)))


@kernel("LeakyRelu", since=6, types={"T": FLOATS})
@float_reference
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    """The identity, with negative elements times ``alpha``."""
    return np.where(x < 0, x * alpha, x)


@kernel("PRelu", since=7, types={"T": FLOATS + WORDS})
@float_reference
def parametric_relu(x: Array, slope: Array) -> Array:
    """The identity, with negative elements times the slope broadcast to them."""
    return np.where(x < 0, x * slope, x)


@kernel("ThresholdedRelu", since=10, types={"T": FLOATS})
@float_reference
def thresholded_relu(x: Array, *, alpha: float = 1.0) -> Array:
    """Elements above ``alpha``, zero for the others."""
    return np.where(x > alpha, x, 0).astype(x.dtype)


@kernel("Elu", since=6, types={"T": FLOATS})
@float_reference
def elu(x: Array, *, alpha: float = 1.0) -> Array:
    """The identity, with negative elements bent toward ``-alpha``."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@kernel("Selu", since=6, types={"T": FLOATS})
@float_reference
def selu(x: Array, *, alpha: float = _SELU_ALPHA, gamma: float = _SELU_GAMMA) -> Array:
    """Elu scaled by ``gamma``, which keeps mean and variance through layers."""
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@kernel("Celu", since=12, types={"T": FLOATS})
@float_reference
def celu(x: Array, *, alpha: float = 1.0) -> Array:
    """Elu with a derivative that is continuous for every ``alpha``."""
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(np.minimum(x, 0) / alpha), 0)


def _softsign_into(x: Array, out: Array) -> None:
    np.divide(x, 1 + np.abs(x), out)


@kernel("Softsign", since=1, types={"T": FLOATS}, into=_softsign_into)
@float_reference
def softsign(x: Array) -> Array:
    """Elements divided by one plus their magnitude."""
    return np.asarray(x / (1 + np.abs(x)))


def _softplus_into(x: Array, out: Array) -> None:
    np.logaddexp(x, _ZEROS[x.dtype], out)


@kernel("Softplus", since=1, types={"T": FLOATS}, into=_softplus_into)
@float_reference
def softplus(x: Array) -> Array:
    """The logarithm of one plus the exponential, without overflow."""
    return np.asarray(np.logaddexp(x, x.dtype.type(0)))


@kernel("HardSigmoid", since=6, types={"T": FLOATS})
@float_reference
def hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """A line through ``beta``, cut at zero and one."""
    return np.clip(alpha * x + beta, 0, 1)


def _hard_swish_into(x: Array, out: Array) -> None:
    np.multiply(x, np.clip(x / 6 + 0.5, 0, 1), out)


@kernel("HardSwish", since=14, types={"T": FLOATS}, into=_hard_swish_into)
@float_reference
def hard_swish(x: Array) -> Array:
    """Elements times the line ``x / 6 + 1 / 2`` cut at zero and one."""
    return x * np.clip(x / 6 + 0.5, 0, 1)


@kernel("Gelu", since=20, types={"T": FLOATS})
@float_reference
def gelu(x: Array, *, approximate: str = "none") -> Array:
    """Elements times the normal distribution function, exactly or by its tanh approximation."""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    if approximate != "none":
        raise ModelError(f"Gelu approximate '{approximate}' does not exist", expected="none or tanh")
    # Where erf is close to -1 the sum cancels, so it is taken before rounding.
    wide = x.astype(np.float64)
    return np.asarray((0.5 * wide * (1 + erf(wide / math.sqrt(2)))).astype(x.dtype))


@kernel("Mish", since=18, types={"T": FLOATS})
@float_reference
def mish(x: Array) -> Array:
    """Elements times the tanh of their softplus."""
    return np.asarray(x * np.tanh(np.logaddexp(x, x.dtype.type(0))))


@kernel("Swish", since=24, types={"T": FLOATS})
@float_reference
def swish(x: Array, *, alpha: float = 1.0) -> Array:
    """Elements times the logistic function of ``alpha`` times themselves."""
    return np.asarray(x * sigmoid(alpha * x))


@kernel("SwiGLU", since=28, types={"T": FLOATS})
@float_reference
def swiglu(gate: Array, value: Array, *, alpha: float = 1.0) -> Array:
    """The swish of the gate times the value."""
    return np.asarray(gate * sigmoid(alpha * gate) * value)


@kernel("Shrink", since=9, types={"T": IEEE_FLOATS + INTEGERS})
@float_reference
def shrink(x: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """Elements moved by ``bias`` toward zero when their magnitude exceeds ``lambd``, zero otherwise."""
    moved = np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))
    return moved.astype(x.dtype)


def _clip_fixed_into(x: Array, out: Array, *, min: float = -_FLOAT32_MAX, max: float = _FLOAT32_MAX) -> None:  # noqa: A002
    np.minimum(np.maximum(x, x.dtype.type(min)), x.dtype.type(max), out=out)


@kernel("Clip", since=6, until=10, types={"T": IEEE_FLOATS}, into=_clip_fixed_into)
@float_reference
def clip_fixed(x: Array, *, min: float = -_FLOAT32_MAX, max: float = _FLOAT32_MAX) -> Array:  # noqa: A002
    """Elements limited to a range given by attributes."""
    return np.asarray(np.minimum(np.maximum(x, x.dtype.type(min)), x.dtype.type(max)))


def _clip_into(x: Array, *limits_and_out: Array | None) -> None:
    *limits, out = limits_and_out
    low, high = (*limits, None, None)[:2]
    if high is not None:
        np.minimum(x if low is None else np.maximum(x, low.reshape(())), high.reshape(()), out=out)
    elif low is not None:
        np.maximum(x, low.reshape(()), out=out)
    else:
        np.positive(x, out)


@kernel("Clip", since=11, types={"T": NUMBERS}, into=_clip_into)
@float_reference
def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """Elements limited to a range; where the limits cross, the upper one wins."""
    raised = x.copy() if low is None else np.maximum(x, low.reshape(()))
    return raised if high is None else np.minimum(raised, high.reshape(()))


def softmax(x: Array, axis: int) -> Array:
    """Exponentials that sum to one along an axis."""
    scaled = np.exp(x - _largest(x, axis))
    return np.asarray(scaled / np.sum(scaled, axis=axis, keepdims=True))


def log_softmax(x: Array, axis: int) -> Array:
    """The logarithm of ``softmax``, without the loss of small values."""
    shifted = x - _largest(x, axis)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)))


def hardmax(x: Array, axis: int) -> Array:
    """One at the first largest element along an axis, zero elsewhere."""
    result = np.zeros_like(x)
    if x.size:
        np.put_along_axis(result, np.argmax(x, axis=axis, keepdims=True), 1, axis)
    return result


def _largest(x: Array, axis: int) -> Array:
    return np.asarray(np.max(x, axis=axis, keepdims=True, initial=-np.inf))


def _register_along_axis(op: str, function: Callable[[Array, int], Array]) -> None:
    """Since opset 13 one axis is normalised; before, all axes from the given one on, taken as one."""

    def along_axis(x: Array, *, axis: int = -1) -> Array:
        return function(x, normalize_axis(op, axis, x.ndim))

    def along_trailing_axes(x: Array, *, axis: int = 1) -> Array:
        # The axis may equal the rank: then each element stands alone.
        first = axis if axis == x.ndim else normalize_axis(op, axis, x.ndim)
        rows = math.prod(x.shape[:first])
        return function(x.reshape(rows, math.prod(x.shape[first:])), 1).reshape(x.shape)

    kernel(op, since=1, until=12, types={"T": IEEE_FLOATS})(float_reference(along_trailing_axes))
    kernel(op, since=13, types={"T": FLOATS})(float_reference(along_axis))


_register_along_axis("Softmax", softmax)
_register_along_axis("LogSoftmax", log_softmax)
_register_along_axis("Hardmax", hardmax)
