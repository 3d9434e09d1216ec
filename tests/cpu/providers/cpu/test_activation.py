"""Activations in their tails, Clip and Softmax in their older forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dovetail.errors import InputError, ModelError
from dovetail.provider.kernels import KernelFunction
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels.onnx.activation import clip, gelu, sigmoid, softplus
from dovetail.providers.cpu.registry import registry

load_kernels()


def _kernel(op: str, opset: int) -> KernelFunction:
    found = registry.find(op, "", opset)
    assert found is not None
    return found.function


def test_sigmoid_keeps_its_small_tail() -> None:
    x = np.array([-80.0, -20.0, 0.0, 100.0], np.float32)
    expected = [math.exp(v) / (1 + math.exp(v)) for v in x.tolist()]
    np.testing.assert_allclose(sigmoid(x), expected, rtol=1e-6)


def test_gelu_keeps_its_small_tail() -> None:
    x = np.array([-6.0, -4.0, 1.0], np.float32)
    expected = [0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x.tolist()]
    np.testing.assert_allclose(gelu(x), expected, rtol=1e-6)
    with pytest.raises(ModelError, match="Gelu approximate 'fast' does not exist"):
        gelu(x, approximate="fast")


def test_softplus_does_not_overflow() -> None:
    assert softplus(np.array([1000.0, -1000.0], np.float32)).tolist() == [1000.0, 0.0]


def test_clip_limits_are_inputs_or_attributes() -> None:
    x = np.array([-2, 0, 9], np.int8)
    assert clip(x, np.array(-1, np.int8)).tolist() == [-1, 0, 9]
    assert clip(x, None, np.array(4, np.int8)).tolist() == [-2, 0, 4]
    assert clip(x, np.array(5, np.int8), np.array(3, np.int8)).tolist() == [3, 3, 3]
    older = _kernel("Clip", 6)(np.array([-2.0, 9.0], np.float32), min=-1.0)
    assert older.tolist() == [-1.0, 9.0]


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_older_softmax_takes_trailing_axes_as_one(op: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    older = _kernel(op, 11)(x, axis=1)
    newer = _kernel(op, 13)(x.reshape(2, 12), axis=-1).reshape(x.shape)
    np.testing.assert_array_equal(older, newer)
    assert not np.array_equal(older, _kernel(op, 13)(x, axis=1))


def test_softmax_of_huge_values_is_finite() -> None:
    assert _kernel("Softmax", 13)(np.array([1e30, 1e30, -1e30], np.float32)).tolist() == [0.5, 0.5, 0.0]


def test_hardmax_takes_the_first_of_equals() -> None:
    assert _kernel("Hardmax", 13)(np.array([1.0, 3.0, 3.0], np.float32)).tolist() == [0.0, 1.0, 0.0]


def test_axis_out_of_range_names_the_op() -> None:
    with pytest.raises(InputError, match="op Softmax: axis is out of range"):
        _kernel("Softmax", 13)(np.zeros((2, 2), np.float32), axis=2)
