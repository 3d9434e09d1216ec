"""Choosing elements by value: ties, NaN, empty inputs, types that NumPy cannot sort, and refused counts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels.onnx.selection import compress, non_max_suppression, non_zero, top_k, unique
from dovetail.providers.cpu.registry import registry

load_kernels()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float64, ml_dtypes.bfloat16])
@given(data=st.data())
def test_top_k_prefers_the_first_of_equals(dtype: type, data: st.DataObject) -> None:
    x = data.draw(hnp.arrays(np.int8, st.integers(1, 6), elements=st.integers(0, 3))).astype(dtype)
    count = data.draw(st.integers(0, x.size))
    for largest in (0, 1):
        values, indices = top_k(x, np.array([count]), largest=largest)
        order = sorted(range(x.size), key=lambda i, sign=-1 if largest else 1: (sign * float(x[i]), i))
        assert indices.tolist() == order[:count]
        assert (values.dtype, indices.dtype) == (x.dtype, np.int64)
        assert np.array_equal(values, x[order[:count]])


def test_top_k_at_the_ends_of_the_types() -> None:
    for dtype in (np.int64, np.uint64):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        assert top_k(np.array([low, high], dtype), np.array([1]))[0].tolist() == [high]
        assert top_k(np.array([low, high], dtype), np.array([1]), largest=0)[0].tolist() == [low]
    assert top_k(np.array([1.0, np.nan, 2.0]), np.array([2]))[1].tolist() == [1, 2]


def test_top_k_older_forms_and_refused_counts() -> None:
    for opset, arguments, attributes in ((1, (), {"k": 1}), (10, (np.array([1]),), {})):
        found = registry.find("TopK", "", opset)
        assert found is not None
        assert found.function(np.array([[1.0, 3.0]]), *arguments, **attributes)[1].tolist() == [[1]]
    for bad in (3, -1):
        with pytest.raises(InputError, match=r"op TopK: K is out of range; expected 0\.\.2"):
            top_k(np.zeros(2), np.array([bad]))
    with pytest.raises(InputError, match="op TopK: axis is out of range"):
        top_k(np.zeros(()), np.array([1]))


def _boxes(*rows: tuple[float, ...]) -> Array:
    return np.array([rows], np.float32)


def test_suppression_keeps_boxes_at_the_threshold() -> None:
    boxes = _boxes((0, 0, 1, 1), (0, 0, 1, 0.5), (1, 1, 0, 0))
    scores = np.array([[[0.9, 0.8, 0.7]]], np.float32)
    half = np.array([0.5], np.float32)
    # The second box overlaps the first by exactly one half; the third is the first with its corners swapped.
    assert non_max_suppression(boxes, scores, np.array([9]), half).tolist() == [[0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("limit", [None, np.array(0), np.array([-1])])
def test_suppression_without_a_limit_selects_nothing(limit: Array | None) -> None:
    y = non_max_suppression(_boxes((0, 0, 1, 1)), np.ones((1, 1, 1), np.float32), limit)
    assert (y.shape, y.dtype) == ((0, 3), np.int64)


def test_suppression_of_nothing_and_of_flat_boxes() -> None:
    empty = non_max_suppression(np.zeros((1, 0, 4), np.float32), np.zeros((1, 2, 0), np.float32), np.array([5]))
    assert empty.shape == (0, 3)
    flat = non_max_suppression(_boxes((0, 0, 0, 0), (0, 0, 0, 0)), np.ones((1, 1, 2), np.float32), np.array([5]))
    assert len(flat) == 2
    with pytest.raises(InputError, match="op NonMaxSuppression: 'scores' must be"):
        non_max_suppression(_boxes((0, 0, 1, 1)), np.ones((1, 1, 2), np.float32))


def test_non_zero() -> None:
    assert non_zero(np.array([[0, 2], [3, 0]])).tolist() == [[0, 1], [1, 0]]
    assert non_zero(np.zeros((0, 3))).shape == (2, 0)
    assert non_zero(np.array(5)).shape == (0, 1)
    assert non_zero(np.array(0)).shape == (0, 0)
    assert non_zero(np.array(["", "a"], dtype=object)).tolist() == [[1]]
    assert non_zero(np.array([0, -1], ml_dtypes.int4)).tolist() == [[1]]


def test_compress_refuses_flags_past_the_end() -> None:
    x = np.arange(6).reshape(2, 3)
    assert compress(x, np.array([False, True]), axis=1).tolist() == [[1], [4]]
    assert compress(x, np.array([True] + [False] * 9)).tolist() == [0]
    assert compress(x, np.zeros(0, bool), axis=0).shape == (0, 3)
    with pytest.raises(InputError, match="op Compress: 'condition' selects past the end"):
        compress(x, np.array([False, False, True]), axis=0)


@given(
    hnp.arrays(np.int8, hnp.array_shapes(max_dims=2, max_side=4, min_side=0), elements=st.integers(0, 2)), st.booleans()
)
def test_unique_leads_there_and_back(x: Array, ordered: bool) -> None:
    values, first, inverse, counts = unique(x, sorted=int(ordered))
    flat = x.reshape(-1)
    assert np.array_equal(values[inverse], flat)
    assert np.array_equal(flat[first], values)
    assert counts.tolist() == [int((flat == value).sum()) for value in values]
    expected = sorted(set(flat.tolist())) if ordered else list(dict.fromkeys(flat.tolist()))
    assert values.tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, object])
def test_unique_slices_of_any_type(dtype: type) -> None:
    rows = [["b", "a"], ["a", "b"], ["b", "a"]] if dtype is object else [[2, 1], [1, 2], [2, 1]]
    values, first, inverse, counts = unique(np.array(rows, dtype=dtype), axis=0)
    assert values.dtype == np.dtype(dtype)
    assert values.tolist() == [rows[1], rows[0]]
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([1, 0], [1, 0, 1], [1, 2])
    unsorted, *_ = unique(np.array(rows, dtype=dtype).T, axis=-1, sorted=0)
    assert unsorted.T.tolist() == [rows[0], rows[1]]
