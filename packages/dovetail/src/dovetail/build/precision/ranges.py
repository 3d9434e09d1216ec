"""The ranges that a build quantizes with: from a cache that fits the network, or from calibration batches."""

from __future__ import annotations

from itertools import islice
from typing import Final

from dovetail.build.calibrate.calibration_cache import Range, cache_mismatch, encode_cache
from dovetail.build.calibrate.calibrators import ArrayCalibrator
from dovetail.build.precision.options import PrecisionOptions
from dovetail.build.precision.quantize_plan import find_averaged, find_candidates
from dovetail.build.precision.trial import Trial, float_names, run_trial
from dovetail.build.progress import Phases
from dovetail.build.request import BuildRequest
from dovetail.errors import BuildError, UsageError
from dovetail.loggers import Severity

__all__ = ["Calibrated", "calibrate"]

_FEW: Final = 16
"""Batches that are run where ranges are known and only results are wanted."""

Calibrated = tuple[dict[str, Range | None], Trial | None]
"""The ranges, and the run that showed them; None where they come from a cache and nobody brought inputs."""


def calibrate(request: BuildRequest, options: PrecisionOptions, phases: Phases) -> Calibrated:
    """Find the range of every FP32 tensor.

    Raises:
        UsageError: There is neither calibration data nor a cache.
        BuildError: The cache does not fit, and there is no calibration data.
    """
    algorithm = "MINMAX" if options.quantized == "fp8" else options.method.upper()
    store = ArrayCalibrator([], cache_path=options.cache)
    cached = _read(request, options, store, algorithm)
    if cached is not None:
        few = None if options.calibration is None else list(islice(options.calibration, _FEW))
        wants_run = options.compare or options.float_type == "fp16"
        if not wants_run and few is None:
            return cached, None
        return cached, run_trial(request, phases, few, averaged=find_averaged(request.model.graph), drawn_from=cached)
    if options.calibration is None:
        raise UsageError(
            f"{options.quantized} needs the ranges of tensors, and there is nothing to find them with",
            where="precision",
            expected="calibration data, or a cache of an earlier build",
            fix="give a folder of inputs (--calib-data), or arrays: PrecisionOptions(calibration=[{...}, ...])",
        )
    method = algorithm.lower()
    graph = request.model.graph
    counted, averaged = find_candidates(graph), find_averaged(graph)
    trial = run_trial(request, phases, options.calibration, method=method, counted=counted, averaged=averaged)
    found = trial.calibrate(method)
    ranges = {name: found.get(name) for name in float_names(request.model.graph)}
    store.write_calibration_cache(encode_cache(algorithm, ranges))
    return ranges, trial


def _read(
    request: BuildRequest, options: PrecisionOptions, store: ArrayCalibrator, algorithm: str
) -> dict[str, Range | None] | None:
    text = store.read_calibration_cache()
    if not text:
        return None
    mismatch, ranges = cache_mismatch(algorithm, float_names(request.model.graph), text)
    if mismatch is None:
        return ranges
    if options.calibration is None:
        raise BuildError(
            f"the calibration cache does not fit: {mismatch}",
            where=str(options.cache),
            fix="give calibration data to find ranges anew, or the cache of this network",
        )
    request.logger.log(Severity.WARNING, f"the calibration cache is not used, ranges are found anew: {mismatch}")
    return None
