"""Channels last: what is rewritten, where transposes are left, and that results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import dovetail as dt
from dovetail.network.importer.importer import import_model
from dovetail.passes.base import run_passes
from dovetail.passes.layout import NHWC_DOMAIN, LayoutPass
from dovetail.provider.loader import get_provider
from dovetail.testing import host_device
from tests.support.device_models import make_model

RNG = np.random.default_rng(0)


def _random(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


WEIGHTS = {
    "w1": _random(4, 3, 3, 3),
    "b1": _random(4),
    "w2": _random(4, 4, 3, 3),
    "up": _random(4, 5, 2, 2),
    "per_channel": _random(4, 1, 1),
    "scale": _random(4),
    "bias": _random(4),
    "mean": _random(4),
    "var": np.abs(_random(4)) + 1,
}
X = _random(2, 3, 8, 8)


def _residual() -> onnx.ModelProto:
    """Two convolutions with a residual connection, a pool over windows and one over everything."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1] * 4),
        helper.make_node("Mul", ["c2", "per_channel"], ["m"], name="mul"),
        helper.make_node("Add", ["m", "r1"], ["a"], name="add"),
        helper.make_node("Relu", ["a"], ["r2"], name="relu2"),
        helper.make_node("MaxPool", ["r2"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"], name="gap"),
        helper.make_node("Flatten", ["g"], ["y"], name="flatten"),
    ]
    weights = {name: WEIGHTS[name] for name in ("w1", "b1", "w2", "per_channel")}
    return make_model(nodes, {"x": ["n", 3, 8, 8]}, {"y": ["n", 4]}, weights)


def _rewrite(model: onnx.ModelProto, *ops: str) -> tuple[ir.Model, list[str]]:
    """The pass with the kernels of cpu, or those of some ops in the other layout."""
    kernels = get_provider("cpu").kernels

    def accepts(op: str, domain: str, opset: int) -> bool:
        return kernels.find(op, domain, opset) is not None and (not ops or domain == "" or op in ops)

    imported = import_model(model)
    result = run_passes(imported, [LayoutPass(accepts=accepts, within=lambda node: True)], check=True)
    return imported, result.changed


def _ops(model: ir.Model) -> list[str]:
    return [f"{node.op_type}{'*' if node.domain == NHWC_DOMAIN else ''}" for node in model.graph]


def test_transposes_are_left_at_both_ends_only() -> None:
    model, changed = _rewrite(_residual())
    assert _ops(model) == [
        *("Transpose", "Conv*", "Relu", "Conv*", "Mul", "Add", "Relu", "MaxPool*", "GlobalAveragePool*"),
        *("Transpose", "Flatten"),
    ]
    assert "layout: put the channels of 'conv1' last" in changed
    assert model.opset_imports[NHWC_DOMAIN] == model.opset_imports[""]
    shapes = {value.name: list(value.shape or ()) for node in model.graph for value in node.outputs}
    assert shapes["c2_first"][1:] == [8, 8, 4]


def test_only_ops_with_a_kernel_are_rewritten() -> None:
    model, _ = _rewrite(_residual(), "MaxPool")
    assert _ops(model).count("MaxPool*") == 1
    assert "Conv*" not in _ops(model)
    assert _ops(model).count("Transpose") == 2


def test_a_second_pass_changes_nothing() -> None:
    model, _ = _rewrite(_residual())
    before = _ops(model)
    again = LayoutPass(accepts=lambda *_: True, within=lambda node: True)(model)
    assert not again.changed
    assert _ops(model) == before


def test_nothing_is_rewritten_outside_of_the_share() -> None:
    imported = import_model(_residual())
    result = LayoutPass(accepts=lambda *_: True, within=lambda node: node.name == "conv2")(imported)
    assert [op for op in _ops(imported) if op.endswith("*")] == ["Conv*"]
    assert len(result.changed) == 2


def test_without_a_transpose_nothing_is_rewritten() -> None:
    imported = import_model(_residual())
    result = LayoutPass(accepts=lambda op, *_: op != "Transpose", within=lambda node: True)(imported)
    assert result.changed == ["left all: the provider has no Transpose"]
    assert not any(op.endswith("*") for op in _ops(imported))


def test_weights_that_may_be_replaced_are_not_turned() -> None:
    imported = import_model(_residual())
    kernels = get_provider("cpu").kernels
    LayoutPass(
        accepts=lambda op, domain, opset: kernels.find(op, domain, opset) is not None,
        within=lambda node: True,
        keep=frozenset({"per_channel"}),
    )(imported)
    assert "per_channel" in imported.graph.initializers
    assert not any(name.endswith("_turned") for name in imported.graph.initializers)
    mul = next(node for node in imported.graph if node.name == "mul")
    assert mul.inputs[0] is not None
    assert mul.inputs[0].name == "c2"


CASES: dict[str, tuple[list[onnx.NodeProto], list[int | str]]] = {
    "conv": ([helper.make_node("Conv", ["x", "w1", "b1"], ["y"], name="n", strides=[2, 2])], ["n", 4, 3, 3]),
    "conv that is an output and read": (
        [
            helper.make_node("Conv", ["x", "w1"], ["y"], name="n", pads=[1] * 4),
            helper.make_node("Conv", ["y", "w2"], ["z"], name="m", pads=[1] * 4),
        ],
        ["n", 4, 8, 8],
    ),
    "transposed": (
        [
            helper.make_node("Conv", ["x", "w1"], ["a"], name="c", pads=[1] * 4),
            helper.make_node("ConvTranspose", ["a", "up"], ["y"], name="n", strides=[2, 2]),
        ],
        ["n", 5, 16, 16],
    ),
    "norm": (
        [
            helper.make_node("Conv", ["x", "w1"], ["a"], name="c", pads=[1] * 4),
            helper.make_node("Relu", ["a"], ["b"], name="r"),
            helper.make_node("BatchNormalization", ["b", "scale", "bias", "mean", "var"], ["y"], name="n"),
        ],
        ["n", 4, 8, 8],
    ),
    "average": (
        [helper.make_node("AveragePool", ["x"], ["y"], name="n", kernel_shape=[3, 3], auto_pad="SAME_UPPER")],
        ["n", 3, 8, 8],
    ),
    "global max": ([helper.make_node("GlobalMaxPool", ["x"], ["y"], name="n")], ["n", 3, 1, 1]),
    "clip": (
        [
            helper.make_node("Conv", ["x", "w1"], ["a"], name="c"),
            helper.make_node("Clip", ["a", "", "six"], ["b"], name="clip"),
            helper.make_node("Conv", ["b", "w2"], ["y"], name="n"),
        ],
        ["n", 4, 4, 4],
    ),
    "an input that does not agree": (
        [
            helper.make_node("Conv", ["x", "w1"], ["a"], name="c", pads=[1] * 4),
            helper.make_node("Add", ["a", "a_side"], ["b"], name="add"),
            helper.make_node("Conv", ["b", "w2"], ["y"], name="n", pads=[1] * 4),
        ],
        ["n", 4, 8, 8],
    ),
    "a transpose of the model itself": (
        [
            helper.make_node("Transpose", ["x"], ["t"], name="t", perm=[0, 1, 3, 2]),
            helper.make_node("Conv", ["t", "w1"], ["a"], name="c"),
            helper.make_node("Transpose", ["a"], ["y"], name="u", perm=[0, 2, 3, 1]),
        ],
        ["n", 6, 6, 4],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("where", ["host_device", "cpu"])
def test_results_stay_the_same(name: str, where: str) -> None:
    nodes, shape = CASES[name]
    used = {value for node in nodes for value in node.input}
    extra = {"six": np.array(6, np.float32), "a_side": _random(1, 4, 8, 8)}
    weights = {key: array for key, array in {**WEIGHTS, **extra}.items() if key in used and key != "a_side"}
    inputs: dict[str, Any] = {"x": ["n", 3, 8, 8]} | ({"a_side": ["m", 4, 8, 8]} if "a_side" in used else {})
    arrays = [X, extra["a_side"]][: len(inputs)]
    outputs: dict[str, Any] = {"y": shape} | ({"z": shape} if any("z" in node.output for node in nodes) else {})
    model = make_model(nodes, inputs, outputs, weights)
    wanted = dt.compile(model, providers=["cpu"])(*arrays)
    config = dt.BuilderConfig()
    with host_device():
        config.provider_options = {where: {"layout": "NHWC"}}
        engine = dt.compile(model, providers=[where, "cpu"], config=config)
        assert any(step.domain == NHWC_DOMAIN for step in engine.manifest.programs[0].steps)
        for _ in range(3):
            results = engine(*arrays)
            pairs = [(results, wanted)] if len(outputs) == 1 else [(results[k], wanted[k]) for k in outputs]
            for result, reference in pairs:
                np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-4)


def test_the_second_round_gives_new_nodes_to_the_device() -> None:
    with host_device(layout="NHWC"):
        engine = dt.compile(_residual(), providers=["host_device", "cpu"])
        steps = engine.manifest.programs[0].steps
        assert {step.provider for step in steps} == {"host_device"}
        assert [step.op for step in steps].count("Transpose") == 2
        np.testing.assert_allclose(engine(X), dt.compile(_residual(), providers=["cpu"])(X), rtol=1e-4, atol=1e-4)


def test_nothing_is_asked_of_a_device_that_it_has_no_kernel_for() -> None:
    asked: list[str] = []
    with host_device(layout="NHWC", ops=["Conv", "Relu", "Transpose"]) as device:
        original = device.get_capability

        def listen(nodes: Any) -> Any:
            asked.extend(f"{node.domain}:{node.op}" for node in nodes)
            return original(nodes)

        device.get_capability = listen  # type: ignore[method-assign]
        engine = dt.compile(_residual(), providers=["host_device", "cpu"])
        np.testing.assert_allclose(engine(X), dt.compile(_residual(), providers=["cpu"])(X), rtol=1e-4, atol=1e-4)
    assert f"{NHWC_DOMAIN}:Conv" in asked
    assert f"{NHWC_DOMAIN}:MaxPool" not in asked


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(dt.ProviderError, match="layout"):
        get_provider("cpu", {"layout": "HWNC"})


IMAGES: dict[str, tuple[onnx.NodeProto, list[int | str]]] = {
    "LpPool": (helper.make_node("LpPool", ["a"], ["y"], name="n", kernel_shape=[2, 2]), ["n", 4, 7, 7]),
    "GlobalLpPool": (helper.make_node("GlobalLpPool", ["a"], ["y"], name="n"), ["n", 4, 1, 1]),
    "LRN": (helper.make_node("LRN", ["a"], ["y"], name="n", size=3, alpha=0.5), ["n", 4, 8, 8]),
    "DepthToSpace": (helper.make_node("DepthToSpace", ["a"], ["y"], name="n", blocksize=2), ["n", 1, 16, 16]),
    "SpaceToDepth": (helper.make_node("SpaceToDepth", ["a"], ["y"], name="n", blocksize=2), ["n", 16, 4, 4]),
    "GridSample": (helper.make_node("GridSample", ["a", "grid"], ["y"], name="n"), ["n", 4, 5, 6]),
}


@pytest.mark.parametrize("op", IMAGES)
def test_other_operators_on_images_are_rewritten(op: str) -> None:
    node, shape = IMAGES[op]
    grid = np.random.default_rng(3).uniform(-1, 1, (2, 5, 6, 2)).astype(np.float32)
    weights = {"w1": WEIGHTS["w1"]} | ({"grid": grid} if op == "GridSample" else {})
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], name="c", pads=[1] * 4), node]
    model = make_model(nodes, {"x": ["n", 3, 8, 8]}, {"y": shape}, weights)
    config = dt.BuilderConfig()
    config.provider_options = {"cpu": {"layout": "NHWC"}}
    engine = dt.compile(model, providers=["cpu"], config=config)
    rewritten = [step.op for step in engine.manifest.programs[0].steps if step.domain == NHWC_DOMAIN]
    assert rewritten == ["Conv", op]
    np.testing.assert_allclose(engine(X), dt.compile(model, providers=["cpu"])(X), rtol=1e-4, atol=1e-4)


def test_a_type_that_the_other_layout_lacks_keeps_the_node_as_it_is() -> None:
    messages: list[str] = []

    class Logger(dt.ILogger):
        def log(self, severity: Any, message: str) -> None:
            messages.append(message)

    text = """<ir_version: 10, opset_import: ["" : 22]> g
        (bfloat16[1,3,4,4] x, bfloat16[2,3,1,1] w) => (bfloat16[1,2,4,4] y) { y = Conv(x, w) }"""
    config = dt.BuilderConfig()
    config.provider_options = {"cpu": {"layout": "NHWC"}}
    engine = dt.compile(onnx.parser.parse_model(text), providers=["cpu"], config=config, logger=Logger())
    assert [step.domain for step in engine.manifest.programs[0].steps] == [""]
    assert any("stay where they are: the kernel takes T of float16" in message for message in messages), messages
