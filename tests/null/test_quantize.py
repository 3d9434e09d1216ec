"""Changing types: rounding, saturation, and scales that must be there."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.errors import BuildError
from dovetail.quantize import convert_type
from dovetail.types import DataType

INT8 = np.dtype(np.int8)


def test_int8_rounds_half_to_even_and_saturates() -> None:
    real = np.array([0.25, 0.75, -0.25, 1e9, -1e9, np.inf, -np.inf, np.nan], np.float32)
    assert convert_type(real, INT8, target_scale=0.5).tolist() == [0, 2, 0, 127, -128, 127, -128, 0]


def test_int8_comes_back_as_steps_of_its_scale() -> None:
    steps = np.array([-128, -1, 0, 127], np.int8)
    for dtype in (np.float32, np.float16):
        real = convert_type(steps, np.dtype(dtype), source_scale=0.25)
        assert real.dtype == dtype
        assert real.tolist() == [-32.0, -0.25, 0.0, 31.75]


def test_int8_to_int8_changes_the_scale() -> None:
    steps = np.array([-100, 3, 100], np.int8)
    assert convert_type(steps, INT8, source_scale=0.5, target_scale=0.25).tolist() == [-128, 6, 127]
    assert convert_type(steps, INT8, source_scale=0.5, target_scale=0.5) is steps


def test_fp8_saturates_where_a_cast_would_give_nan() -> None:
    real = np.array([1e9, -465.0, 448.0, np.inf, np.nan], np.float32)
    found = convert_type(real, DataType.FP8.numpy).astype(np.float32)
    np.testing.assert_array_equal(found, np.array([448, -448, 448, 448, np.nan], np.float32))


def test_half_overflows_to_infinity_as_casts_do() -> None:
    assert convert_type(np.array([1e9], np.float32), np.dtype(np.float16)).tolist() == [np.inf]


@pytest.mark.parametrize("direction", ["to", "from"])
def test_int8_without_a_scale_is_an_error_with_a_way_out(direction: str) -> None:
    array = np.ones(2, np.float32 if direction == "to" else np.int8)
    with pytest.raises(BuildError, match="an INT8 tensor has no scale") as caught:
        convert_type(array, INT8 if direction == "to" else np.dtype(np.float32))
    assert "pass a calibrator" in str(caught.value)
