"""Ranges from data: what a tensor held over all calibration batches, and the range INT8 should cover.

*Error* takes the threshold with the smallest squared error: of steps, which grow with it, and of what is clipped.
*Min-max* covers everything that was seen. *Entropy* keeps a histogram of magnitudes and clips rare large ones when
that loses less information than coarse steps for all the others: it takes the threshold whose 128 quantized levels
have the smallest Kullback-Leibler divergence from what was seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "BINS",
    "LEVELS",
    "ChannelMeans",
    "EntropyStatistic",
    "ErrorStatistic",
    "MinMaxStatistic",
    "RangeStatistic",
    "choose_bins",
    "expected_loss",
]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

BINS: Final = 2048
"""Bins of a histogram of magnitudes."""
LEVELS: Final = 128
"""Magnitudes that a signed 8-bit number tells apart, zero included."""
_DOUBT: Final = 0.5
"""What an empty level counts as, in observations: no finite sample can tell such a level from one that is empty."""
_ROUNDING: Final = 1e-9
_THRESHOLDS: Final = 128
"""Ranges that are tried for the smallest error."""


class RangeStatistic(ABC):
    """Watches one tensor and says what range it needs; what is not finite is left out."""

    @abstractmethod
    def observe(self, values: Array) -> None:
        """Take the contents of the tensor in one batch."""

    @abstractmethod
    def range(self) -> tuple[float, float] | None:
        """Low and high; None when nothing was seen, or nothing but zeros, which have no range."""


class MinMaxStatistic(RangeStatistic):
    """The smallest and the largest value.

    >>> statistic = MinMaxStatistic(); statistic.observe(np.array([-1.0, 3.0, np.inf])); statistic.range()
    (-1.0, 3.0)
    """

    def __init__(self) -> None:
        self._low, self._high = np.inf, -np.inf

    def observe(self, values: Array) -> None:
        """Widen the range to what is new."""
        finite = _finite(values)
        if finite.size:
            self._low = min(self._low, float(finite.min()))
            self._high = max(self._high, float(finite.max()))

    def range(self) -> tuple[float, float] | None:
        """Low and high, as they were seen."""
        is_empty = self._low > self._high or self._low == self._high == 0
        return None if is_empty else (self._low, self._high)


class ChannelMeans:
    """The mean of each channel, which the second axis tells apart.

    >>> means = ChannelMeans(); means.observe(np.array([[1.0, 5.0], [3.0, 5.0]])); means.means
    array([2., 5.], dtype=float32)
    """

    def __init__(self) -> None:
        self._sums: Floats = np.zeros(0)
        self._count = 0

    def observe(self, values: Array) -> None:
        """Take the contents of the tensor in one batch; one that is not finite is left out."""
        sums = values.sum(axis=(0, *range(2, values.ndim)), dtype=np.float64)
        if np.isfinite(sums).all() and values.size:
            self._sums = sums + self._sums if self._count else sums
            self._count += values.size // values.shape[1]

    @property
    def means(self) -> Array:
        """A number for each channel; none before anything was seen."""
        return np.asarray(self._sums / max(self._count, 1), np.float32)


class _Histogram(RangeStatistic):
    """Counts magnitudes.

    Exact zeros are not counted: every scale represents them, so they must not speak for or against one. The histogram
    grows by doubling: neighbouring bins are merged, so that no count is ever split or guessed.
    """

    def __init__(self) -> None:
        self._counts: Floats = np.zeros(BINS)
        self._limit = 0.0
        self._largest = 0.0

    def observe(self, values: Array) -> None:
        """Count magnitudes."""
        magnitudes = np.abs(_finite(values).astype(np.float64))
        magnitudes = magnitudes[magnitudes > 0]
        if not magnitudes.size:
            return
        largest = float(magnitudes.max())
        self._grow(largest)
        bins = np.minimum((magnitudes * (BINS / self._limit)).astype(np.int64), BINS - 1)
        self._counts += np.bincount(bins, minlength=BINS)
        self._largest = max(self._largest, largest)

    def _grow(self, largest: float) -> None:
        if not self._limit:
            self._limit = largest
        while self._limit < largest:
            merged = self._counts.reshape(-1, 2).sum(axis=1)
            self._counts = np.concatenate([merged, np.zeros(BINS - merged.size)])
            self._limit *= 2


class EntropyStatistic(_Histogram):
    """The symmetric range that keeps the most information."""

    def range(self) -> tuple[float, float] | None:
        """Minus and plus the threshold."""
        if not self._largest:
            return None
        threshold = min(choose_bins(self._counts) * self._limit / BINS, self._largest)
        return -threshold, threshold


class ErrorStatistic(_Histogram):
    """The range whose quantized numbers are nearest to what was seen, in the mean of squares."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = MinMaxStatistic()

    def observe(self, values: Array) -> None:
        """Count magnitudes, and note the signs that occur."""
        super().observe(values)
        self._seen.observe(values)

    def range(self) -> tuple[float, float] | None:
        """Low and high, never beyond what was seen."""
        seen = self._seen.range()
        if seen is None or not self._largest:
            return None
        ranges = [_clip(seen, self._largest * (number + 1) / _THRESHOLDS) for number in range(_THRESHOLDS)]
        return min(reversed(ranges), key=self._loss)

    def _loss(self, bounds: tuple[float, float]) -> float:
        return expected_loss(self._counts, self._limit / BINS, bounds)


def _clip(bounds: tuple[float, float], threshold: float) -> tuple[float, float]:
    return max(bounds[0], -threshold), min(bounds[1], threshold)


def expected_loss(counts: Floats, width: float, bounds: tuple[float, float]) -> float:
    """The sum of the squared errors that 8 bits over a range make of what a histogram of magnitudes holds.

    Args:
        counts: How many magnitudes fell into each bin.
        width: The width of a bin.
        bounds: Low and high; what lies beyond is clipped.
    """
    centers = (np.arange(counts.size) + 0.5) * width
    threshold = max(-bounds[0], bounds[1])
    step = (max(bounds[1], 0.0) - min(bounds[0], 0.0)) / 255.0
    beyond = np.maximum(centers - threshold, 0.0)
    errors = np.where(beyond > 0, beyond**2, np.minimum(step**2 / 12.0, centers**2))
    return float((counts * errors).sum())


def _finite(values: Array) -> Array:
    with np.errstate(invalid="ignore"):  # some of the small types signal on comparisons with NaN
        mask = np.isfinite(values)
    return values[mask]


def choose_bins(counts: Floats, levels: int = LEVELS) -> int:
    """How many bins from zero to keep; everything above is clipped to the last one.

    Args:
        counts: A histogram of magnitudes that holds something.
        levels: How many levels the kept bins are quantized to.

    >>> choose_bins(np.ones(512))
    512
    """
    top = int(np.flatnonzero(counts)[-1]) + 1
    if top <= levels:
        return top
    losses = _divergences(counts[:top], levels)
    # Equal losses, but for rounding, go to the widest range: clipping must gain something.
    return levels + int(np.flatnonzero(losses <= losses.min() + _ROUNDING)[-1])


def _divergences(counts: Floats, levels: int) -> Floats:
    """The divergence for each number of kept bins, from ``levels`` to all.

    P is what was seen, with what lies above the kept bins added to the last of them. Q is what the levels can tell of
    the kept bins: the mass of a level is spread evenly over those of its bins that are not empty in P. All sums over
    bins of a level come from running totals, so every candidate costs the same few operations.
    """
    kept = np.arange(levels, counts.size + 1)
    edges = kept[:, None] * np.arange(levels + 1) // levels
    below = _running(counts)
    total, last, clipped = below[-1], counts[kept - 1], below[-1] - below[kept]
    known = np.diff(below[edges], axis=1)
    filled = np.diff(_running(counts > 0)[edges], axis=1)
    filled[:, -1] += (last == 0) & (clipped > 0)
    mass = known.copy()
    mass[:, -1] += clipped
    known = np.where(mass > 0, np.maximum(known, _DOUBT), 0.0)
    even = np.where(mass > 0, known / np.maximum(filled, 1.0), 1.0)
    own = _running(_x_log_x(counts))[kept] - _x_log_x(last) + _x_log_x(last + clipped)
    cross = (mass * np.log(even)).sum(axis=1)
    return np.asarray((own - cross) / total - np.log(total) + np.log(known.sum(axis=1)))


def _running(values: npt.NDArray[Any]) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def _x_log_x(values: Floats) -> Floats:
    return values * np.log(np.where(values > 0, values, 1.0))
