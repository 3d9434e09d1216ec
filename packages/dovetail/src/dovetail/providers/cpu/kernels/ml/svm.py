"""The support vector machines of ai.onnx.ml: SVMClassifier and SVMRegressor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, require
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

__all__ = ["svm_classifier", "svm_regressor"]

Floats = Sequence[float] | None

_SURE = 1e-7
"""A pairwise probability keeps this distance from zero and one."""


def _kernel_matrix(op: str, x: Array, vectors: Array, kind: str, parameters: Floats) -> Array:
    """The kernel function of every row with every vector: (rows, vectors)."""
    require(x.shape[1] == vectors.shape[1], op, "features differ", expected=vectors.shape[1], got=x.shape[1])
    given = tuple(parameters or (0.0, 0.0, 0.0))
    require(len(given) == 3, op, "'kernel_params' must be gamma, coef0 and degree", expected=3, got=len(given))
    gamma, coef0, degree = given
    if kind == "LINEAR":
        return np.asarray(x @ vectors.T)
    if kind == "POLY":
        return np.asarray((gamma * (x @ vectors.T) + coef0) ** degree)
    if kind == "SIGMOID":
        return np.tanh(gamma * (x @ vectors.T) + coef0)
    if kind != "RBF":
        fail(op, "'kernel_type' is unknown", expected="LINEAR, POLY, RBF or SIGMOID", got=kind)
    distances = np.square(x[:, None, :] - vectors).sum(axis=2)
    return np.asarray(np.exp(-gamma * distances))


def _vectors(op: str, values: Floats, count: int) -> Array:
    flat = np.array(values or (), dtype=np.float64)
    fits = count > 0 and flat.size > 0 and flat.size % count == 0
    require(fits, op, "'support_vectors' has the wrong length", expected=f"a multiple of {count}", got=flat.size)
    return flat.reshape(count, -1)


@kernel("SVMRegressor", since=1, domain=ML, types={"T": NUMERIC})
@reference
def svm_regressor(
    x: Array,
    *,
    coefficients: Floats = None,
    kernel_params: Floats = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Floats = None,
    support_vectors: Floats = None,
) -> Array:
    """A weighted sum of kernels with the support vectors, or on which side of the class a row lies."""
    op = "SVMRegressor"
    rows, weights = matrix_of(op, x), np.array(coefficients or (), dtype=np.float64)
    require(bool(rho), op, "'rho' is empty")
    if n_supports > 0:
        kernels = _kernel_matrix(op, rows, _vectors(op, support_vectors, n_supports), kernel_type, kernel_params)
    else:
        kernels = rows
    fits = weights.size == kernels.shape[1]
    require(fits, op, "'coefficients' has the wrong length", expected=kernels.shape[1], got=weights.size)
    scores = (kernels @ weights + np.asarray(rho)[0])[:, None]
    return transform_scores(op, np.where(scores > 0, 1.0, -1.0) if one_class else scores, post_transform)


@kernel("SVMClassifier", since=1, domain=ML, types={"T1": NUMERIC})
@reference
def svm_classifier(
    x: Array,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Floats = None,
    kernel_params: Floats = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Floats = None,
    prob_b: Floats = None,
    rho: Floats = None,
    support_vectors: Floats = None,
    vectors_per_class: Sequence[int] | None = None,
) -> tuple[Array, Array]:
    """The class that wins most of the duels between two classes; without support vectors, the highest linear score."""
    op = "SVMClassifier"
    rows, classes = matrix_of(op, x), len(classlabels_ints or classlabels_strings or ())
    require(classes > 0 and bool(rho), op, "class labels or 'rho' are empty")
    if sum(vectors_per_class or ()) > 0:
        sizes = [int(size) for size in vectors_per_class or ()]
        fits = len(sizes) == classes and min(sizes) >= 0
        require(fits, op, "'vectors_per_class' does not fit the labels", expected=classes, got=sizes)
        vectors = _vectors(op, support_vectors, sum(sizes))
        kernels = _kernel_matrix(op, rows, vectors, kernel_type, kernel_params)
        scores = _duel(op, kernels, coefficients, sizes, rho)
        places = np.argmax(_count_wins(scores, classes), axis=1)
    else:
        scores = _score_linearly(op, rows, coefficients, classes, rho)
        places = np.argmax(scores, axis=1)
    if prob_a and sum(vectors_per_class or ()) > 0:
        scores = _probabilities(op, scores, classes, prob_a, prob_b)
    elif scores.shape[1] == 1 and classes == 2:
        scores = split_score(scores, post_transform, complement=False)
    labels = choose_labels(op, places, classlabels_ints, classlabels_strings)
    return labels, transform_scores(op, scores, post_transform)


def _score_linearly(op: str, rows: Array, coefficients: Floats, classes: int, rho: Floats) -> Array:
    weights = np.array(coefficients or (), dtype=np.float64)
    fits = weights.size == classes * rows.shape[1]
    require(fits, op, "'coefficients' has the wrong length", expected=classes * rows.shape[1], got=weights.size)
    return np.asarray(rows @ weights.reshape(classes, -1).T + np.asarray(rho)[0])


def _duel(op: str, kernels: Array, coefficients: Floats, sizes: list[int], rho: Floats) -> Array:
    """A score for each pair of classes, positive when the first one wins: (rows, pairs)."""
    classes, count = len(sizes), kernels.shape[1]
    pairs = list(itertools.combinations(range(classes), 2))
    weights = np.array(coefficients or (), dtype=np.float64)
    fits = weights.size == (classes - 1) * count
    require(fits, op, "'coefficients' has the wrong length", expected=(classes - 1) * count, got=weights.size)
    shifts = np.asarray(rho)
    require(shifts.size >= len(pairs), op, "'rho' has the wrong length", expected=len(pairs), got=shifts.size)
    table, bounds = weights.reshape(classes - 1, count), np.concatenate(([0], np.cumsum(sizes)))
    of_class = [slice(bounds[i], bounds[i + 1]) for i in range(classes)]
    # A vector has one coefficient against each other class: its own class is left out of the rows of the table.
    sums = [
        kernels[:, of_class[i]] @ table[j - 1, of_class[i]] + kernels[:, of_class[j]] @ table[i, of_class[j]]
        for i, j in pairs
    ]
    return np.asarray(np.stack(sums, axis=1) + shifts[: len(pairs)])


def _count_wins(scores: Array, classes: int) -> Array:
    wins = np.zeros((scores.shape[0], classes), dtype=np.int64)
    for pair, (i, j) in enumerate(itertools.combinations(range(classes), 2)):
        first = scores[:, pair] > 0
        wins[:, i] += first
        wins[:, j] += ~first
    return wins


def _probabilities(op: str, scores: Array, classes: int, prob_a: Floats, prob_b: Floats) -> Array:
    """Class probabilities from those of the duels, which Platt's sigmoid gives."""
    slopes, shifts = np.array(prob_a or ()), np.array(prob_b or ())
    fits = slopes.size == shifts.size == scores.shape[1]
    require(fits, op, "'prob_a' and 'prob_b' do not fit the classes", expected=scores.shape[1], got=slopes.size)
    wins = 1 / (1 + np.exp(scores * slopes + shifts))
    duels = np.zeros((scores.shape[0], classes, classes))
    for pair, (i, j) in enumerate(itertools.combinations(range(classes), 2)):
        duels[:, i, j] = np.clip(wins[:, pair], _SURE, 1 - _SURE)
        duels[:, j, i] = 1 - duels[:, i, j]
    return _couple(duels)


def _couple(duels: Array) -> Array:
    """Probabilities p that fit the duels r best: sum of (r_ji p_i - r_ij p_j)^2 over all pairs is least.

    Solved by coordinate descent with normalisation after each step, all rows at once; a row stops when its optimality
    condition holds to within the usual tolerance.
    """
    classes = duels.shape[1]
    across = np.swapaxes(duels, 1, 2)
    q = -across * duels
    own = np.square(across).sum(axis=2)
    q[:, np.arange(classes), np.arange(classes)] = own
    p = np.full((duels.shape[0], classes), 1 / classes)
    for _ in range(max(100, classes)):
        gradient = np.einsum("nij,nj->ni", q, p)
        value = (p * gradient).sum(axis=1)
        open_rows = np.flatnonzero(np.abs(gradient - value[:, None]).max(axis=1) >= 0.005 / classes)
        if not open_rows.size:
            break
        p[open_rows] = _descend(q[open_rows], p[open_rows], gradient[open_rows], value[open_rows])
    return p


def _descend(q: Array, p: Array, gradient: Array, value: Array) -> Array:
    """One sweep over the coordinates; the gradient and the value follow without another product."""
    for t in range(p.shape[1]):
        step = (value - gradient[:, t]) / q[:, t, t]
        p[:, t] += step
        scale = 1 + step
        value = (value + step * (step * q[:, t, t] + 2 * gradient[:, t])) / np.square(scale)
        gradient = (gradient + step[:, None] * q[:, t]) / scale[:, None]
        p /= scale[:, None]
    return p
