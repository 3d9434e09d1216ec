"""The training losses NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import require, wrap_indices
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["negative_log_likelihood_loss", "softmax_cross_entropy_loss"]


@kernel("NegativeLogLikelihoodLoss", since=12, types={"T": FLOATS})
@float_reference
def negative_log_likelihood_loss(
    x: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    """How unlikely the target classes are under these log-probabilities."""
    return _reduce_loss("NegativeLogLikelihoodLoss", x, target, weight, ignore_index, reduction)


@kernel("SoftmaxCrossEntropyLoss", since=12, types={"T": FLOATS})
@float_reference
def softmax_cross_entropy_loss(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Array, Array]:
    """The likelihood loss of the softmax of the scores, and the log-probabilities."""
    shifted = scores - np.max(scores, axis=1, keepdims=True, initial=-np.inf)
    log_probability = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
    loss = _reduce_loss("SoftmaxCrossEntropyLoss", log_probability, labels, weights, ignore_index, reduction)
    return loss, log_probability


def _reduce_loss(
    op: str, x: Array, target: Array, weight: Array | None, ignore_index: int | None, reduction: str
) -> Array:
    require(reduction in ("none", "sum", "mean"), op, "'reduction' is unknown", got=reduction)
    wanted = x.shape[:1] + x.shape[2:]
    require(
        x.ndim >= 2 and target.shape == wanted, op, "targets have the wrong shape", expected=wanted, got=target.shape
    )
    classes = x.shape[1]
    counted = np.ones(target.shape, dtype=bool) if ignore_index is None else target != ignore_index
    labels = wrap_indices(op, np.where(counted, target, 0), max(classes, 1), lowest=0)
    each = np.ones(classes, dtype=x.dtype) if weight is None else weight
    require(each.shape == (classes,), op, "'weight' has the wrong shape", expected=(classes,), got=each.shape)
    factors = np.where(counted, each[labels], x.dtype.type(0))
    picked = np.take_along_axis(x, labels[:, None], axis=1)[:, 0]
    # An ignored sample counts as zero whatever its score, an infinite one included.
    loss = np.where(counted, -picked * factors, x.dtype.type(0))
    if reduction == "none":
        return loss
    total = np.sum(loss)
    return np.asarray(total if reduction == "sum" else total / np.sum(factors), dtype=x.dtype)
