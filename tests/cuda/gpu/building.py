"""Engines on the first CUDA device and their comparison with the ``cpu`` provider.

``PLANS=FOLDER`` keeps each plan there and loads it the next time: what a sanitizer watches is the run of a plan, and
not the hundreds of timings of its build.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

import dovetail as dt


def compile_on_device(model: Any, *, shapes: Any = None, tf32: bool = False) -> Any:
    """An engine of the model on the device, built or taken from the kept plans."""
    kept = _find_kept(model, shapes, tf32)
    if kept is not None and kept.exists():
        return dt.Runtime().deserialize_cuda_engine(kept.read_bytes())
    config = dt.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    if not tf32:
        config.clear_flag(dt.BuilderFlag.TF32)
    engine = dt.compile(model, config=config, shapes=shapes)
    if kept is not None:
        kept.write_bytes(engine.serialize())
    return engine


def _find_kept(model: Any, shapes: Any, tf32: bool) -> Path | None:
    folder = os.environ.get("PLANS")
    if not folder:
        return None
    text = model.SerializeToString(deterministic=True) + repr((shapes, tf32)).encode()
    return Path(folder) / f"{hashlib.sha256(text).hexdigest()[:24]}.plan"


def list_results(results: Any) -> list[Any]:
    """The results of a call, in their order."""
    return list(results.values()) if isinstance(results, dict) else [results]


def measure_error(result: Any, expected: Any) -> float:
    """The norm of the difference over the norm of what is expected."""
    wide, right = result.astype(np.float64), expected.astype(np.float64)
    return float(np.linalg.norm(wide - right) / max(np.linalg.norm(right), np.finfo(np.float64).tiny))


def check_on_device(model: Any, inputs: list[Any], error: float) -> Any:
    """The engine, after runs that repeat bit for bit and are as near to the ``cpu`` provider as ``error`` says."""
    engine = compile_on_device(model)
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    runs = [list_results(engine(*inputs)) for _ in range(4)]  # the first runs are launched, the others replayed
    assert all(np.array_equal(*pair) for run in runs[1:] for pair in zip(run, runs[0], strict=True))
    for result, right in zip(runs[0], list_results(dt.compile(model, providers=["cpu"])(*inputs)), strict=True):
        assert measure_error(result, right) <= error
    return engine
