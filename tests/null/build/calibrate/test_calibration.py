"""Ranges from data: the two statistics on distributions that are known, calibrators, and the strict cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail as dt
from dovetail.build.calibrate.calibration_cache import cache_mismatch, decode_cache, encode_cache
from dovetail.build.calibrate.calibrators import algorithm_of, make_statistic
from dovetail.build.calibrate.range_stats import BINS, LEVELS, EntropyStatistic, MinMaxStatistic, choose_bins
from dovetail.build.calibrate.scales import scale_from_range


def _normal(count: int = 100_000) -> np.ndarray:
    return np.random.default_rng(0).normal(size=count).astype(np.float32)


def _threshold(values: np.ndarray, parts: int = 1) -> float:
    statistic = EntropyStatistic()
    for part in np.array_split(values, parts):
        statistic.observe(part)
    found = statistic.range()
    assert found is not None
    assert found[0] == -found[1]
    return found[1]


# min-max


def test_min_max_covers_everything_over_all_batches() -> None:
    statistic = MinMaxStatistic()
    statistic.observe(np.array([[0.5, -1.0]], np.float32))
    statistic.observe(np.array([7.0, 2.0], np.float16))
    assert statistic.range() == (-1.0, 7.0)


@pytest.mark.parametrize("statistic", [MinMaxStatistic, EntropyStatistic])
def test_what_is_not_finite_says_nothing(statistic: Any) -> None:
    watched = statistic()
    watched.observe(np.array([np.nan, -np.inf, np.inf], np.float32))
    assert watched.range() is None
    watched.observe(np.array([-3.0, np.nan, 3.0], np.float32))
    assert watched.range() == (-3.0, 3.0)


@pytest.mark.parametrize("statistic", [MinMaxStatistic, EntropyStatistic])
@pytest.mark.parametrize("batch", [np.zeros((2, 3), np.float32), np.empty((0,), np.float32)])
def test_zeros_and_nothing_have_no_range(statistic: Any, batch: np.ndarray) -> None:
    watched = statistic()
    assert watched.range() is None
    watched.observe(batch)
    assert watched.range() is None


# entropy


def test_a_uniform_distribution_keeps_nearly_everything() -> None:
    values = np.random.default_rng(0).uniform(-3, 3, 100_000).astype(np.float32)
    assert 0.98 * 3 < _threshold(values) <= 3


@pytest.mark.parametrize("outlier", [20.0, 60.0, 200.0])
def test_rare_outliers_of_a_gaussian_are_clipped(outlier: float) -> None:
    values = np.concatenate([_normal(), np.array([outlier, -outlier], np.float32)])
    assert 2.5 < _threshold(values) < max(6.0, outlier * LEVELS / BINS * 1.2)


def test_an_outlier_far_above_empty_bins_is_clipped_to_the_fewest_bins_there_can_be() -> None:
    values = np.concatenate([_normal() * 1e-3, np.ones(1, np.float32)])
    assert _threshold(values) < 0.08


def test_a_second_peak_that_is_not_rare_is_kept() -> None:
    values = np.concatenate([_normal(), 10 + _normal(30_000) * 0.1])
    assert _threshold(values) > 9.5


def test_zeros_do_not_change_the_range() -> None:
    values = _normal()
    assert _threshold(np.concatenate([values, np.zeros(10 * values.size, np.float32)])) == _threshold(values)


def test_one_number_and_a_few_numbers_keep_the_largest() -> None:
    assert _threshold(np.array([5.0], np.float32)) == 5.0
    assert _threshold(np.array([1.0, 2.0, 3.0], np.float32)) == 3.0


def test_the_order_and_the_split_of_batches_matter_little() -> None:
    values = _normal()
    rising = np.sort(np.abs(values))
    assert _threshold(values, 10) == pytest.approx(_threshold(values), rel=0.1)
    assert _threshold(rising, 10) == pytest.approx(_threshold(values), rel=0.1)


@given(st.lists(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=5), min_size=1, max_size=5))
@settings(max_examples=60)
def test_growing_loses_no_count_and_never_passes_the_largest(batches: list[list[float]]) -> None:
    statistic = EntropyStatistic()
    for batch in batches:
        statistic.observe(np.array(batch, np.float32))
    numbers = np.abs(np.array([x for batch in batches for x in batch], np.float32)).astype(np.float64)
    assert statistic._counts.sum() == np.count_nonzero(numbers)
    found = statistic.range()
    if numbers.any():
        assert found is not None
        assert 0 < found[1] <= numbers.max()
        assert scale_from_range(*found) > 0


def _divergence_by_definition(counts: np.ndarray, kept: int, levels: int) -> float:
    """Straight from the definition, one candidate at a time."""
    p = counts[:kept].copy()
    p[-1] += counts[kept:].sum()
    q = np.zeros(kept)
    for level in range(levels):
        part = slice(level * kept // levels, (level + 1) * kept // levels)
        filled = p[part] > 0
        if filled.any():
            q[part][filled] = max(counts[part].sum(), 0.5) / filled.sum()
    p, q = p / p.sum(), q / q.sum()
    return float(np.sum(p[p > 0] * np.log(p[p > 0] / q[p > 0])))


@given(st.integers(0, 2**32 - 1), st.floats(5, 200))
@settings(max_examples=15)
def test_the_chosen_threshold_is_the_best_by_definition(seed: int, decay: float) -> None:
    rng = np.random.default_rng(seed)
    counts = np.floor(rng.exponential(size=90) * 20 * np.exp(-np.arange(90) / decay))
    counts[rng.integers(0, 90)] += 1
    top, levels = int(np.flatnonzero(counts)[-1]) + 1, 16
    chosen = choose_bins(counts, levels)
    if top <= levels:
        assert chosen == top
        return
    losses = {kept: _divergence_by_definition(counts, kept, levels) for kept in range(levels, top + 1)}
    assert losses[chosen] == pytest.approx(min(losses.values()), abs=1e-8)
    assert all(loss > losses[chosen] - 1e-8 for loss in losses.values())


# the cache


def test_the_cache_round_trips_exactly_and_is_text() -> None:
    ranges = {"b": (-0.1, 1 / 3), "a": None}
    text = encode_cache("MINMAX_CALIBRATION", ranges)
    assert decode_cache(text) == ("MINMAX_CALIBRATION", ranges)
    assert encode_cache("MINMAX_CALIBRATION", dict(reversed(ranges.items()))) == text
    assert json.loads(text)["ranges"]["b"] == [-0.1, 1 / 3]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[:-10],
        lambda text: b"\xff" + text,
        lambda text: b"TRT-8601-EntropyCalibration2\nx: 3c010a14\n",
        lambda text: text.replace(b'"version": 1', b'"version": 2'),
        lambda text: text.replace(b"dovetail calibration", b"something else"),
        lambda text: text.replace(b'"version"', b'"more": 1, "version"'),
        lambda text: text.replace(b"-0.5", b'"-0.5"'),
        lambda text: text.replace(b"-0.5", b"9.5"),
        lambda text: text.replace(b"-0.5", b"1e999"),
        lambda text: text.replace(b"-0.5", b"-0.5, 0.0"),
        lambda text: b"[" * 100_000,
    ],
)
def test_a_damaged_cache_is_an_error_that_says_what_to_do(damage: Any) -> None:
    text = encode_cache("MINMAX_CALIBRATION", {"x": (-0.5, 1.0)})
    assert damage(text) != text
    with pytest.raises(dt.BuildError, match="calibration cache is damaged or was not written by Dovetail") as caught:
        decode_cache(damage(text))
    assert "delete it" in str(caught.value)


def test_a_cache_of_another_network_or_algorithm_does_not_fit() -> None:
    text = encode_cache("MINMAX_CALIBRATION", {"x": (-1.0, 1.0), "y": None})
    assert cache_mismatch("MINMAX_CALIBRATION", ["y", "x"], text)[0] is None
    other = cache_mismatch("ENTROPY_CALIBRATION_2", ["x", "y"], text)[0]
    assert other == "it was made by MINMAX_CALIBRATION, and the calibrator asks for ENTROPY_CALIBRATION_2"
    missing = cache_mismatch("MINMAX_CALIBRATION", ["x", "y", *"abcd"], text)[0]
    assert missing == "it has no range of 'a', 'b', 'c' and 1 more"
    assert cache_mismatch("MINMAX_CALIBRATION", ["x"], text)[0] == "it is of another network: 'y'"


# calibrators


def test_the_algorithms_have_the_numbers_of_the_contract() -> None:
    assert [(member.name, member.value) for member in dt.CalibrationAlgoType] == [
        ("LEGACY_CALIBRATION", 0),
        ("ENTROPY_CALIBRATION", 1),
        ("ENTROPY_CALIBRATION_2", 2),
        ("MINMAX_CALIBRATION", 3),
    ]
    assert dt.IInt8EntropyCalibrator is dt.IInt8EntropyCalibrator2


def test_each_base_class_names_its_algorithm() -> None:
    assert algorithm_of(dt.IInt8MinMaxCalibrator()) is dt.CalibrationAlgoType.MINMAX_CALIBRATION
    assert algorithm_of(dt.IInt8EntropyCalibrator2()) is dt.CalibrationAlgoType.ENTROPY_CALIBRATION_2
    assert isinstance(make_statistic(dt.CalibrationAlgoType.MINMAX_CALIBRATION), MinMaxStatistic)
    assert isinstance(make_statistic(dt.CalibrationAlgoType.ENTROPY_CALIBRATION_2), EntropyStatistic)


@pytest.mark.parametrize(("answer", "message"), [(0, "legacy calibration does not exist"), (9, "9 is not a valid")])
def test_an_algorithm_that_is_not_there_is_named(answer: int, message: str) -> None:
    class Other(dt.IInt8Calibrator):
        def get_algorithm(self) -> Any:
            return answer

    with pytest.raises(dt.UsageError, match=message):
        algorithm_of(Other())


def test_both_entropy_kinds_are_one() -> None:
    calibrator = dt.ArrayCalibrator([], dt.CalibrationAlgoType.ENTROPY_CALIBRATION)
    assert algorithm_of(calibrator) is dt.CalibrationAlgoType.ENTROPY_CALIBRATION_2


def test_what_must_be_implemented_is_named() -> None:
    calibrator = dt.IInt8Calibrator()
    for call in (calibrator.get_batch_size, calibrator.get_algorithm, lambda: calibrator.get_batch(["x"])):
        with pytest.raises(NotImplementedError, match="IInt8Calibrator must implement"):
            call()
    assert calibrator.read_calibration_cache() is None


def test_array_calibrator_gives_arrays_in_the_order_of_names_and_then_none() -> None:
    batches = [{"a": np.full((4, 2), n, np.float32), "b": np.full(3, -n, np.float32)} for n in range(2)]
    calibrator = dt.ArrayCalibrator(iter(batches))
    assert calibrator.get_batch_size() == 4
    assert calibrator.get_batch_size() == 4
    for batch in batches:
        found = calibrator.get_batch(["b", "a"])
        assert found is not None
        assert found[0] is batch["b"]
        assert found[1] is batch["a"]
    assert calibrator.get_batch(["b", "a"]) is None
    assert dt.ArrayCalibrator([]).get_batch_size() == 0


def test_array_calibrator_names_a_missing_input() -> None:
    with pytest.raises(dt.InputError, match="no input b") as caught:
        dt.ArrayCalibrator([{"a": np.zeros(1)}]).get_batch(["a", "b"])
    assert "got a" in str(caught.value)


def test_array_calibrator_keeps_its_cache_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ranges.json"
    calibrator = dt.ArrayCalibrator([], cache_path=path)
    assert calibrator.read_calibration_cache() is None
    calibrator.write_calibration_cache(b"one")
    calibrator.write_calibration_cache(b"two")
    assert dt.ArrayCalibrator([], cache_path=path).read_calibration_cache() == b"two"
    assert list(tmp_path.iterdir()) == [path]
