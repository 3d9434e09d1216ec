"""Quantization by tensor, axis and block, to every quantized type, and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError, ModelError
from dovetail.providers.cpu.kernels._conversion import dtype_of, integer_limits, is_integer
from dovetail.providers.cpu.kernels.onnx.quantization import dequantize, quantize, quantize_dynamically

INTEGER_NUMBERS = [2, 3, 4, 5, 21, 22, 25, 26]
FLOAT_NUMBERS = [17, 18, 19, 20, 23, 27, 28]


@pytest.mark.parametrize("number", INTEGER_NUMBERS)
def test_integers_round_half_to_even_and_saturate(number: int) -> None:
    low, high = integer_limits(dtype_of(number))
    x = np.array([0.5, 1.5, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)
    y = quantize(x, np.array(1, np.float32), None, output_dtype=number)
    assert y.dtype == dtype_of(number)
    assert y.astype(np.int64).tolist() == [0, min(2, high), high, low, high, low, 0]


@pytest.mark.parametrize("number", FLOAT_NUMBERS)
def test_floats_hold_their_own_values(number: int) -> None:
    values = np.array([0.0, 0.5, 1.0, 1.5, 4.0], np.float32)
    y = quantize(values * 3, np.array(3, np.float32), None, output_dtype=number)
    assert y.dtype == dtype_of(number)
    assert y.astype(np.float32).tolist() == values.tolist()
    assert dequantize(y, np.array(3, np.float32), None).tolist() == (values * 3).tolist()


@pytest.mark.parametrize("number", INTEGER_NUMBERS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_dequantize_inverts_quantize(number: int, data: st.DataObject) -> None:
    low, high = integer_limits(dtype_of(number))
    steps = data.draw(st.lists(st.integers(low, high), min_size=1, max_size=8))
    zero = np.array(data.draw(st.integers(low, high))).astype(dtype_of(number))
    scale = np.array(data.draw(st.sampled_from([0.25, 1.0, 3.0])), np.float32)
    q = np.array(steps).astype(dtype_of(number))
    again = quantize(dequantize(q, scale, zero), scale, zero)
    assert again.dtype == q.dtype
    assert again.astype(np.int64).tolist() == steps


def test_one_scale_for_each_index_of_an_axis() -> None:
    x = np.array([[2.0, 20.0], [4.0, 40.0]], np.float32)
    scale, zero = np.array([1, 10], np.float32), np.array([0, 1], np.int8)
    assert quantize(x, scale, zero, axis=-1).tolist() == [[2, 3], [4, 5]]
    assert quantize(x, scale, zero, axis=0).tolist() == [[2, 20], [1, 5]]
    with pytest.raises(InputError, match="one scale an index is needed"):
        quantize(x, np.ones(3, np.float32), None, axis=0)


def test_one_scale_for_each_block() -> None:
    x = np.ones((2, 5), np.float32) * 12
    scale = np.array([[1, 2, 3], [4, 6, 12]], np.float32)
    y = quantize(x, scale, None, axis=1, block_size=2)
    assert y.tolist() == [[12, 12, 6, 6, 4], [3, 3, 2, 2, 1]]
    assert dequantize(y, scale, None, axis=1, block_size=2).tolist() == x.tolist()
    with pytest.raises(InputError, match="the blocks do not cover the tensor"):
        quantize(x, scale, None, axis=1, block_size=1)


def test_division_is_rounded_to_the_precision() -> None:
    x, scale = np.array([2049.0], np.float32), np.array(1.0, np.float16)
    assert quantize(x, scale, None, output_dtype=5).tolist() == [2048]
    assert quantize(x, scale, None, output_dtype=5, precision=1).tolist() == [2049]


def test_power_of_two_scales_need_an_output_type() -> None:
    q, scale = np.array([3], np.int8), np.array(0.5).astype(ml_dtypes.float8_e8m0fnu)
    assert dequantize(q, scale, None, output_dtype=16).dtype == ml_dtypes.bfloat16
    assert quantize(np.array([1.5], np.float32), scale, None).tolist() == [3]
    with pytest.raises(ModelError, match="needs 'output_dtype'"):
        dequantize(q, scale, None)


def test_two_output_types_must_agree() -> None:
    with pytest.raises(ModelError, match="names two output types"):
        quantize(np.zeros(1, np.float32), np.array(1, np.float32), np.array(0, np.int8), output_dtype=2)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_dequantized_type_is_that_of_the_scale(dtype: Any) -> None:
    result = dequantize(np.array(100, np.uint8), np.array(0.5, dtype), np.array(200, np.uint8))
    assert isinstance(result, np.ndarray)
    assert result.dtype == dtype
    assert float(result) == -50.0


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 2.0, -1.0], [5.0, 9.0], [-3.0]])
def test_dynamic_range_includes_zero(values: list[float]) -> None:
    x = np.array(values, np.float32)
    y, scale, zero_point = quantize_dynamically(x)
    assert (y.dtype, scale.dtype, zero_point.dtype) == (np.uint8, np.float32, np.uint8)
    assert scale.shape == zero_point.shape == ()
    np.testing.assert_allclose(dequantize(y, scale, zero_point), x, atol=float(scale) * 0.51)


def test_integer_kinds() -> None:
    assert [is_integer(dtype_of(n)) for n in (2, 22, 25, 1, 16, 17)] == [True, True, True, False, False, False]
