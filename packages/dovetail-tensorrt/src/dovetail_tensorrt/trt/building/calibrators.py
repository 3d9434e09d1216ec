"""Calibrators of version 10: one that the engine has no class for, and how those of scripts are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dovetail
from dovetail_tensorrt.trt.answers import call_user

__all__ = ["GuardedCalibrator", "IInt8LegacyCalibrator"]


class IInt8LegacyCalibrator(dovetail.IInt8Calibrator):
    """Ranges by quantiles in TensorRT; here they cover everything that was seen, as quantiles near 1 nearly do."""

    def get_algorithm(self) -> dovetail.CalibrationAlgoType:
        """Min-max."""
        return dovetail.CalibrationAlgoType.MINMAX_CALIBRATION

    def get_quantile(self) -> float:
        """The share of values that a range covers."""
        return 1.0

    def get_regression_cutoff(self) -> float:
        """The share up to which values are fitted."""
        return 1.0


class GuardedCalibrator(dovetail.IInt8Calibrator):
    """Calls a calibrator of a script: what raises is printed.

    Args:
        calibrator: The script's own.
    """

    def __init__(self, calibrator: Any) -> None:
        super().__init__()
        self._given = calibrator

    def get_batch_size(self) -> int:
        """How many samples a batch has; 0 when that fails."""
        return int(call_user("get_batch_size", self._given.get_batch_size, 0))

    def get_batch(self, names: Sequence[str]) -> Sequence[Any] | None:
        """One batch; None at the end, and when that fails."""
        return call_user("get_batch", lambda: self._given.get_batch(list(names)), None)

    def read_calibration_cache(self) -> bytes | None:
        """The ranges of an earlier build."""
        cache = call_user("read_calibration_cache", self._given.read_calibration_cache, None)
        return None if cache is None else bytes(cache)

    def write_calibration_cache(self, cache: bytes | memoryview) -> None:
        """Have the script keep the ranges."""
        call_user("write_calibration_cache", lambda: self._given.write_calibration_cache(cache), None)

    def get_algorithm(self) -> dovetail.CalibrationAlgoType:
        """How ranges are found."""
        return dovetail.CalibrationAlgoType(self._given.get_algorithm())
