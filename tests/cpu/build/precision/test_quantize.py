"""Eight bits from calibration data: near the fp32 model, with kernels for integers, kept ranges, and reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail as dt
from dovetail.build.precision.quantize import affine_from_range, scales_of_weights
from tests.support.precision_models import ModelWriter, make_image_network, make_line_reader, read_lines

SHAPE = (4, 3, 24, 24)


def _images(seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0, 1, SHAPE).astype(np.float32)


def _options(**more: Any) -> dt.PrecisionOptions:
    given = {"quantized": "int8", "calibration": [{"x": _images(seed)} for seed in range(4)], **more}
    return dt.PrecisionOptions(**given)


def _types(engine: dt.Engine) -> dict[str, tuple[str, str]]:
    return {row.layer: (row.type, row.reason) for row in engine.manifest.precision}


def _error(engine: dt.Engine, model: onnx.ModelProto) -> float:
    """The largest error on images that nobody calibrated with, as a share of the largest value."""
    x = _images(9)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    return float(np.abs(engine(x) - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("providers", [["onnxruntime"], ["cpu"]])
@pytest.mark.parametrize("method", ["entropy", "minmax"])
def test_int8_is_near_fp32(providers: list[str], method: str) -> None:
    model = make_image_network()
    engine = dt.compile(model, precision=_options(method=method), providers=providers, shapes={"x": SHAPE})
    assert 0 < _error(engine, model) < 0.05
    types = _types(engine)
    quantized = {"c1", "r1", "c2", "r2", "c3", "sum", "r3", "pool", "c4", "c5", "r5", "gap", "head/fc"}
    assert {name for name, (kind, _) in types.items() if kind == "int8"} == quantized
    assert types["tanh"][0] == "fp32"
    assert "8 bits are for" in types["tanh"][1]


def test_onnxruntime_and_numpy_compute_the_same_integers() -> None:
    model, x = make_image_network(), _images(9)
    results = [dt.compile(model, precision=_options(), providers=[name])(x) for name in ("onnxruntime", "cpu")]
    np.testing.assert_allclose(*results, atol=0.02 * np.abs(results[1]).max())


def test_every_convolution_and_product_runs_as_integers_in_onnxruntime() -> None:
    engine = dt.compile(make_image_network(), precision=_options(), providers=["onnxruntime"], shapes={"x": SHAPE})
    (step,) = [step for step in engine.manifest.programs[0].steps if step.partition is not None]
    assert step.partition is not None
    optimised = onnx.load_from_string(bytes(engine.blobs.array(step.partition.payload)))
    ops = [node.op_type for node in optimised.graph.node]
    assert ops.count("QLinearConv") == 5
    assert "QLinearAdd" in ops
    assert not {"Conv", "Gemm", "Add"} & set(ops)


def test_a_reader_of_lines_reads_as_in_fp32() -> None:
    model, seen, images, labels = make_line_reader()
    options = dt.PrecisionOptions(quantized="int8", calibration=[{"x": batch} for batch in seen])
    expected = read_lines(dt.compile(model)(images))
    found = read_lines(dt.compile(model, precision=options)(images))
    assert (expected != labels).mean() < 0.05
    assert (found != expected).mean() < 0.01


def test_the_rest_may_be_in_half_precision() -> None:
    model = make_image_network()
    engine = dt.compile(model, precision=_options(float_type="fp16"), shapes={"x": SHAPE})
    assert _error(engine, model) < 0.05
    assert _types(engine)["tanh"] == ("fp16", "")
    assert _types(engine)["c4"][0] == "int8"


def test_half_precision_that_finds_nothing_left_is_a_warning_unless_layers_were_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = ModelWriter()
    weights = [model.constant(name, np.full((3, 3, 1, 1), 0.5, np.float32)) for name in ("w1", "w2")]
    model.add("Conv", [model.add("Conv", ["x", weights[0]], "c"), weights[1]], "y")
    proto = model.finish({"x": ["n", 3, 24, 24]}, {"y": ["n", 3, 24, 24]})
    engine = dt.compile(proto, precision=_options(float_type="fp16"))
    assert {kind for kind, _ in _types(engine).values()} == {"int8"}
    assert "fp16 has no effect: every layer that computes is quantized to int8" in capsys.readouterr().err
    with pytest.raises(dt.BuildError, match=r"fp16 can have no effect(.|\n)*kept by 'y'"):
        dt.compile(proto, precision=_options(float_type="fp16", keep=["y"]))


def test_fp8_runs_where_a_provider_takes_it() -> None:
    model = make_image_network()
    engine = dt.compile(model, precision=_options(quantized="fp8"), providers=["cpu"], shapes={"x": SHAPE})
    assert 0 < _error(engine, model) < 0.15
    with pytest.raises(dt.BuildError, match=r"fp8 can have no effect(.|\n)*cannot be handed to ONNX Runtime"):
        dt.compile(model, precision=_options(quantized="fp8"), providers=["onnxruntime"])


def test_old_models_are_raised_to_the_opset_that_has_a_scale_a_channel() -> None:
    model = make_image_network(opset=11)
    assert _error(dt.compile(model, precision=_options()), model) < 0.05


def test_layers_stay_by_the_users_word() -> None:
    types = _types(dt.compile(make_image_network(), precision=_options(keep=["c?", "sum"])))
    assert types["c1"] == ("fp32", "kept by 'c?'")
    assert types["head/fc"][0] == "int8"


def test_a_tensor_that_was_always_zero_keeps_its_layer() -> None:
    options = _options(calibration=[{"x": np.zeros(SHAPE, np.float32)}])
    types = _types(dt.compile(make_image_network(), precision=options))
    assert types["c1"] == ("fp32", "calibration found no range of 'x': it was zero or not computed")


def test_a_large_bias_widens_the_scale_of_its_channel() -> None:
    model = ModelWriter()
    bias = model.constant("b", np.array([1e6, 1.0], np.float32))
    inputs = ["x", model.constant("w", np.full((2, 3, 1, 1), 1e-6, np.float32)), bias]
    model.add("Relu", [model.add("Conv", inputs, "c")], "y")
    proto = model.finish({"x": ["n", 3, 24, 24]}, {"y": ["n", 2, 24, 24]})
    found = dt.compile(proto, precision=_options())(_images())
    np.testing.assert_allclose(found[:, 0], 1e6, rtol=1e-2)
    np.testing.assert_allclose(found[:, 1], 1.0, rtol=1e-2)


def test_weights_that_may_be_refitted_are_not_quantized() -> None:
    config = dt.BuilderConfig()
    config.set_flag(dt.BuilderFlag.REFIT)
    with pytest.raises(dt.BuildError, match=r"int8 can have no effect(.|\n)*its weights may be refitted"):
        dt.compile(make_image_network(), precision=_options(), config=config)


# ranges


def test_ranges_are_kept_in_a_cache_and_used_again(tmp_path: Path) -> None:
    cache, model, x = tmp_path / "ranges.json", make_image_network(), _images(9)
    first = dt.compile(model, precision=_options(cache=cache))
    text = cache.read_bytes()
    second = dt.compile(model, precision=_options(cache=cache))
    np.testing.assert_array_equal(first(x), second(x))
    third = dt.compile(model, precision=_options(cache=cache, calibration=None))
    assert _error(third, model) < 0.05
    assert cache.read_bytes() == text


def test_a_cache_of_another_network_or_method_is_an_error_without_data(tmp_path: Path) -> None:
    cache, model = tmp_path / "ranges.json", make_image_network()
    dt.compile(model, precision=_options(cache=cache))
    with pytest.raises(dt.BuildError, match="does not fit: it was made by ERROR"):
        dt.compile(model, precision=_options(cache=cache, calibration=None, method="minmax"))
    cache.write_text("{}")
    with pytest.raises(dt.BuildError, match="damaged or was not written by Dovetail"):
        dt.compile(model, precision=_options(cache=cache))


def test_without_ranges_there_is_nothing_to_quantize_with() -> None:
    with pytest.raises(dt.UsageError, match="int8 needs the ranges of tensors"):
        dt.compile(make_image_network(), precision="int8")


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "there is no calibration batch"),
        ([{"z": _images()}], "a calibration batch has no input 'x'"),
        ([_images()], "not a calibration batch"),
        ([{"x": _images()[0]}], "input 'x'"),
    ],
)
def test_batches_that_do_not_fit_are_named(batches: Any, message: str) -> None:
    with pytest.raises(dt.DovetailError, match=message):
        dt.compile(make_image_network(), precision=_options(calibration=batches))


@given(low=st.floats(-1e6, 1e6), high=st.floats(-1e6, 1e6))
def test_scales_cover_the_range_and_hit_zero(low: float, high: float) -> None:
    low, high = min(low, high), max(low, high)
    affine = affine_from_range((low, high), "int8")
    steps = np.clip(np.rint(np.array([low, 0.0, high]) / affine.scale) + affine.zero, -128, 127)
    found = (steps - affine.zero) * affine.scale
    assert found[1] == 0
    np.testing.assert_allclose(found, [low, 0.0, high], atol=1.01 * affine.scale)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), axis=st.sampled_from([None, 0, 1]))
def test_no_weight_is_further_off_than_half_a_step(seed: int, axis: int | None) -> None:
    weights = np.random.default_rng(seed).standard_normal((5, 7)).astype(np.float32)
    weights[:, 2] = 0
    scales = scales_of_weights(weights, axis, "int8")
    spread = scales if axis is None else np.expand_dims(scales, 1 - axis)
    assert np.abs(np.rint(weights / spread)).max() <= 127
    assert (np.abs(np.rint(weights / spread) * spread - weights) <= 0.5001 * spread).all()
