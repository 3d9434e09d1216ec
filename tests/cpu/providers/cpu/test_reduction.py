"""Reductions over nothing, over no axes, of integers, and in both forms of naming the axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.provider.kernels import KernelFunction
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.registry import registry

load_kernels()


def _kernel(op: str, opset: int) -> KernelFunction:
    found = registry.find(op, "", opset)
    assert found is not None
    return found.function


def _axes(*axes: int) -> Array:
    return np.array(axes, dtype=np.int64)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("ReduceSum", 0),
        ("ReduceProd", 1),
        ("ReduceMax", -np.inf),
        ("ReduceMin", np.inf),
        ("ReduceL1", 0),
        ("ReduceL2", 0),
        ("ReduceSumSquare", 0),
        ("ReduceLogSum", -np.inf),
        ("ReduceLogSumExp", -np.inf),
    ],
)
def test_reduction_of_nothing(op: str, expected: float) -> None:
    result = _kernel(op, 20)(np.zeros((2, 0), np.float32), _axes(1))
    assert result.shape == (2, 1)
    assert result.reshape(-1).tolist() == [expected, expected]


@pytest.mark.parametrize(("dtype", "low", "high"), [(np.int32, -(2**31), 2**31 - 1), (np.uint8, 0, 255)])
def test_extremes_of_no_integers_are_the_ends_of_the_range(dtype: Any, low: int, high: int) -> None:
    nothing = np.zeros((0,), dtype)
    assert _kernel("ReduceMax", 20)(nothing, keepdims=0).tolist() == low
    assert _kernel("ReduceMin", 20)(nothing, keepdims=0).tolist() == high


@pytest.mark.parametrize(
    ("op", "function"),
    [("ReduceSum", np.copy), ("ReduceSumSquare", np.square), ("ReduceLogSum", np.log), ("ReduceL1", np.abs)],
)
def test_no_axes_reduces_nothing_when_asked(op: str, function: Any) -> None:
    x = np.array([[1.0, 2.0]], np.float32)
    result = _kernel(op, 18)(x, _axes(), noop_with_empty_axes=1)
    np.testing.assert_allclose(result, function(x))
    assert not np.shares_memory(result, x)
    assert _kernel(op, 18)(x, _axes()).shape == (1, 1)


def test_axes_as_attribute_in_older_opsets() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert _kernel("ReduceSum", 11)(x, axes=(0,), keepdims=0).tolist() == [3, 5, 7]
    assert _kernel("ReduceMean", 17)(x).tolist() == [[2.5]]
    assert _kernel("ReduceMean", 18)(x, _axes(-1), keepdims=0).tolist() == [1, 4]


def test_integer_means_truncate() -> None:
    assert _kernel("ReduceMean", 18)(np.array([-3, 0], np.int32), keepdims=0).tolist() == -1
    large = np.full(3, 2**31 - 1, np.int32)
    assert _kernel("ReduceMean", 18)(large, keepdims=0).tolist() == 2**31 - 1


def test_log_sum_exp_does_not_overflow() -> None:
    x = np.array([1000.0, 1000.0, -np.inf], np.float32)
    assert float(_kernel("ReduceLogSumExp", 18)(x, keepdims=0)) == pytest.approx(1000 + np.log(2))
    assert _kernel("ReduceLogSumExp", 18)(np.array([np.inf, 0.0], np.float32), keepdims=0) == np.inf


def test_wrong_axes_name_the_op() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(InputError, match="op ReduceSum: axis is out of range"):
        _kernel("ReduceSum", 13)(x, _axes(2))
    with pytest.raises(InputError, match="op ReduceSum: an axis is named twice"):
        _kernel("ReduceSum", 13)(x, _axes(1, -1))
    with pytest.raises(InputError, match="op ArgMax: the axis has no elements"):
        _kernel("ArgMax", 13)(np.zeros((2, 0), np.float32), axis=1)


def test_positions_of_equals() -> None:
    x = np.array([[2, 2, 1]], np.float16)
    assert _kernel("ArgMax", 13)(x, axis=1).tolist() == [[0]]
    assert _kernel("ArgMax", 13)(x, axis=1, select_last_index=1, keepdims=0).tolist() == [1]
    assert _kernel("ArgMin", 11)(x, axis=1, keepdims=0).dtype == np.int64


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float16, np.float64])
def test_running_totals_in_four_ways(dtype: Any) -> None:
    x, axis = np.array([1, 2, 3], dtype), np.array(0)
    total = _kernel("CumSum", 14)
    assert total(x, axis).tolist() == [1, 3, 6]
    assert total(x, axis, exclusive=1).tolist() == [0, 1, 3]
    assert total(x, axis, reverse=1).tolist() == [6, 5, 3]
    assert total(x, axis, exclusive=1, reverse=1).tolist() == [5, 3, 0]
    product = _kernel("CumProd", 26)
    assert product(x, axis, exclusive=1, reverse=1).tolist() == [6, 3, 1]
    assert product(x, axis).dtype == dtype
