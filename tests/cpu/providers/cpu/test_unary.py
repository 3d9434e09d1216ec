"""The error function, conversions between types, and other functions of one input."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import ModelError
from dovetail.providers.cpu.kernels._conversion import DTYPES, convert
from dovetail.providers.cpu.kernels._erf import erf
from dovetail.providers.cpu.kernels.onnx.unary import bit_cast, cast_like, cast_to, identity, is_inf

NUMBER_OF = {dtype: number for number, dtype in DTYPES.items()}
PAIRS = [(a, b) for a in DTYPES.values() for b in DTYPES.values() if "c" not in (a.kind, b.kind)]


@settings(max_examples=200, deadline=None)
@given(st.floats(-8, 8))
def test_erf_equals_the_scalar_function(x: float) -> None:
    assert float(erf(np.array(x))) == pytest.approx(math.erf(x), rel=1e-13, abs=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-7)])
def test_erf_over_the_whole_range(dtype: Any, tolerance: float) -> None:
    points = np.concatenate([np.linspace(-7, 7, 5001), [1.9999999, 2.0, 2.0000001, 5.9999, 6.0, 1e300, -np.inf]])
    with np.errstate(over="ignore"):
        x = points.astype(dtype)
    expected = np.array([math.erf(float(value)) for value in x])
    result = erf(x)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=0)


def test_erf_keeps_signed_zero_nan_and_shape() -> None:
    result = erf(np.array([[0.0, -0.0, np.nan]]))
    assert np.signbit(result).tolist()[0][:2] == [False, True]
    assert np.isnan(result[0, 2])
    assert erf(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert erf(np.array(0.5)).shape == ()


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda dtype: dtype.name)
def test_one_casts_between_all_types(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    one = np.array(["1"], dtype=object) if source == np.object_ else np.array([1]).astype(source)
    result = cast_to(one, to=NUMBER_OF[target])
    assert result.dtype == target
    assert result.tolist() == ["1"] if target == np.object_ else float(result[0]) == 1
    assert not np.shares_memory(result, one)


def test_integers_discard_high_bits() -> None:
    assert cast_to(np.array([200], np.int16), to=3).tolist() == [-56]
    assert cast_to(np.array([-8], ml_dtypes.int4), to=21).astype(int).tolist() == [8]
    assert cast_to(np.array([9], ml_dtypes.uint4), to=22).astype(int).tolist() == [-7]


@pytest.mark.parametrize(("number", "largest"), [(17, 448.0), (18, 240.0), (19, 57344.0), (20, 57344.0)])
def test_float8_saturates_or_not(number: int, largest: float) -> None:
    x = np.array([np.nan, np.inf, -1e6, 1e6], np.float32)
    held = cast_to(x, to=number).astype(np.float32)
    assert np.isnan(held[0])
    assert held[1:].tolist() == [largest, -largest, largest]
    assert not np.any(np.isfinite(cast_to(x, to=number, saturate=0).astype(np.float32)))


@pytest.mark.parametrize(("mode", "expected"), [("up", [2, 4, 4]), ("down", [1, 2, 2]), ("nearest", [1, 4, 2])])
def test_powers_of_two_round_by_mode(mode: str, expected: list[int]) -> None:
    x = np.array([1.25, 3.0, 2.0 + 1e-6], np.float32)
    assert cast_to(x, to=24, round_mode=mode).astype(np.float32).tolist() == expected


def test_powers_of_two_at_the_ends() -> None:
    x = np.array([0.0, np.inf, np.nan, -1.0], np.float32)
    held = cast_to(x, to=24).view(np.uint8).tolist()
    free = cast_to(x, to=24, saturate=0, round_mode="nearest").view(np.uint8).tolist()
    assert held == [0, 254, 255, 255]
    assert free == [255, 255, 255, 255]
    with pytest.raises(ModelError, match="round_mode 'sideways' does not exist"):
        cast_to(x, to=24, round_mode="sideways")


def test_strings_to_numbers_and_back() -> None:
    text = np.array([["3.5", "+INF", "-inf", "NaN"]], dtype=object)
    numbers = cast_to(text, to=1)
    assert numbers.dtype == np.float32
    assert numbers[0, :3].tolist() == [3.5, np.inf, -np.inf]
    assert np.isnan(numbers[0, 3])
    assert cast_to(numbers, to=8).tolist() == [["3.5", "INF", "-INF", "NaN"]]
    assert cast_to(np.array(["9007199254740993"], dtype=object), to=7).tolist() == [9007199254740993]
    assert cast_to(np.array([True, False]), to=8).tolist() == ["1", "0"]
    with pytest.raises(ModelError, match="a string cannot be cast to float32"):
        cast_to(np.array(["Hello"], dtype=object), to=1)


def test_element_type_must_exist() -> None:
    with pytest.raises(ModelError, match="element type number 99 does not exist"):
        cast_to(np.zeros(1), to=99)


def test_bool_is_nonzero_and_nan_is_true() -> None:
    assert convert(np.array([0.0, -0.0, 0.3, np.nan]), np.dtype(bool)).tolist() == [False, False, True, True]


def test_cast_like_takes_the_type_of_the_target() -> None:
    assert cast_like(np.array(2.5), np.zeros(3, np.int8)).dtype == np.int8


def test_bit_cast_reads_the_same_bits() -> None:
    assert bit_cast(np.array(1.0, np.float32), to=6).tolist() == 0x3F800000
    assert bit_cast(np.array([[-1]], np.int8), to=2).tolist() == [[255]]
    assert bit_cast(np.array([1, 2], np.int16)[::-1], to=4).tolist() == [2, 1]
    with pytest.raises(ModelError, match="BitCast cannot read float32 as int64"):
        bit_cast(np.zeros(2, np.float32), to=7)
    with pytest.raises(ModelError, match="BitCast cannot read int8 as int4"):
        bit_cast(np.zeros(2, np.int8), to=22)


def test_identity_copies_tensors_and_sequences() -> None:
    x = np.arange(3)
    assert not np.shares_memory(identity(x), x)
    assert identity([x]) == [x]
    assert identity(None) is None


def test_infinities_by_sign() -> None:
    x = np.array([-np.inf, np.inf, 1.0]).astype(ml_dtypes.float8_e5m2)
    assert is_inf(x, detect_positive=0).tolist() == [True, False, False]
    assert is_inf(x, detect_negative=0).tolist() == [False, True, False]
