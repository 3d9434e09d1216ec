"""What the models of ai.onnx.ml share: class labels, and the transforms from raw scores to the scores that come out.

Where the text of the operators leaves open what one score for two classes gives, this is what ONNX Runtime does, since
that is what such models are made for and tested with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, require

__all__ = ["ML", "NUMERIC", "TRANSFORMS", "choose_labels", "matrix_of", "split_score", "transform_scores"]

ML: Final = "ai.onnx.ml"
NUMERIC: Final = ("float32", "float64", "int32", "int64")
"""What these operators take as data."""

_WINITZKI: Final = 0.147
"""The constant of the closed approximation of the inverse error function, which both other implementations use."""
_ZERO: Final = 1e-7
"""A score this small counts as zero for SOFTMAX_ZERO."""


def matrix_of(op: str, x: Array) -> Array:
    """Data as rows of features in float64, which holds every element exactly but the largest of int64."""
    require(x.ndim in (1, 2), op, "the input must be [N, F] or [F]", got=x.shape)
    return x.astype(np.float64).reshape(-1, x.shape[-1])


def choose_labels(op: str, places: Array, ints: Sequence[int] | None, strings: Sequence[str] | None) -> Array:
    """The labels at these places of whichever list is given."""
    require(bool(ints) != bool(strings), op, "exactly one list of class labels must be given")
    labels = np.array(ints, dtype=np.int64) if ints else np.array(strings, dtype=object)
    inside = not places.size or (places.min() >= 0 and places.max() < labels.size)
    require(inside, op, "a class has no label", expected=f"< {labels.size}", got=places.max(initial=0))
    chosen: Array = labels[places]
    return chosen


def split_score(scores: Array, transform: str, *, complement: bool) -> Array:
    """Scores of two classes from the one that a binary model gives, before the transform.

    Probability-like scores are complements of each other, margins are opposites.
    """
    positive = scores.reshape(-1)
    opposite = complement and transform not in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
    return np.stack([1 - positive if opposite else -positive, positive], axis=1)


def _logistic(x: Array) -> Array:
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, decay) / (1 + decay))


def _softmax(x: Array) -> Array:
    scaled = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))


def _softmax_zero(x: Array) -> Array:
    """Softmax that leaves zeros at zero."""
    largest = x.max(axis=1, keepdims=True, initial=-np.inf)
    scaled = np.where(np.abs(x) > _ZERO, np.exp(x - largest), x * np.exp(-largest))
    total = scaled.sum(axis=1, keepdims=True)
    return np.where(total == 0, 0.5, scaled / np.where(total == 0, 1, total))


def _probit(x: Array) -> Array:
    """The inverse of the normal distribution function."""
    centred = 2 * x - 1
    log = np.log((1 - centred) * (1 + centred))
    half = 2 / (np.pi * _WINITZKI) + log / 2
    return np.asarray(np.sign(centred) * np.sqrt(2 * (np.sqrt(half * half - log / _WINITZKI) - half)))


TRANSFORMS: Final[dict[str, Callable[[Array], Array]]] = {
    "NONE": lambda x: x,
    "SOFTMAX": _softmax,
    "LOGISTIC": _logistic,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}
"""In the order of the numbers that TreeEnsemble gives them."""


def transform_scores(op: str, scores: Array, transform: str, dtype: Any = np.float32) -> Array:
    """Apply the ``post_transform`` of this name to each row of scores."""
    function = TRANSFORMS.get(transform)
    if function is None:
        fail(op, "'post_transform' is unknown", expected=", ".join(TRANSFORMS), got=transform)
    return function(scores).astype(dtype)
