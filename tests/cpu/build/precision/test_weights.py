"""Weights alone in blocks of few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail as dt
from dovetail.build.precision.weights import pack_weights
from dovetail.providers.cpu.kernels.contrib.blocks import matmul_nbits
from tests.support.precision_models import ModelWriter, make_image_network, make_perceptron


def _types(engine: dt.Engine) -> dict[str, str]:
    return {row.layer: row.type for row in engine.manifest.precision}


@pytest.mark.parametrize("providers", [["onnxruntime"], ["cpu"]])
@pytest.mark.parametrize(("weights", "block", "bound"), [("int4", 16, 0.2), ("int4", 32, 0.3), ("int8", 32, 0.02)])
def test_results_are_as_near_as_the_bits_are(providers: list[str], weights: str, block: int, bound: float) -> None:
    model, x = make_perceptron(), np.random.default_rng(1).uniform(-1, 1, (6, 32)).astype(np.float32)
    options = dt.PrecisionOptions(weights=weights, block=block)
    engine = dt.compile(model, precision=options, providers=providers)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    assert 0 < np.abs(engine(x) - expected).max() < bound * np.abs(expected).max()
    assert _types(engine)["fc1"] == _types(engine)["head/fc2"] == f"{weights} weights"


def test_the_rest_may_be_in_half_precision() -> None:
    model, x = make_perceptron(), np.random.default_rng(1).uniform(-1, 1, (6, 32)).astype(np.float32)
    engine = dt.compile(model, precision=dt.PrecisionOptions(weights="int8", float_type="fp16"))
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(engine(x), expected, atol=0.02 * np.abs(expected).max())
    assert _types(engine)["fc1"] == "int8 weights"
    assert _types(engine)["y"] == "fp16"


def test_a_gemm_with_a_bias_is_a_product_and_a_sum() -> None:
    model = make_image_network()
    x = np.random.default_rng(1).uniform(0, 1, (2, 3, 24, 24)).astype(np.float32)
    engine = dt.compile(model, precision=dt.PrecisionOptions(weights="int8"))
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(engine(x), expected, atol=0.02 * np.abs(expected).max())


def test_without_constant_weights_it_is_an_error() -> None:
    model = ModelWriter()
    model.add("MatMul", ["x", "w"], "y")
    proto = model.finish({"x": [4, 8], "w": [8, 4]}, {"y": [4, 4]})
    with pytest.raises(dt.BuildError, match=r"int4 weights can have no effect(.|\n)*its weights are computed"):
        dt.compile(proto, precision=dt.PrecisionOptions(weights="int4"))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 9),
    bits=st.sampled_from([4, 8]),
    block=st.sampled_from([16, 32]),
    seed=st.integers(0, 99),
)
def test_packed_weights_are_within_a_step(rows: int, columns: int, bits: int, block: int, seed: int) -> None:
    weights = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    packed = pack_weights(weights, bits, block)
    arguments: dict[str, Any] = {"K": rows, "N": columns, "bits": bits, "block_size": block}
    found = matmul_nbits(np.eye(rows, dtype=np.float32), packed.numbers, packed.scales, packed.zeros, **arguments)
    steps = np.repeat(packed.scales, block, axis=1)[:, :rows].T
    assert (np.abs(found - weights) <= 1.001 * steps).all()
