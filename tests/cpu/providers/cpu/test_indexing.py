"""Indices that come from data: in range they work, negative or not, and out of range they are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels.onnx.indexing import (
    gather,
    gather_elements,
    gather_nd,
    one_hot,
    scatter_elements,
    scatter_nd,
    tensor_scatter,
)
from dovetail.providers.cpu.registry import registry

load_kernels()
DATA = np.arange(6, dtype=np.float32).reshape(2, 3)
EVERY_TYPE = (np.float64, np.int8, np.bool_, np.complex64, object, ml_dtypes.bfloat16, ml_dtypes.int4)

INDEXED: dict[str, Callable[[Array], Any]] = {
    "Gather": lambda i: gather(DATA, i, axis=1),
    "GatherElements": lambda i: gather_elements(DATA, i[None], axis=1),
    "GatherND": lambda i: gather_nd(DATA, np.stack([np.zeros_like(i), i], axis=-1)),
    "ScatterElements": lambda i: scatter_elements(DATA, i[None], np.zeros((1, i.size), np.float32), axis=1),
    "ScatterND": lambda i: scatter_nd(DATA.T, i[:, None], np.zeros((i.size, 2), np.float32)),
}


@pytest.mark.parametrize("op", INDEXED)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_indices_count_from_either_end(op: str, dtype: type) -> None:
    front, back = INDEXED[op](np.array([0, 2], dtype)), INDEXED[op](np.array([-3, -1], dtype))
    assert np.array_equal(front, back)


@pytest.mark.parametrize("op", INDEXED)
@pytest.mark.parametrize("bad", [3, -4, 2**31 - 1, -(2**31)])
def test_indices_out_of_range_are_refused(op: str, bad: int) -> None:
    with pytest.raises(InputError) as caught:
        INDEXED[op](np.array([0, bad]))
    assert str(caught.value).startswith(f"op {op}: index is out of range; expected -3..2, got {bad}\n")


@pytest.mark.parametrize("op", INDEXED)
def test_no_indices_do_nothing(op: str) -> None:
    y = INDEXED[op](np.zeros(0, np.int64))
    assert y.size == 0 or np.array_equal(np.sort(y, axis=None), np.sort(DATA, axis=None))


@pytest.mark.parametrize("dtype", EVERY_TYPE)
def test_every_type_is_moved(dtype: type) -> None:
    x = np.array(["1", "0", "2"] if dtype is object else [1, 0, 2], dtype=dtype)
    order = np.array([2, 0, -2])
    for y in (gather(x, order), gather_elements(x, order), gather_nd(x, order[:, None])):
        assert y.dtype == x.dtype
        assert y.tolist() == x[order].tolist()
    for y in (scatter_elements(x, order, x), scatter_nd(x, order[:, None], x)):
        assert y.dtype == x.dtype
        assert y[order].tolist() == x.tolist()


def test_scalar_index_removes_the_axis() -> None:
    y = gather(np.array([5, 6], np.int64), np.array(-1))
    assert isinstance(y, np.ndarray)
    assert (y.shape, y.item()) == ((), 6)


def test_empty_axis_has_no_index() -> None:
    empty = np.zeros((0, 2), np.float32)
    assert gather(empty, np.zeros((3, 0), np.int64)).shape == (3, 0, 2)
    with pytest.raises(InputError, match="op Gather: index is out of range"):
        gather(empty, np.array([0]))


@settings(max_examples=30)
@given(st.sampled_from(["add", "mul", "max", "min"]), st.lists(st.integers(-4, 3), max_size=6))
def test_repeated_indices_are_all_combined(reduction: str, places: list[int]) -> None:
    data = np.arange(4, dtype=np.int64) + 2
    updates = np.arange(len(places), dtype=np.int64) + 1
    expected = data.copy()
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    for place, update in zip(places, updates, strict=True):
        expected[place] = combine(expected[place], update)
    indices = np.array(places, dtype=np.int64)
    assert np.array_equal(scatter_elements(data, indices, updates, reduction=reduction), expected)
    assert np.array_equal(scatter_nd(data, indices[:, None], updates, reduction=reduction), expected)


def test_float16_sums_are_rounded_once() -> None:
    data, one = np.array([2048], np.float16), np.ones(2, np.float16)
    # Added one at a time, each one would be lost.
    assert scatter_elements(data, np.zeros(2, np.int64), one, reduction="add").tolist() == [2050]


def test_shapes_and_reductions_are_checked() -> None:
    indices = np.zeros((2, 1), np.int64)
    with pytest.raises(InputError, match="op ScatterElements: indices and updates differ in shape"):
        scatter_elements(DATA, indices, np.zeros((2, 2), np.float32))
    with pytest.raises(InputError, match="op GatherElements: indices are larger than the data"):
        gather_elements(DATA, np.zeros((3, 1), np.int64), axis=1)
    with pytest.raises(InputError, match="op ScatterND: 'updates' has the wrong shape"):
        scatter_nd(DATA, indices, np.zeros((1, 3), np.float32))
    with pytest.raises(InputError, match="op ScatterND: an index tuple does not fit"):
        scatter_nd(DATA, np.zeros((1, 3), np.int64), np.zeros(1, np.float32))
    with pytest.raises(InputError, match="'reduction' is unknown; expected none, add, mul, max, min, got mean"):
        scatter_nd(DATA, indices, DATA, reduction="mean")
    with pytest.raises(InputError, match=r"op Gather: axis is out of range; expected -2\.\.1, got 2"):
        gather(DATA, indices, axis=2)
    with pytest.raises(InputError, match="op GatherND: batches differ"):
        gather_nd(DATA, np.zeros((3, 1), np.int64), batch_dims=1)


def test_older_forms_assign() -> None:
    for op, opset in (("Scatter", 9), ("ScatterElements", 11)):
        found = registry.find(op, "", opset)
        assert found is not None
        assert found.function(DATA, np.array([[1]]), np.array([[9]], np.float32)).tolist() == [[0, 1, 2], [9, 4, 5]]
    assert registry.find("Scatter", "", 11) is None
    older = registry.find("GatherND", "", 11)
    assert older is not None
    assert older.function(DATA, np.array([[1]])).tolist() == [[3, 4, 5]]


def test_cache_is_written_from_each_start() -> None:
    cache, update = np.zeros((2, 4, 1), np.float32), np.ones((2, 2, 1), np.float32)
    assert tensor_scatter(cache, update, np.array([0, 2]))[:, :, 0].tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    wrapped = tensor_scatter(cache, update, np.array([3, 5]), mode="circular")
    assert wrapped[:, :, 0].tolist() == [[1, 0, 0, 1], [0, 1, 1, 0]]
    assert not cache.any()


@pytest.mark.parametrize("start", [3, -1])
def test_cache_is_not_written_outside(start: int) -> None:
    cache, update = np.zeros((1, 4, 1), np.float32), np.ones((1, 2, 1), np.float32)
    with pytest.raises(InputError, match=r"op TensorScatter: index is out of range; expected 0\.\.3"):
        tensor_scatter(cache, update, np.array([start]))
    with pytest.raises(InputError, match="the batch axis cannot be the sequence axis"):
        tensor_scatter(cache, update, axis=0)


def test_one_hot_ignores_what_is_outside() -> None:
    values = np.array([0, 7], np.int16)
    assert one_hot(np.array([-1, 3, -4, 1]), np.array(3), values).tolist() == [[0, 0, 7], [0] * 3, [0] * 3, [0, 7, 0]]
    assert one_hot(np.array(1), np.array([2]), values, axis=0).tolist() == [0, 7]
    assert one_hot(np.zeros(0, np.int64), np.array(3), values).shape == (0, 3)
    with pytest.raises(InputError, match="op OneHot: 'depth' must not be negative"):
        one_hot(np.array([1]), np.array(-1), values)
    with pytest.raises(InputError, match="op OneHot: 'depth' must hold one element"):
        one_hot(np.array([1]), np.array([1, 2]), values)
