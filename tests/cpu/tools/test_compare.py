"""Comparisons with every reference, and the first layer that diverges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import UnsupportedOpError, UsageError
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry
from dovetail.tools.compare import CompareResult, compare_models
from dovetail.tools.differences import Tolerance
from dovetail.tools.layers import compare_layers
from dovetail.tools.sides import REFERENCES, DovetailSide, make_reference, read_source
from tests.support.broken_provider import broken_provider, wrong_gelu_kernels
from tests.support.cli_models import write_library, write_model

MODELS = Path(__file__).parents[2] / "data" / "models"

CHAIN = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    chain (float[n, 4] x) => (float[n, 4] y, float[n, 4] z)
    <float[4] w = {0.5, 2, -1, 1}> {
        [first] a = Mul(x, w)
        [second] b = Sin(a)
        [third] c = Relu(b)
        [fourth] d = Add(c, x)
        [fifth] y = Tanh(d)
        [sixth] z = Neg(x)
    }
""")


HIDDEN = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 20]>
    hidden (float[2, 4] x) => (float[2, 4] y)
    <float half = {0.5}, float one = {1.0}, float root = {1.41421356}> {
        [before] h = Tanh(x)
        [divide] a = Div(h, root)
        [erf] b = Erf(a)
        [plus] c = Add(b, one)
        [times] d = Mul(h, c)
        [scale] e = Mul(d, half)
        [after] y = Relu(e)
    }
""")


def wrong_sin(x: Any) -> Any:
    return np.sin(x) + np.float32(0.25)


@pytest.mark.parametrize("against", REFERENCES)
@pytest.mark.parametrize("providers", [None, ["cpu"]], ids=["default", "cpu"])
def test_a_right_model_is_close_in_every_layer(against: str, providers: list[str] | None) -> None:
    result = compare_models(MODELS / "bert_dynamic.onnx", against=against, providers=providers, layers=True)
    assert result.is_close
    assert result.divergence is None
    assert result.layers is not None
    assert len(result.layers) > 50
    assert sum(len(layer.outputs) for layer in result.layers) >= len(result.layers)
    assert all(output.cosine > 0.9999 for output in result.outputs)


@pytest.mark.parametrize("against", REFERENCES)
def test_a_wrong_layer_is_named(against: str) -> None:
    with broken_provider({"Sin": wrong_sin}) as providers:
        result = compare_models(CHAIN, against=against, providers=providers, layers=True, shapes={"x": (3, 4)})
    assert not result.is_close
    assert [output.is_close for output in result.outputs] == [False, True]
    divergence = result.divergence
    assert divergence is not None
    assert (divergence.layer.name, divergence.layer.op) == ("second", "Sin")
    assert divergence.layer.outputs[0].max_abs == pytest.approx(0.25, abs=1e-6)
    (taken,) = divergence.inputs
    assert (taken.name, taken.shape) == ("a", (3, 4))
    assert taken.min is not None
    assert divergence.input_errors[0].is_close
    assert result.layers is not None
    assert [layer.is_close for layer in result.layers] == [True, False, False, False, False, True]
    json.dumps(result.to_dict())


def test_chunks_find_the_same() -> None:
    with broken_provider({"Sin": wrong_sin}) as providers:
        candidate = DovetailSide(providers=providers)
        found = compare_layers(
            read_source(CHAIN),
            {"x": np.ones((2, 4), np.float32)},
            candidate=candidate,
            reference=make_reference("onnxruntime", candidate),
            tolerance=Tolerance(),
            outputs_differ=True,
            marked_at_once=1,
        )
    assert found.divergence is not None
    assert found.divergence.layer.name == "second"


def test_a_difference_that_marking_hides_is_found_by_halving() -> None:
    """The wrong kernel is that of Gelu, which only a fusion makes; a marked tensor inside the pattern prevents it."""
    with broken_provider(wrong_gelu_kernels()) as providers:
        result = compare_models(HIDDEN, providers=providers, layers=True)
        assert not result.is_close
        assert result.layers is not None
        assert all(layer.is_close for layer in result.layers if layer.name != "after")
        assert result.divergence is not None
        assert result.divergence.layer.name == "scale"
        assert any("nothing differs" in note for note in result.notes)


@pytest.mark.parametrize("marked_at_once", [6, 256])
def test_the_layer_to_blame_is_the_one_whose_input_was_still_right(marked_at_once: int) -> None:
    """Six tensors at a time leave the pattern whole in the run that shows the layer after it."""
    with broken_provider(wrong_gelu_kernels()) as providers:
        candidate = DovetailSide(providers=providers)
        found = compare_layers(
            read_source(HIDDEN),
            {"x": np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)},
            candidate=candidate,
            reference=make_reference("onnxruntime", candidate),
            tolerance=Tolerance(),
            outputs_differ=True,
            marked_at_once=marked_at_once,
        )
    assert found.divergence is not None
    assert found.divergence.layer.name == "scale"
    assert not found.divergence.layer.is_close
    assert all(error.is_close for error in found.divergence.input_errors)


# inputs


@pytest.mark.parametrize("against", ["onnxruntime", "cpu"])
def test_what_a_run_writes_over_is_given_to_both_as_it_was(against: str) -> None:
    body = "(float[4] x, float[4] z) => (float[4] y, float[4] w) { y = Add(x, z) w = Tanh(y) }"
    config = dovetail.BuilderConfig()
    config.aliases = {"y": "x"}
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> g {body}')
    assert compare_models(model, against=against, config=config).is_close


def test_the_same_seed_gives_the_same_inputs() -> None:
    def inputs(seed: int) -> Any:
        return compare_models(CHAIN, seed=seed).inputs["x"]

    assert (inputs(3) == inputs(3)).all()
    assert (inputs(3) != inputs(4)).any()


def test_given_inputs_are_used() -> None:
    x = np.full((5, 4), 0.5, np.float32)
    result = compare_models(CHAIN, inputs={"x": x})
    assert result.inputs["x"] is x
    assert result.outputs[0].shape == (5, 4)


def test_tolerances() -> None:
    with broken_provider({"Sin": lambda x: np.sin(x) + np.float32(1e-3)}) as providers:

        def compare(**given: float) -> CompareResult:
            return compare_models(CHAIN, providers=providers, **given)  # type: ignore[arg-type]

        assert not compare().is_close
        assert compare(atol=1e-2).is_close
        assert not compare(atol=1e-5).is_close


# references that do not take a model


@pytest.mark.parametrize("against", ["onnxruntime", "reference"])
def test_custom_operators_are_named(against: str, tmp_path: Path) -> None:
    registry = PluginRegistry(parent=get_plugin_registry())
    registry.load_library(write_library(tmp_path))
    model = write_model(tmp_path / "m.onnx")
    with pytest.raises(UnsupportedOpError, match="does not know acme::ScaledRelu") as caught:
        compare_models(model, against=against, registry=registry)
    assert 'against="cpu"' in str(caught.value)
    result = compare_models(model, against="cpu", registry=registry, layers=True)
    assert result.is_close


def test_there_is_no_such_reference() -> None:
    with pytest.raises(UsageError, match="there is no reference 'torch'"):
        compare_models(CHAIN, against="torch")


def test_random_numbers_are_noted() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        dice (float[4] x) => (float[4] y) { r = RandomUniformLike(x)  y = Add(x, r) }
    """)
    assert any("RandomUniformLike" in note for note in compare_models(model).notes)


def test_sequences_and_control_flow() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18]>
        objects (float[4] x, bool c) => (float[4] y) {
            [split] s = SplitToSequence(x)
            [join] j = ConcatFromSequence <axis = 0> (s)
            [choose] y = If (c) <
                then_branch = then () => (float[4] t) { t = Neg(j) },
                else_branch = other () => (float[4] e) { e = Abs(j) }
            >
        }
    """)
    result = compare_models(model, layers=True)
    assert result.is_close, result.to_dict()
    assert result.layers is not None
    assert [layer.name for layer in result.layers] == ["split", "join", "choose"]


def test_a_format_newer_than_that_of_onnx_runtime_is_lowered(tmp_path: Path) -> None:
    newer = onnx.ModelProto()
    newer.CopyFrom(CHAIN)
    newer.ir_version = 99
    (tmp_path / "newer.onnx").write_bytes(newer.SerializeToString())
    for source in (newer, tmp_path / "newer.onnx", newer.SerializeToString(), read_source(newer)):
        assert compare_models(source, layers=source is newer).is_close
    assert newer.ir_version == 99
