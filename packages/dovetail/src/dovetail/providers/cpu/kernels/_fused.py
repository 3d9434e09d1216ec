"""Activations that an op applies to its own result, by name: shared by the fused convolutions and matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, require
from dovetail.providers.cpu.kernels.onnx.activation import (
    celu,
    elu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    relu,
    selu,
    sigmoid,
    softplus,
    softsign,
    thresholded_relu,
)

__all__ = ["activate", "parameter_names", "parametric_softplus", "scaled_tanh"]

Activation = Callable[..., Array]


def parametric_softplus(x: Array, *, alpha: float, beta: float) -> Array:
    """``alpha`` times the softplus of ``beta`` times the input."""
    return np.asarray(alpha * np.logaddexp(x * beta, x.dtype.type(0)), dtype=x.dtype)


def scaled_tanh(x: Array, *, alpha: float, beta: float) -> Array:
    """``alpha`` times the tanh of ``beta`` times the input."""
    return np.asarray(alpha * np.tanh(beta * x), dtype=x.dtype)


def _clip(x: Array, *, low: float, high: float) -> Array:
    return np.asarray(np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)))


_ACTIVATIONS: Final[Mapping[str, tuple[tuple[str, ...], Activation]]] = {
    "Celu": (("alpha",), celu),
    "Clip": (("low", "high"), _clip),
    "Elu": (("alpha",), elu),
    "HardSigmoid": (("alpha", "beta"), hard_sigmoid),
    "HardSwish": ((), hard_swish),
    "LeakyRelu": (("alpha",), leaky_relu),
    "ParametricSoftplus": (("alpha", "beta"), parametric_softplus),
    "Relu": ((), relu),
    "ScaledTanh": (("alpha", "beta"), scaled_tanh),
    "Selu": (("alpha", "gamma"), selu),
    "Sigmoid": ((), sigmoid),
    "Softplus": ((), softplus),
    "Softsign": ((), softsign),
    "Tanh": ((), np.tanh),
    "ThresholdedRelu": (("alpha",), thresholded_relu),
}


def parameter_names(op: str, activation: str, known: frozenset[str]) -> tuple[str, ...]:
    """The parameters of an activation that this op offers."""
    require(activation in known, op, "'activation' is not supported", expected=", ".join(sorted(known)), got=activation)
    return _ACTIVATIONS[activation][0]


def activate(op: str, y: Array, activation: str, parameters: Mapping[str, float | None]) -> Array:
    """Apply a named activation; each parameter it has must be given and finite or infinite, never not a number."""
    names, function = _ACTIVATIONS[activation]
    given: dict[str, float] = {}
    for name in names:
        value = parameters.get(name)
        if value is None or math.isnan(value):
            fail(op, f"activation {activation} needs its parameter '{name}'", got=value)
        given[name] = value
    return np.asarray(function(y, **given), dtype=y.dtype)
