"""Calibrators: who gives sample batches to a build that must find INT8 ranges, and how ranges are found from them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from dovetail._contract_enum import ContractEnum
from dovetail.build.calibrate.calibration_cache import MAX_CACHE_BYTES
from dovetail.build.calibrate.range_stats import EntropyStatistic, MinMaxStatistic, RangeStatistic
from dovetail.errors import BuildError, DovetailError, InputError, ResourceError, UsageError
from dovetail.files import is_out_of_space, read_bytes, replacing

__all__ = [
    "ArrayCalibrator",
    "CalibrationAlgoType",
    "IInt8Calibrator",
    "IInt8EntropyCalibrator",
    "IInt8EntropyCalibrator2",
    "IInt8MinMaxCalibrator",
    "algorithm_of",
    "make_statistic",
]


class CalibrationAlgoType(ContractEnum):
    """How a range follows from what was seen. The two entropy kinds are one here."""

    LEGACY_CALIBRATION = 0
    ENTROPY_CALIBRATION = 1
    ENTROPY_CALIBRATION_2 = 2
    MINMAX_CALIBRATION = 3


class IInt8Calibrator:
    """Subclass one of the classes below and implement ``get_batch_size`` and ``get_batch``.

    A calibrator works with weakly typed networks only; strongly typed ones say their scales with Q/DQ nodes.
    """

    def get_batch_size(self) -> int:
        """How many samples a batch has; the shapes of inputs are what counts here."""
        raise NotImplementedError(f"{type(self).__name__} must implement get_batch_size()")

    def get_batch(self, names: Sequence[str]) -> Sequence[Any] | None:
        """One batch: for each input name an address or an array; None when there are no more.

        What lies at an address has the input's shape; where that is dynamic, the shape that the calibration profile
        (by default the first profile) is tuned for. It must stay there until the next call.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement get_batch(names)")

    def read_calibration_cache(self) -> bytes | None:
        """What ``write_calibration_cache`` was given in an earlier build; None to run the batches."""
        return None

    def write_calibration_cache(self, cache: bytes) -> None:
        """Keep the ranges that were found."""

    def get_algorithm(self) -> CalibrationAlgoType:
        """How ranges are found."""
        raise NotImplementedError(f"{type(self).__name__} must implement get_algorithm()")


class IInt8MinMaxCalibrator(IInt8Calibrator):
    """Ranges that cover everything that was seen; right for language models and other outlier-sensitive networks."""

    def get_algorithm(self) -> CalibrationAlgoType:
        """Min-max."""
        return CalibrationAlgoType.MINMAX_CALIBRATION


class IInt8EntropyCalibrator2(IInt8Calibrator):
    """Ranges that keep the most information; right for most convolutional networks."""

    def get_algorithm(self) -> CalibrationAlgoType:
        """Entropy."""
        return CalibrationAlgoType.ENTROPY_CALIBRATION_2


IInt8EntropyCalibrator = IInt8EntropyCalibrator2


class ArrayCalibrator(IInt8Calibrator):
    """A calibrator for people who have arrays.

    >>> calibrator = ArrayCalibrator([{"x": np.zeros((4, 3), np.float32)}])
    >>> calibrator.get_batch_size(), len(calibrator.get_batch(["x"])), calibrator.get_batch(["x"])
    (4, 1, None)

    Args:
        batches: For each batch the arrays by input name; they are asked for one after the other, and once.
        algorithm: How ranges are found.
        cache_path: Where ranges are kept between builds; None to keep nothing.
    """

    def __init__(
        self,
        batches: Iterable[Mapping[str, Any]],
        algorithm: CalibrationAlgoType = CalibrationAlgoType.ENTROPY_CALIBRATION_2,
        cache_path: str | os.PathLike[str] | None = None,
    ) -> None:
        self.num_batches = len(batches) if isinstance(batches, Sized) else 0
        """How many batches there will be; 0 when that is not known."""
        self._algorithm = CalibrationAlgoType(algorithm)
        self._path = None if cache_path is None else Path(cache_path)
        self._batches: Iterator[Mapping[str, Any]] = iter(batches)

    def get_batch_size(self) -> int:
        """The first dimension of the first array; 0 when there is no batch."""
        first = list(islice(self._batches, 1))
        self._batches = chain(first, self._batches)
        arrays = list(first[0].values()) if first else []
        shape = np.shape(arrays[0]) if arrays else ()
        return shape[0] if shape else len(arrays[:1])

    def get_batch(self, names: Sequence[str]) -> list[Any] | None:
        """The arrays of the next batch in the order of the names."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        missing = [name for name in names if name not in batch]
        if missing:
            raise InputError(
                f"a calibration batch has no input {', '.join(missing)}",
                expected=f"arrays named {', '.join(names)}",
                got=", ".join(map(str, batch)) or "nothing",
            )
        return [batch[name] for name in names]

    def read_calibration_cache(self) -> bytes | None:
        """The file's contents, if it exists."""
        if self._path is None:
            return None
        try:
            return read_bytes(self._path, MAX_CACHE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self._path, "read", error) from error

    def write_calibration_cache(self, cache: bytes) -> None:
        """Replace the file as a whole, so that nobody ever reads half of it."""
        if self._path is not None:
            try:
                with replacing(self._path) as file:
                    file.write(cache)
            except OSError as error:
                raise _unusable(self._path, "written", error) from error

    def get_algorithm(self) -> CalibrationAlgoType:
        """What was asked for."""
        return self._algorithm


def _unusable(path: Path, verb: str, error: OSError) -> DovetailError:
    kind = ResourceError if is_out_of_space(error) else BuildError
    return kind(
        f"the calibration cache cannot be {verb}: {error.strerror or error}",
        where=str(path),
        fix="choose a regular file in a folder that this user can read and write",
    )


def algorithm_of(calibrator: IInt8Calibrator) -> CalibrationAlgoType:
    """The algorithm a calibrator asks for, checked; both entropy kinds are given as one."""
    where = f"calibrator {type(calibrator).__name__}"
    try:
        algorithm = CalibrationAlgoType(calibrator.get_algorithm())
    except ValueError as error:
        raise UsageError(f"get_algorithm gave no CalibrationAlgoType: {error}", where=where) from error
    if algorithm is CalibrationAlgoType.LEGACY_CALIBRATION:
        raise UsageError(
            "legacy calibration does not exist here",
            where=where,
            fix="derive from IInt8EntropyCalibrator2 or IInt8MinMaxCalibrator",
        )
    is_entropy = algorithm is CalibrationAlgoType.ENTROPY_CALIBRATION
    return CalibrationAlgoType.ENTROPY_CALIBRATION_2 if is_entropy else algorithm


def make_statistic(algorithm: CalibrationAlgoType) -> RangeStatistic:
    """What watches one tensor under an algorithm."""
    return MinMaxStatistic() if algorithm is CalibrationAlgoType.MINMAX_CALIBRATION else EntropyStatistic()
