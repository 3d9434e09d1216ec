"""Integer division, powers, shifts, remainders and selection at their edges."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import ModelError
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels.onnx.elementwise import bit_shift, divide, modulo, power, where
from dovetail.providers.cpu.registry import registry

load_kernels()
BYTES = st.integers(-128, 127)


@settings(max_examples=200, deadline=None)
@given(BYTES, BYTES.filter(bool))
def test_integer_division_truncates(a: int, b: int) -> None:
    result = divide(np.array(a, np.int16), np.array(b, np.int16))
    assert result.dtype == np.int16
    assert int(result) == int(Fraction(a, b))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64])
def test_unsigned_division(dtype: type) -> None:
    assert divide(np.array([250, 7], dtype), np.array([7, 250], dtype)).tolist() == [35, 0]


def test_division_by_zero_is_quiet() -> None:
    with np.errstate(all="raise"):
        assert np.isinf(divide(np.array(1.0, np.float32), np.array(0.0, np.float32)))
        assert divide(np.array([1]), np.array([0])).shape == (1,)


def test_narrow_sums_round_once() -> None:
    add = registry.find("Sum", "", 13)
    assert add is not None
    parts = [np.array(v, np.float16) for v in (2048.0, 1.0, 1.0)]
    assert float(add.function(*parts)) == 2050.0


@settings(max_examples=100, deadline=None)
@given(BYTES, st.integers(0, 40))
def test_integer_powers_wrap(base: int, exponent: int) -> None:
    result = power(np.array(base, np.int32), np.array(exponent, np.int64))
    assert int(result) % 2**32 == base**exponent % 2**32


def test_power_keeps_the_type_of_the_base() -> None:
    assert power(np.array([2, 4], np.int32), np.array([0.5, 0.5], np.float32)).tolist() == [1, 2]
    assert power(np.array(2.0, np.float32), np.array(-1, np.int64)).dtype == np.float32
    assert power(np.array([2, 1, -1], np.int64), np.array([-1, -3, -3])).tolist() == [0, 1, -1]
    assert power(np.array([3], np.uint8), np.array([200], np.uint8)).tolist() == [pow(3, 200, 256)]
    assert power(np.array(3, ml_dtypes.bfloat16), np.array(2, np.int8)).dtype == ml_dtypes.bfloat16


def test_shifts_outside_the_width_leave_the_sign() -> None:
    x, amount = np.array([-8, 8, -8, 8], np.int8), np.array([8, 8, -1, -1], np.int8)
    assert bit_shift(x, amount, direction="RIGHT").tolist() == [-1, 0, -1, 0]
    assert bit_shift(x, amount, direction="LEFT").tolist() == [0, 0, 0, 0]
    with pytest.raises(ModelError, match="BitShift direction 'UP' does not exist"):
        bit_shift(x, amount, direction="UP")


def test_remainder_takes_the_sign_asked_for() -> None:
    a, b = np.array([-7, 7]), np.array([3, -3])
    assert modulo(a, b).tolist() == [2, -2]
    assert modulo(a, b, fmod=1).tolist() == [-1, 1]


def test_where_serves_strings_and_small_types() -> None:
    chosen = where(np.array([True, False]), np.array("a", dtype=object), np.array("b", dtype=object))
    assert chosen.tolist() == ["a", "b"]
    small = where(np.array(True), np.array(1, ml_dtypes.int4), np.array(2, ml_dtypes.int4))
    assert small.dtype == ml_dtypes.int4
    assert small.shape == ()


def test_strings_compare_equal() -> None:
    equal = registry.find("Equal", "", 19)
    assert equal is not None
    result = equal.function(np.array(["a", "b"], dtype=object), np.array(["a", "c"], dtype=object))
    assert result.dtype == bool
    assert result.tolist() == [True, False]
