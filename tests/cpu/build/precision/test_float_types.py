"""Half precision from a model in fp32: what becomes narrow, what stays and why, and where casts are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail as dt
from dovetail.build.precision.decide import TypeEvidence, decide_float_types
from dovetail.build.precision.float_types import convert_float_types
from tests.support.precision_models import ModelWriter, make_block, make_image_network, make_perceptron


def _run_reference(model: onnx.ModelProto, **inputs: Any) -> Any:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]


def _types(engine: dt.Engine) -> dict[str, tuple[str, str]]:
    return {row.layer: (row.type, row.reason) for row in engine.manifest.precision}


def _input(*shape: int) -> Any:
    return np.random.default_rng(5).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("providers", [["onnxruntime"], ["cpu"]])
@pytest.mark.parametrize(
    ("model", "shape"),
    [(make_perceptron(), (5, 32)), (make_image_network(), (2, 3, 24, 24)), (make_block(), (2, 12, 32))],
    ids=["perceptron", "images", "block"],
)
def test_results_are_as_near_as_half_precision_is(model: onnx.ModelProto, shape: Any, providers: list[str]) -> None:
    engine = dt.compile(model, precision="fp16", providers=providers, shapes={"x": shape})
    x = _input(*shape)
    expected = _run_reference(model, x=x)
    found = engine(x)
    assert found.dtype == np.float32
    assert 0 < np.abs(found - expected).max() < 5e-3 * np.abs(expected).max()


def test_bfloat16_runs_where_a_provider_takes_it() -> None:
    model, x = make_perceptron(), _input(5, 32)
    found = dt.compile(model, precision="bf16", providers=["cpu"])(x)
    expected = _run_reference(model, x=x)
    assert 0 < np.abs(found - expected).max() < 3e-2 * np.abs(expected).max()


def test_a_type_that_no_provider_takes_is_an_error_with_its_reason() -> None:
    with pytest.raises(dt.BuildError, match=r"bf16 can have no effect(.|\n)*bfloat16 values cannot be handed to ONNX"):
        dt.compile(make_perceptron(), precision="bf16", providers=["onnxruntime"])


def test_each_layer_has_a_type_and_a_reason_where_it_stays() -> None:
    types = _types(dt.compile(make_perceptron(), precision="fp16"))
    assert types["fc1"] == ("fp16", "")
    assert types["mean"] == ("fp32", "a sum over many elements loses small terms")
    assert types["center"] == ("fp32", "it goes on with what 'mean' makes in fp32")
    assert types["head/fc2"] == ("fp16", "")


def test_patterns_and_operators_stay_by_the_users_word() -> None:
    options = dt.PrecisionOptions(float_type="fp16", keep=["head/*"], keep_ops=["Relu"])
    types = _types(dt.compile(make_perceptron(), precision=options))
    assert types["head/fc2"] == ("fp32", "kept by 'head/*'")
    assert types["relu"] == ("fp32", "operator Relu is kept")


def _make_tall(size: float) -> onnx.ModelProto:
    """Three products, of which the second is much larger than its input."""
    model = ModelWriter()
    a = model.add("MatMul", ["x", model.weights("w1", 32, 32)], "small")
    b = model.add("MatMul", [a, model.weights("w2", 32, 32, size=size)], "large")
    c = model.add("Mul", [b, model.constant("less", np.float32(1e-3))], "less_of_it")
    model.add("MatMul", [c, model.weights("w3", 32, 8)], "y")
    return model.finish({"x": ["n", 32]}, {"y": ["n", 8]})


def test_what_overflows_in_a_run_stays() -> None:
    engine = dt.compile(_make_tall(6e4), precision="fp16", shapes={"x": (64, 32)})
    types = _types(engine)
    assert types["small"] == types["y"] == ("fp16", "")
    assert types["large"][0] == types["less_of_it"][0] == "fp32"
    assert re.fullmatch(r"'large' reaches .*, and fp16 ends at 65504", types["large"][1])
    assert np.isfinite(engine(_input(64, 32))).all()


def test_calibration_data_shows_what_made_up_inputs_do_not() -> None:
    model, large = _make_tall(1e3), [{"x": _input(64, 32) * 100}]
    options = dt.PrecisionOptions(float_type="fp16", calibration=large)
    assert _types(dt.compile(model, precision="fp16"))["large"][0] == "fp16"
    assert "'large' reaches" in _types(dt.compile(model, precision=options))["large"][1]


@pytest.mark.parametrize(("number", "reason"), [(1e-9, "too small for fp16"), (1e6, "fp16 ends at 65504")])
def test_constants_that_the_type_cannot_hold_keep_their_layer(number: float, reason: str) -> None:
    model = ModelWriter()
    product = model.add("MatMul", ["x", model.weights("w", 8, 8)], "fc")
    model.add("Add", [product, model.constant("c", np.float32(number))], "y")
    types = _types(dt.compile(model.finish({"x": [2, 8]}, {"y": [2, 8]}), precision="fp16"))
    assert types["fc"][0] == "fp16"
    assert reason in types["y"][1]


def test_a_normalization_that_is_written_out_becomes_one_layer_in_half_precision() -> None:
    types = _types(dt.compile(make_block(), precision="fp16"))
    assert not {"ln_mean", "ln_square", "ln_variance"} & types.keys()
    assert {kind for kind, _ in types.values()} == {"fp16"}


def test_inputs_and_outputs_keep_their_types_unless_asked() -> None:
    model, x = make_perceptron(), _input(5, 32)
    options = dt.PrecisionOptions(float_type="fp16", io_types={"x": "fp16", "y": "fp16"})
    engine = dt.compile(model, precision=options)
    assert [record.dtype for record in (*engine.manifest.inputs, *engine.manifest.outputs)] == ["float16", "float16"]
    found = engine(x.astype(np.float16))
    np.testing.assert_allclose(found.astype(np.float32), _run_reference(model, x=x), atol=2e-2)


def test_control_flow_reads_what_it_read_before() -> None:
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Mul", ["h", "h"], ["squared"])],
        "then",
        [],
        [onnx.helper.make_tensor_value_info("squared", onnx.TensorProto.FLOAT, None)],
    )
    other = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["h"], ["negative"])],
        "else",
        [],
        [onnx.helper.make_tensor_value_info("negative", onnx.TensorProto.FLOAT, None)],
    )
    model = ModelWriter()
    model.add("MatMul", ["x", model.weights("w", 8, 8)], "h")
    model.add("If", [model.constant("yes", np.array(True))], "chosen", then_branch=body, else_branch=other)
    model.add("MatMul", ["chosen", model.weights("v", 8, 8)], "y")
    proto, x = model.finish({"x": [2, 8]}, {"y": [2, 8]}), _input(2, 8)
    options = dt.PrecisionOptions(float_type="fp16")
    found = dt.compile(proto, precision=options)(x)
    np.testing.assert_allclose(found, _run_reference(proto, x=x), atol=1e-2)


# casts


def _cast_model(model: onnx.ModelProto, kept: set[str]) -> ir.Model:
    converted = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    options = dt.PrecisionOptions(float_type="fp16", keep=sorted(kept))
    decisions = decide_float_types(converted, options, TypeEvidence())
    convert_float_types(converted, decisions, ir.DataType.FLOAT16, {})
    return converted


_LAYERS = ["fc1", "relu", "mean", "center", "head/fc2", "y"]


@settings(max_examples=10, deadline=None)
@given(kept=st.sets(st.sampled_from(_LAYERS)))
def test_whatever_stays_the_model_is_valid_and_no_value_is_cast_twice(kept: set[str]) -> None:
    proto = make_perceptron()
    converted = _cast_model(proto, kept)
    casts = [node for node in converted.graph if node.op_type == "Cast"]
    pairs = [(node.inputs[0], node.attributes["to"].as_int()) for node in casts]
    assert len(pairs) == len(set(pairs))
    makers = [node.inputs[0].producer() for node in casts if node.inputs[0] is not None]
    assert not any(maker is not None and maker.op_type == "Cast" for maker in makers)
    written = ir.to_proto(converted)
    onnx.checker.check_model(written, full_check=True)
    x = _input(3, 32)
    np.testing.assert_allclose(_run_reference(written, x=x), _run_reference(proto, x=x), atol=3e-2)


def test_a_weight_is_converted_once_for_all_its_readers() -> None:
    model = ModelWriter()
    w = model.weights("w", 8, 8)
    model.add("MatMul", [model.add("MatMul", ["x", w], "a"), w], "y")
    converted = _cast_model(model.finish({"x": [2, 8]}, {"y": [2, 8]}), set())
    assert sorted(name for name in converted.graph.initializers if name != "w") == ["w.fp16"]


def test_moves_between_layers_in_fp32_stay_in_fp32() -> None:
    model = ModelWriter()
    t = model.add("Transpose", ["x"], "turned", perm=[1, 0])
    e = model.add("Exp", [t], "exp")
    model.add("MatMul", [e, model.weights("w", 2, 8)], "y")
    converted = _cast_model(model.finish({"x": [2, 8]}, {"y": [8, 8]}), set())
    assert [node.op_type for node in converted.graph] == ["Transpose", "Exp", "Cast", "MatMul", "Cast"]
