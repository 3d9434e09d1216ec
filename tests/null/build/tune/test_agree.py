"""What counts as the same result when candidates differ in precision, and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.build.tune.agree import Output, Result, Verdict, judge
from dovetail.quantize import convert_type
from dovetail.types import DataType

REAL = np.random.default_rng(0).normal(size=500) * 2.0
SCALE = float(np.abs(REAL).max() / 127)
TYPES = (DataType.FLOAT, DataType.HALF, DataType.BF16, DataType.FP8, DataType.INT8)


def _rounded(values: np.ndarray, dtype: DataType, scale: float = SCALE) -> Result:
    """What a kernel that computes exactly and rounds once gives in a type."""
    factor = scale if dtype is DataType.INT8 else -1.0
    stored = convert_type(values.astype(np.float32), dtype.numpy, target_scale=factor)
    real = stored.astype(np.float64) * (factor if factor > 0 else 1.0)
    return Result((Output(dtype, real, factor),), (dtype,))


def _judge(*results: Result) -> Verdict:
    return judge(dict(enumerate(results)))


@pytest.mark.parametrize("magnitude", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("dtype", TYPES)
def test_rounding_to_a_type_is_not_wrong_at_any_magnitude(dtype: DataType, magnitude: float) -> None:
    real = REAL * (magnitude if dtype is not DataType.FP8 else min(magnitude, 100.0))
    verdict = _judge(_rounded(real, DataType.FLOAT), _rounded(real, dtype, SCALE * magnitude))
    assert verdict == Verdict()


@pytest.mark.parametrize("dtype", TYPES)
def test_a_real_mistake_is_found_in_every_type(dtype: DataType) -> None:
    shifted = np.roll(REAL, 1)
    verdict = _judge(_rounded(REAL, DataType.FLOAT), _rounded(REAL, DataType.FLOAT), _rounded(shifted, dtype))
    assert list(verdict.wrong) == [2]


@pytest.mark.parametrize("dtype", [DataType.FLOAT, DataType.HALF, DataType.INT8])
def test_a_mistake_in_small_numbers_is_found_too(dtype: DataType) -> None:
    small = REAL * 1e-1
    verdict = _judge(_rounded(small, DataType.FLOAT), _rounded(-small, dtype, SCALE * 1e-1))
    assert list(verdict.wrong) == [1]


def test_an_int8_output_may_be_off_by_one_step_and_not_by_two() -> None:
    exact = _rounded(REAL, DataType.INT8)
    steps = exact.outputs[0].values
    one, two = (Result((Output(DataType.INT8, np.minimum(steps + n * SCALE, 127 * SCALE), SCALE),)) for n in (1, 2))
    assert _judge(exact, one) == Verdict()
    assert list(_judge(exact, two).wrong) == [1]


def test_what_a_narrow_type_cannot_hold_is_cut_before_comparing() -> None:
    values = np.array([0.5, 300.0, -1e6, np.inf])
    clipped = _rounded(values, DataType.INT8, scale=0.1)
    fp8 = Result((Output(DataType.FP8, np.array([0.5, 288.0, -448.0, 448.0])),), (DataType.FP8,))
    verdict = _judge(Result((Output(DataType.FLOAT, values),)), clipped, fp8)
    assert verdict == Verdict(note="output 0: 1 infinite of 4 elements; 3 compared")


def test_nan_cannot_be_held_by_int8_but_must_agree_elsewhere() -> None:
    values = np.array([np.nan, 1.0])
    wide = Result((Output(DataType.FLOAT, values),))
    fine = Verdict(note="output 0: 1 NaN of 2 elements; 1 compared")
    assert _judge(wide, Result((Output(DataType.INT8, np.array([0.0, 1.0]), 0.1),))) == fine
    assert _judge(wide, Result((Output(DataType.HALF, values),))) == fine
    assert _judge(wide, Result((Output(DataType.HALF, np.array([0.0, 1.0])),))).wrong
    assert _judge(wide, Result((Output(DataType.FLOAT, np.array([1.0, 1.0])),))).wrong


def test_an_overflow_in_half_is_wrong() -> None:
    wide = Result((Output(DataType.FLOAT, np.array([1e5, 1.0])),))
    assert list(_judge(wide, Result((Output(DataType.HALF, np.array([np.inf, 1.0])),))).wrong) == [1]


def test_narrow_inputs_loosen_a_wide_output() -> None:
    """A kernel that reads half and writes float computes in half."""
    noisy = REAL + np.random.default_rng(1).uniform(-1, 1, REAL.size) * 1e-2
    wide, close = Result((Output(DataType.FLOAT, REAL),)), (Output(DataType.FLOAT, noisy),)
    assert _judge(wide, Result(close, (DataType.HALF,))) == Verdict()
    assert _judge(wide, Result(close, (DataType.FLOAT,))).wrong


def test_integers_are_counted_exactly() -> None:
    def counts(*values: int) -> Result:
        return Result((Output(DataType.INT32, np.array(values, np.float64)),), (DataType.HALF,))

    assert _judge(counts(3, 4), counts(3, 4)) == Verdict()
    assert _judge(counts(3, 4), counts(3, 5)).wrong


def test_fp32_is_not_overruled_by_a_majority_of_narrow_variants() -> None:
    narrow = [_rounded(REAL + 1, dtype) for dtype in (DataType.HALF, DataType.BF16, DataType.INT8)]
    verdict = _judge(_rounded(REAL, DataType.FLOAT), *narrow)
    assert sorted(verdict.wrong) == [1, 2, 3]
    assert "differs from FLOAT: output 0 differs by up to" in verdict.wrong[1]
    assert verdict.disagreement == "3 of 3 narrower ones differ from FLOAT"


def test_the_majority_of_wide_ones_decides_for_the_narrow_ones() -> None:
    right, wrong = (_rounded(REAL + n, DataType.FLOAT) for n in (0, 1))
    verdict = _judge(wrong, right, right, _rounded(REAL, DataType.HALF), _rounded(REAL + 1, DataType.HALF))
    assert sorted(verdict.wrong) == [0, 4]
    assert verdict.disagreement is None


def test_two_that_disagree_without_a_reference_keep_the_default() -> None:
    verdict = _judge(*(_rounded(REAL + n, DataType.HALF) for n in (0, 1)))
    assert list(verdict.wrong) == [1]
    assert verdict.disagreement is not None
    assert "kept 1 like the default" in verdict.disagreement


def test_another_shape_and_no_results() -> None:
    assert _judge() == Verdict()
    one, other = (Result((Output(DataType.FLOAT, np.zeros(n)),)) for n in (2, 3))
    assert list(_judge(one, other).wrong) == [1]


@pytest.mark.parametrize("dtype", [DataType.HALF, DataType.BF16])
def test_accumulating_in_a_narrow_type_is_not_wrong(dtype: DataType) -> None:
    """Sums of many terms that nearly cancel: the error follows the terms."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, shape).astype(dtype.numpy) for shape in ((16, 256), (256, 16)))
    narrow: Any = np.zeros((16, 16), dtype.numpy)
    for k in range(256):
        narrow = narrow + a[:, k : k + 1] * b[k]
    exact = a.astype(np.float64) @ b.astype(np.float64)
    wide = Result((Output(DataType.FLOAT, exact),))
    assert _judge(wide, Result((Output(dtype, narrow.astype(np.float64)),), (dtype, dtype))) == Verdict()


# NaN and infinities

HOLLOW = np.full(500, np.nan)


def _plain(*values: np.ndarray) -> Result:
    return Result(tuple(Output(DataType.FLOAT, np.asarray(value, np.float64)) for value in values), (DataType.FLOAT,))


@pytest.mark.parametrize("element", [np.nan, np.inf])
def test_a_majority_without_a_number_outvotes_nobody(element: float) -> None:
    hollow = np.full(500, element)
    verdict = _judge(_plain(hollow), _plain(hollow), _plain(REAL))
    assert verdict.disagreement is not None
    assert sorted(_judge(_plain(REAL), _plain(hollow), _plain(hollow)).wrong) == [1, 2]
    assert _judge(_plain(REAL), _plain(hollow), _plain(hollow)).disagreement is not None


def test_numbers_that_agree_overrule_any_number_of_others_without() -> None:
    verdict = _judge(_plain(HOLLOW), _plain(HOLLOW), _plain(HOLLOW), _plain(REAL), _plain(REAL))
    assert sorted(verdict.wrong) == [0, 1, 2]


def test_candidates_that_are_all_nan_verify_nothing() -> None:
    for results in ([HOLLOW] * 2, [HOLLOW] * 4):
        verdict = _judge(*map(_plain, results))
        assert verdict.wrong == {}
        assert verdict.unverified is not None
        assert "output 0" in verdict.unverified
        assert "500 NaN" in verdict.unverified


def test_int8_that_is_held_against_nan_is_told() -> None:
    """INT8 cannot hold NaN, so nothing can be asked of it there."""
    verdict = _judge(_plain(HOLLOW), _rounded(REAL, DataType.INT8))
    assert verdict.unverified is not None


def test_nan_in_some_elements_is_noted() -> None:
    some = np.where(np.arange(500) < 7, np.nan, REAL)
    verdict = _judge(_plain(some), _plain(some))
    assert (verdict.wrong, verdict.disagreement, verdict.unverified) == ({}, None, None)
    assert "7 NaN of 500 elements" in verdict.note
    assert _judge(_plain(REAL), _plain(REAL)) == Verdict()


def test_an_output_that_is_nan_for_all_keeps_no_vote_from_the_others() -> None:
    right, wrong = _plain(REAL, HOLLOW), _plain(-REAL, HOLLOW)
    verdict = _judge(right, wrong, right)
    assert list(verdict.wrong) == [1]
    assert verdict.unverified is not None
    assert "output 1" in verdict.unverified


def test_empty_outputs_are_told() -> None:
    verdict = _judge(_plain(np.zeros(0)), _plain(np.zeros(0)))
    assert verdict.unverified is not None
    assert "empty, nothing compared" in verdict.unverified
