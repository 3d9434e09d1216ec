"""Random kernels: seeds repeat, no seed does not, types and distributions are those asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError, ModelError
from dovetail.providers.cpu.kernels._conversion import dtype_of
from dovetail.providers.cpu.kernels.onnx.random import (
    bernoulli,
    drop,
    drop_nothing,
    drop_nothing_masked,
    multinomial,
    random_normal,
    random_normal_like,
    random_uniform,
    random_uniform_like,
)

LARGE = (4000,)


@pytest.mark.parametrize("kernel", [random_uniform, random_normal])
def test_seed_repeats_and_its_absence_does_not(kernel: Any) -> None:
    assert np.array_equal(kernel(shape=LARGE, seed=0.5), kernel(shape=LARGE, seed=0.5))
    assert not np.array_equal(kernel(shape=LARGE, seed=0.5), kernel(shape=LARGE, seed=0.25))
    assert not np.array_equal(kernel(shape=LARGE), kernel(shape=LARGE))


@pytest.mark.parametrize("number", [1, 10, 11, 16])
def test_uniform_stays_below_its_upper_bound(number: int) -> None:
    drawn = random_uniform(shape=LARGE, dtype=number, low=2.0, high=3.0, seed=1.0)
    assert drawn.dtype == dtype_of(number)
    wide = drawn.astype(np.float64)
    assert wide.min() >= 2.0
    assert wide.max() < 3.0
    assert wide.mean() == pytest.approx(2.5, abs=0.03)


def test_normal_has_the_mean_and_scale() -> None:
    drawn = random_normal(shape=LARGE, mean=5.0, scale=2.0, seed=1.0)
    assert drawn.dtype == np.float32
    assert drawn.mean() == pytest.approx(5.0, abs=0.15)
    assert drawn.std() == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("kernel", [random_uniform_like, random_normal_like])
def test_like_takes_shape_and_type(kernel: Any) -> None:
    assert kernel(np.zeros((), np.float16)).dtype == np.float16
    assert isinstance(kernel(np.zeros((), np.float16)), np.ndarray)
    assert kernel(np.zeros((2, 3), np.int32), dtype=11).shape == (2, 3)
    with pytest.raises(ModelError, match="random values need a float type"):
        kernel(np.zeros(2, np.int32))


def test_bernoulli_follows_its_probabilities() -> None:
    p = np.full(LARGE, 0.25, np.float32)
    drawn = bernoulli(p, dtype=9, seed=3.0)
    assert drawn.dtype == np.bool_
    assert drawn.mean() == pytest.approx(0.25, abs=0.03)
    assert bernoulli(np.array(1.0)).tolist() == 1.0
    assert bernoulli(np.array(0.0)).tolist() == 0.0


def test_multinomial_follows_its_log_probabilities() -> None:
    x = np.log(np.array([[0.1, 0.9], [1e-30, 1.0]], np.float32))
    drawn = multinomial(x, dtype=7, sample_size=4000, seed=2.0)
    assert drawn.dtype == np.int64
    assert drawn.shape == (2, 4000)
    assert drawn.mean(axis=1) == pytest.approx([0.9, 1.0], abs=0.03)
    with pytest.raises(InputError, match="the input is no batch of classes"):
        multinomial(np.zeros(3, np.float32))


def test_dropout_infers_by_default() -> None:
    x = np.arange(3, dtype=np.float32)
    y, mask = drop(x, num_outputs=2)
    assert not np.shares_memory(y, x)
    assert np.array_equal(y, x)
    assert mask.dtype == np.bool_
    assert mask.all()
    assert drop_nothing(x, num_outputs=2)[1].dtype == np.float32
    assert drop_nothing_masked(x, num_outputs=2)[1].dtype == np.bool_
    assert len(drop_nothing(x)) == 1


def test_dropout_scales_what_it_keeps() -> None:
    x = np.ones(LARGE, np.float16)
    y, mask = drop(x, np.array(0.75, np.float32), np.array(True), seed=-1, num_outputs=2)
    assert y.dtype == np.float16
    assert np.array_equal(y, mask * np.float16(4))
    assert mask.mean() == pytest.approx(0.25, abs=0.03)
    with pytest.raises(InputError, match="the ratio is out of range"):
        drop(x, np.array(1.0, np.float32), np.array(True))
