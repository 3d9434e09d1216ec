"""Losses: ignored samples, weights, and labels outside the classes."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.providers.cpu.kernels.onnx.losses import negative_log_likelihood_loss, softmax_cross_entropy_loss


def test_ignored_samples_count_for_nothing() -> None:
    x = np.array([[-1, -2], [-np.inf, -np.inf]], np.float32)
    target = np.array([1, -100])
    assert negative_log_likelihood_loss(x, target, ignore_index=-100).item() == 2.0
    assert negative_log_likelihood_loss(x, target, ignore_index=-100, reduction="none").tolist() == [2.0, 0.0]


def test_weights_divide_the_mean() -> None:
    x = np.array([[-1, -2], [-3, -4]], np.float32)
    y = negative_log_likelihood_loss(x, np.array([0, 1]), np.array([1, 3], np.float32))
    assert y.item() == (1 + 12) / 4
    assert y.shape == ()


@pytest.mark.parametrize("bad", [2, -1])
def test_labels_outside_the_classes_are_refused(bad: int) -> None:
    with pytest.raises(InputError, match=r"op NegativeLogLikelihoodLoss: index is out of range; expected 0\.\.1"):
        negative_log_likelihood_loss(np.zeros((1, 2), np.float32), np.array([bad]))
    with pytest.raises(InputError, match="op SoftmaxCrossEntropyLoss: index is out of range"):
        softmax_cross_entropy_loss(np.zeros((1, 2), np.float32), np.array([bad]))
    with pytest.raises(InputError, match="targets have the wrong shape"):
        softmax_cross_entropy_loss(np.zeros((1, 2), np.float32), np.array([0, 1]))


def test_large_scores_do_not_overflow() -> None:
    scores = np.array([[1e4, 0.0]], np.float32)
    loss, log_probability = softmax_cross_entropy_loss(scores, np.array([1]), reduction="sum")
    assert loss.item() == 1e4
    assert log_probability.tolist() == [[0.0, -1e4]]
    half, _ = softmax_cross_entropy_loss(scores.astype(np.float16), np.array([0]))
    assert half.dtype == np.float16


def test_no_samples_sum_to_zero() -> None:
    loss, log_probability = softmax_cross_entropy_loss(
        np.zeros((0, 3), np.float32), np.zeros(0, np.int64), reduction="sum"
    )
    assert (loss.item(), log_probability.shape) == (0.0, (0, 3))
