"""Models whose types are changed for the CUDA provider, the types, and how far results may be from fp32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

import dovetail as dt
from tests.support.precision_models import make_block, make_image_network

MODELS = {"cnn": (make_image_network, (4, 3, 24, 24)), "block": (make_block, (2, 12, 32))}
ERRORS = {
    "fp16": 5e-3,
    "bf16": 4e-2,
    "int8": 5e-2,
    "fp8": 1.5e-1,
    "int8+fp16": 5e-2,
    "int8 weights": 2e-2,
    "int4 weights": 2e-1,
}
"""The norm of the difference from fp32 over the norm of the result."""
PAIRS = [(model, kind) for model in MODELS for kind in ERRORS if not (model == "cnn" and "weights" in kind)]


def draw(model: str, seed: int) -> Any:
    """An input of a model."""
    return np.random.default_rng(seed).uniform(0, 1, MODELS[model][1]).astype(np.float32)


def make_options(model: str, kind: str) -> dt.PrecisionOptions:
    """The options for a type; what is quantized is calibrated, and nothing is kept."""
    if "weights" in kind:
        return dt.PrecisionOptions(weights=kind.split()[0], block=16)
    wanted = dt.PrecisionOptions.parse(kind)
    if wanted.quantized is None:
        return wanted
    batches = [{"x": draw(model, seed)} for seed in range(4)]
    given: Any = {"quantized": wanted.quantized, "float_type": wanted.float_type, "tolerance": float("inf")}
    return dt.PrecisionOptions(**given, calibration=batches)


def check_precision(model: str, kind: str, *, compare_with: str = "cpu") -> tuple[float, dt.Engine]:
    """The error of an engine on CUDA against fp32, after checks of where and in which type layers run."""
    proto: onnx.ModelProto = MODELS[model][0]()
    x = draw(model, 9)
    shapes = {"x": MODELS[model][1]}
    engine = dt.compile(proto, providers=["cuda", "cpu"], precision=make_options(model, kind), shapes=shapes)
    wanted = kind.split("+")
    found = {row.type for row in engine.manifest.precision}
    assert set(wanted) <= found, engine.manifest.precision
    assert "cuda" in {step.provider for step in engine.manifest.programs[0].steps}
    results = [np.asarray(engine(x)) for _ in range(3)]
    assert all(np.array_equal(result, results[0]) for result in results[1:])
    exact = np.asarray(dt.compile(proto, providers=[compare_with])(x), np.float64)
    return float(np.linalg.norm(results[0] - exact) / np.linalg.norm(exact)), engine
