"""Errors between two results: exact on what can be counted, tolerant by type, and never blind to NaN."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dovetail.tools.differences import Tolerance, compare_values, describe_range

FLOATS = hnp.arrays(np.float32, hnp.array_shapes(max_side=4), elements=st.floats(-1e6, 1e6, width=32))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["float32", "float16", "int64", "uint8", "bool", "complex64"]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
    )
)
def test_a_result_is_like_itself(array: Any) -> None:
    difference = compare_values("y", array, array.copy(), Tolerance(allow_nan=True))
    assert difference.is_close
    assert difference.num_wrong == 0
    assert difference.worst_index is None
    compared = int(np.isfinite(array).sum())
    assert difference.num_compared == compared
    assert difference.max_abs == difference.max_rel == (0 if compared else None)
    assert (difference.cosine is None) is (compared == 0)
    assert bool(difference.note) is (compared < array.size or not array.size)
    assert compare_values("y", array, array.copy()).is_close is (compared > 0 or not array.size)


@settings(max_examples=60, deadline=None)
@given(FLOATS, st.data())
def test_one_planted_error_is_found_where_it_is(array: Any, data: st.DataObject) -> None:
    index = tuple(data.draw(st.integers(0, size - 1)) for size in array.shape)
    wrong = array.copy()
    wrong[index] += max(1.0, float(np.abs(array).max()))
    difference = compare_values("y", wrong, array)
    assert not difference.is_close
    assert difference.worst_index == index
    assert difference.num_wrong == 1
    assert difference.worst_candidate == wrong[index]
    assert difference.worst_reference == array[index]
    assert difference.max_abs == pytest.approx(abs(float(wrong[index]) - float(array[index])))
    assert difference.mean_abs == pytest.approx(difference.max_abs / array.size)


@settings(max_examples=40, deadline=None)
@given(FLOATS, FLOATS)
def test_cosine_is_bounded_and_blind_to_scale(a: Any, b: Any) -> None:
    if a.shape == b.shape:
        assert -1 <= compare_values("y", a, b).cosine <= 1
    assert compare_values("y", 2 * a, a).cosine == pytest.approx(1)
    if np.abs(a).max() > 0:
        assert compare_values("y", -a, a).cosine == pytest.approx(-1)
        assert compare_values("y", 0 * a, a).cosine == 0


@pytest.mark.parametrize(
    ("dtype", "off", "is_close"),
    [
        ("float32", 5e-4, True),
        ("float32", 5e-3, False),
        ("float16", 0.15, True),
        ("float16", 0.3, False),
        ("bfloat16", 0.4, True),
        ("float64", 1e-4, False),
        ("int8", 1, True),
        ("int8", 2, False),
        ("int32", 1, False),
        ("int64", 1, False),
    ],
)
def test_the_type_decides_the_tolerance(dtype: str, off: float, is_close: bool) -> None:
    reference = np.array([0, 10], np.dtype(dtype))
    candidate = np.array([off, 10], np.dtype(dtype))
    assert compare_values("y", candidate, reference).is_close is is_close


def test_a_given_tolerance_replaces_that_of_the_type() -> None:
    a, b = np.float32([1.05, 100]), np.float32([1, 100])
    assert not compare_values("y", a, b).is_close
    assert compare_values("y", a, b, Tolerance(atol=0.1)).is_close
    assert compare_values("y", a, b, Tolerance(rtol=0.1)).is_close
    assert not compare_values("y", a, b, Tolerance(rtol=0.01)).is_close
    assert compare_values("y", np.int64([5]), np.int64([4]), Tolerance(atol=1)).is_close


def test_nan_and_infinity() -> None:
    nan, inf = np.nan, np.inf
    same = np.float32([nan, inf, -inf, 1])
    assert compare_values("y", same, same).is_close
    for wrong in ([0, inf, -inf, 1], [nan, -inf, -inf, 1], [nan, inf, 3e38, 1], [nan, inf, -inf, nan]):
        difference = compare_values("y", np.float32(wrong), same, Tolerance(atol=1e30, rtol=1))
        assert not difference.is_close
        assert difference.num_wrong == 1
        assert "NaN or infinity" in difference.reason
    assert compare_values("y", np.float32([nan, 0]), np.float32([0, 0])).worst_index == (0,)
    assert compare_values("y", same, np.float32([0, 0, 0, 0])).num_nan == (1, 0)


@pytest.mark.parametrize("element", [np.nan, np.inf, -np.inf])
def test_what_has_nothing_finite_verifies_nothing(element: float) -> None:
    hollow = np.full((2, 3), element, np.float32)
    found = compare_values("y", hollow, hollow.copy())
    assert (found.is_close, found.is_verified, found.differs, found.num_wrong) == (False, False, False, 0)
    assert (found.cosine, found.max_abs, found.mean_abs, found.max_rel, found.mean_rel) == (None,) * 5
    assert "nothing was compared" in found.reason
    allowed = compare_values("y", hollow, hollow, Tolerance(allow_nan=True))
    assert (allowed.is_close, allowed.is_verified, allowed.cosine) == (True, False, None)
    assert "nothing was compared" in allowed.note
    other = compare_values("y", -hollow if np.isinf(element) else np.zeros_like(hollow), hollow)
    assert (other.is_close, other.differs, other.num_wrong) == (False, True, 6)


def test_a_sequence_tells_what_each_of_its_tensors_lacks() -> None:
    good, hollow, empty = np.float32([1, 2]), np.float32([np.nan]), np.zeros((0,), np.float32)
    far = np.float32([1, 3])
    found = compare_values("s", [good, hollow], [good, hollow])
    assert (found.is_close, found.is_verified) == (False, False)
    assert compare_values("s", [far, hollow], [good, hollow]).differs
    told = compare_values("s", [good, empty, np.float32([np.nan, 1])], [good, empty, np.float32([np.nan, 1])])
    assert told.is_close
    assert "s[1]: empty, nothing compared" in told.note
    assert "s[2]: 1 NaN of 2 elements" in told.note
    assert compare_values("s", [], []).note == "empty, nothing compared"
    assert compare_values("t", np.array([], object), np.array([], object)).note == "empty, nothing compared"


def test_what_cannot_be_measured_has_no_errors_to_show() -> None:
    x = np.zeros((2, 3), np.float32)
    for candidate in (x.T, x.astype(np.int32), None):
        found = compare_values("y", candidate, x)
        assert found.differs
        assert (found.cosine, found.max_abs) == (None, None)


def test_integers_beyond_what_a_float_holds_are_exact() -> None:
    a, b = np.int64([2**62]), np.int64([2**62 + 1])
    assert not compare_values("y", a, b).is_close
    assert compare_values("y", a, b).worst_reference == 2**62 + 1


def test_types_and_shapes_must_be_the_same() -> None:
    x = np.zeros((2, 3), np.float32)
    assert "type is float64 instead of float32" in compare_values("y", x.astype(np.float64), x).reason
    assert "shape is 3x2 instead of 2x3" in compare_values("y", x.T, x).reason
    assert "shape is scalar" in compare_values("y", np.float32(0), x).reason


def test_objects() -> None:
    words = np.array(["a", "b"], object)
    assert compare_values("y", words, np.array(["a", "b"])).is_close
    difference = compare_values("y", words, np.array(["a", "c"], object))
    assert (difference.worst_index, difference.worst_candidate, difference.worst_reference) == ((1,), "b", "c")
    one, two = [np.zeros(2, np.float32)], [np.zeros(2, np.float32), np.ones(1, np.float32)]
    assert compare_values("s", two, two).is_close
    assert compare_values("s", [], []).is_close
    assert "1 elements instead of 2" in compare_values("s", one, two).reason
    assert compare_values("s", [*one, np.zeros(1, np.float32)], two).name == "s[1]"
    assert compare_values("o", None, None).is_close
    assert not compare_values("o", None, one[0]).is_close


def test_maps() -> None:
    rows = [{"p": 0.25, "q": 0.75}, {"p": 1.0, "q": 0.0}]
    assert compare_values("m", rows, [dict(reversed(row.items())) for row in rows]).is_close
    near = compare_values("m", [{"p": 0.25, "q": 0.75000001}, rows[1]], rows)
    assert (near.is_close, near.dtype, near.shape) == (True, "float32", (2, 2))
    far = compare_values("m", [rows[0], {"p": 1.0, "q": 0.5}], rows)
    assert (far.worst_index, far.worst_candidate, far.worst_reference) == ((1, 1), 0.5, 0.0)
    assert compare_values("m", {1: "a"}, {1: "a"}).is_close
    assert not compare_values("m", {1: "a"}, {1: "b"}).is_close
    assert compare_values("m", {}, {}).is_close


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        ([{"p": 1.0}], [{"q": 1.0}], "the keys are 'p' instead of 'q'"),
        ({}, {1: 2.0}, "the keys are none instead of 1"),
        (dict.fromkeys(range(9), 1.0), {1: 2.0}, "the keys are 0, 1, 2, 3, 4, 5, 6, 7, ... instead of 1"),
        ([{"p": 1.0}], [{"p": 1.0}] * 2, "the shape is 1x1 instead of 2x1"),
        ([{"p": 1.0}, {"q": 1.0}], [{"p": 1.0}, {"r": 1.0}], "the keys are 'q' instead of 'r'"),
        ({"p": 1.0}, np.float32([1]), "a map instead of no map"),
        (np.float32([1]), {"p": 1.0}, "no map instead of a map"),
        ({"p": 1}, {"p": 1.0}, "the type is int64 instead of float32"),
    ],
)
def test_maps_that_are_unlike(candidate: Any, reference: Any, expected: str) -> None:
    assert expected in compare_values("m", candidate, reference).reason


def test_narrow_floats() -> None:
    a = np.array([1, 2], ml_dtypes.float8_e4m3fn)
    assert compare_values("y", a, a).is_close
    assert not compare_values("y", a, np.array([1, 4], ml_dtypes.float8_e4m3fn)).is_close


def test_ranges() -> None:
    found = describe_range("x", np.float32([1, np.nan, np.inf, -3]))
    assert (found.min, found.max, found.mean, found.num_nan, found.num_inf) == (-3, 1, -1, 1, 1)
    assert describe_range("x", np.zeros((0, 2), np.int64)).min is None
    assert describe_range("x", np.array(["a"], object)).dtype == "string"
    assert describe_range("x", None).dtype == "none"
    assert describe_range("x", [np.ones(2), np.zeros(1)]).max == 1
    maps = describe_range("x", [{"p": 0.5}, {"p": 2.0}])
    assert (maps.dtype, maps.shape, maps.min, maps.max) == ("map of 1", (2, 1), 0.5, 2.0)
