"""Normalisations in narrow and mixed types, in training, in older forms and on empty batches."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.errors import InputError, ModelError
from dovetail.providers.cpu.kernels.onnx.normalization import (
    normalize_batch,
    normalize_batch_by_outputs,
    normalize_by_norm,
    normalize_group,
    normalize_group_by_group,
    normalize_instance,
    normalize_layer,
    normalize_rms,
)

RNG = np.random.default_rng(7)


def _values(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.normal(2.0, 3.0, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_layer_statistics_come_in_the_stash_type(dtype: Any) -> None:
    x, scale = _values(2, 8, dtype=dtype), np.ones(8, dtype)
    y, mean, inverse = normalize_layer(x, scale, num_outputs=3)
    assert (y.dtype, mean.dtype, inverse.dtype) == (dtype, np.float32, np.float32)
    assert mean.shape == inverse.shape == (2, 1)
    _, narrow, _ = normalize_layer(x, scale, stash_type=16, num_outputs=3)
    assert narrow.dtype == ml_dtypes.bfloat16
    assert len(normalize_layer(x, scale)) == 1


def test_large_float16_values_do_not_overflow_the_variance() -> None:
    x = np.array([[60000.0, -60000.0]], np.float16)
    (y,) = normalize_layer(x, np.ones(2, np.float16))
    np.testing.assert_allclose(y.astype(np.float32), [[1.0, -1.0]], rtol=1e-3)


def test_rms_takes_the_type_of_the_scale() -> None:
    y = normalize_rms(_values(2, 4, dtype=np.float16), np.ones(4, np.float32))
    assert y.dtype == np.float32
    np.testing.assert_allclose(np.mean(np.square(y), axis=1), [1, 1], rtol=1e-3)


def test_batch_takes_wider_statistics() -> None:
    x, ones, zeros = _values(2, 3, 4, dtype=np.float16), np.ones(3, np.float32), np.zeros(3, np.float32)
    (y,) = normalize_batch(x, ones, zeros, zeros, ones, epsilon=0.0)
    assert y.dtype == np.float16
    np.testing.assert_array_equal(y, x)


def test_batch_in_training_blends_the_statistics() -> None:
    x, ones, zeros = _values(4, 2, 5), np.ones(2, np.float32), np.zeros(2, np.float32)
    y, mean, var = normalize_batch(x, ones, zeros, zeros, ones, training_mode=1, momentum=0.75, num_outputs=3)
    np.testing.assert_allclose(y.mean(axis=(0, 2)), [0, 0], atol=1e-6)
    np.testing.assert_allclose(mean, x.mean(axis=(0, 2)) * 0.25, rtol=1e-5)
    np.testing.assert_allclose(var, 0.75 + x.var(axis=(0, 2)) * 0.25, rtol=1e-5)


def test_older_batch_trains_when_more_outputs_are_asked_for() -> None:
    x, ones, zeros = _values(4, 2, 5), np.ones(2, np.float32), np.zeros(2, np.float32)
    assert len(normalize_batch_by_outputs(x, ones, zeros, zeros, ones)) == 1
    outputs = normalize_batch_by_outputs(x, ones, zeros, zeros, ones, num_outputs=5)
    np.testing.assert_allclose(outputs[3], x.mean(axis=(0, 2)), rtol=1e-5)
    np.testing.assert_allclose(outputs[4], x.var(axis=(0, 2)), rtol=1e-5)


def test_batch_of_a_vector_is_one_channel() -> None:
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    (y,) = normalize_batch(np.array([2.0, 4.0], np.float32), one, zero, one, one, epsilon=0.0)
    assert y.tolist() == [1.0, 3.0]


def test_group_scales_by_group_then_by_channel() -> None:
    x = _values(2, 4, 3)
    by_channel = normalize_group(x, np.array([1, 1, 5, 5], np.float32), np.zeros(4, np.float32), num_groups=2)
    by_group = normalize_group_by_group(x, np.array([1, 5], np.float32), np.zeros(2, np.float32), num_groups=2)
    np.testing.assert_allclose(by_channel, by_group, rtol=1e-6)
    with pytest.raises(InputError, match="the channels do not divide into the groups"):
        normalize_group(x, np.ones(4, np.float32), np.zeros(4, np.float32), num_groups=3)


def test_groups_of_one_channel_are_instances() -> None:
    x, ones, zeros = _values(2, 4, 3), np.ones(4, np.float32), np.zeros(4, np.float32)
    np.testing.assert_allclose(
        normalize_group(x, ones, zeros, num_groups=4), normalize_instance(x, ones, zeros), rtol=1e-5, atol=1e-6
    )


def test_empty_batches_stay_empty() -> None:
    x, ones, zeros = _values(0, 4, 3), np.ones(4, np.float32), np.zeros(4, np.float32)
    assert normalize_group(x, ones, zeros, num_groups=2).shape == (0, 4, 3)
    assert normalize_instance(x, ones, zeros).shape == (0, 4, 3)


def test_norm_of_zeros_leaves_zeros() -> None:
    x = np.array([[0.0, 0.0], [3.0, 4.0]], np.float32)
    np.testing.assert_allclose(normalize_by_norm(x), np.array([[0, 0], [0.6, 0.8]]), rtol=1e-6)
    with pytest.raises(ModelError, match="LpNormalization of order 3 does not exist"):
        normalize_by_norm(x, p=3)
