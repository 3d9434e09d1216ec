"""The linear models of ai.onnx.ml: LinearClassifier and LinearRegressor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import require
from dovetail.providers.cpu.kernels._classes import (
    ML,
    NUMERIC,
    choose_labels,
    matrix_of,
    split_score,
    transform_scores,
)
from dovetail.providers.cpu.kernels._support import reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["linear_classifier", "linear_regressor"]


def _score(
    op: str, x: Array, coefficients: Sequence[float] | None, intercepts: Sequence[float] | None, targets: int | None
) -> Array:
    """One score a row of coefficients: products with the features plus the intercept."""
    rows = matrix_of(op, x)
    weights = np.array(coefficients or (), dtype=np.float64)
    features = rows.shape[1]
    count = weights.size // features if targets is None and features else targets or 0
    fits = count > 0 and weights.size == count * features
    require(fits, op, "'coefficients' has the wrong length", expected=f"a multiple of {features}", got=weights.size)
    scores = rows @ weights.reshape(count, features).T
    if intercepts:
        fits = len(intercepts) == count
        require(fits, op, "'intercepts' has the wrong length", expected=count, got=len(intercepts))
        scores += np.array(intercepts)
    return np.asarray(scores)


@kernel("LinearRegressor", since=1, domain=ML, types={"T": NUMERIC})
@reference
def linear_regressor(
    x: Array,
    *,
    coefficients: Sequence[float] | None = None,
    intercepts: Sequence[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Array:
    """A linear function of the features for each target."""
    op = "LinearRegressor"
    return transform_scores(op, _score(op, x, coefficients, intercepts, targets), post_transform)


@kernel("LinearClassifier", since=1, domain=ML, types={"T1": NUMERIC})
@reference
def linear_classifier(
    x: Array,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Sequence[float],
    intercepts: Sequence[float] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    """The class with the highest score; with one score for two classes, the second when it is positive.

    One-versus-rest and multinomial models differ in their transform alone, so ``multi_class`` changes nothing.
    """
    op = "LinearClassifier"
    scores = _score(op, x, coefficients, intercepts, None)
    classes = len(classlabels_ints or classlabels_strings or ())
    if scores.shape[1] == 1 and classes == 2:
        places = (scores[:, 0] > 0).astype(np.int64)
        scores = split_score(scores, post_transform, complement=True)
    else:
        places = np.argmax(scores, axis=1)
    labels = choose_labels(op, places, classlabels_ints, classlabels_strings)
    return labels, transform_scores(op, scores, post_transform)
