"""What sessions take under each claim, with results compared with ONNX Runtime's own or with NumPy's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from tests.support.ort_ep import EP, RUNTIME, needs_bodies, reference_session
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

CPU = "CPUExecutionProvider"
PLUGINS = "dovetail.plugins"
X = np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3)

Open = Callable[..., Any]


@dt.layer("ClaimTwice")
def _twice(x: Any) -> Any:
    return x + x


@dt.layer("Softsign")
def _other_softsign(x: Any) -> Any:
    return x * 100


def _twice_node(source: str, target: str) -> onnx.NodeProto:
    return node("ClaimTwice", [source], [target], domain=PLUGINS)


def _model(nodes: list[onnx.NodeProto], shape: list[int | str] | None = None, **weights: Any) -> onnx.ModelProto:
    dims = [2, 3] if shape is None else shape
    return make_model(nodes, [tensor("x", dims)], [tensor("y", None)], weights, domains=[PLUGINS])


def _check(session: Any, model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    expected = reference_session(model).run(None, feeds)
    for ours, theirs in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


# the default


def test_by_default_plugins_are_taken_and_nothing_else(dovetail_session: Open, assigned: Open) -> None:
    model = _model([node("Relu", ["x"], ["a"]), _twice_node("a", "b"), node("Exp", ["b"], ["y"])])
    session = dovetail_session(model)
    assert assigned(session) == {EP: ["ClaimTwice"], CPU: ["Exp", "Relu"]}
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.exp(2 * np.maximum(X, 0)), rtol=1e-6)


def test_a_model_without_plugins_stays_where_it_is(dovetail_session: Open, assigned: Open) -> None:
    session = dovetail_session(_model([node("Relu", ["x"], ["y"])]))
    assert assigned(session) == {CPU: ["Relu"]}


def test_small_steps_between_two_plugins_are_taken_along(dovetail_session: Open, assigned: Open) -> None:
    model = _model([_twice_node("x", "a"), node("Reshape", ["a", "s"], ["b"]), _twice_node("b", "y")], s=[3, 2])
    session = dovetail_session(model, fallback=False)
    assert assigned(session) == {EP: ["ClaimTwice", "ClaimTwice", "Reshape"]}
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 4 * X.reshape(3, 2))


def test_products_between_two_plugins_are_not(dovetail_session: Open, assigned: Open) -> None:
    weight = np.ones((3, 3), np.float32)
    model = _model([_twice_node("x", "a"), node("MatMul", ["a", "w"], ["b"]), _twice_node("b", "y")], w=weight)
    session = dovetail_session(model)
    assert assigned(session) == {EP: ["ClaimTwice", "ClaimTwice"], CPU: ["MatMul"]}
    np.testing.assert_allclose(session.run(None, {"x": X})[0], 4 * X @ weight, rtol=1e-6)


def test_steps_of_unknown_size_between_two_plugins_are_not(dovetail_session: Open, assigned: Open) -> None:
    model = _model([_twice_node("x", "a"), node("Relu", ["a"], ["b"]), _twice_node("b", "y")], ["n", 3])
    session = dovetail_session(model)
    assert assigned(session) == {EP: ["ClaimTwice", "ClaimTwice"], CPU: ["Relu"]}
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 4 * np.maximum(X, 0))


@pytest.mark.parametrize("condition", [True, False])
def test_plugins_inside_of_branches(dovetail_session: Open, assigned: Open, condition: bool) -> None:
    def branch(name: str, nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [tensor(f"{name}_y", [2, 3])])

    then = branch("then", [_twice_node("x", "then_a"), node("Abs", ["then_a"], ["then_y"])])
    other = branch("else", [node("Neg", ["x"], ["else_y"])])
    choose = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [tensor("x", [2, 3]), tensor("c", [], TensorProto.BOOL)]
    session = dovetail_session(make_model([choose], inputs, [tensor("y", None)], domains=[PLUGINS]))
    assert assigned(session) == {EP: ["ClaimTwice"], CPU: ["Abs", "If", "Neg"]}
    expected = np.abs(2 * X) if condition else -X
    np.testing.assert_array_equal(session.run(None, {"x": X, "c": np.array(condition)})[0], expected)


# what ONNX Runtime lacks


def test_types_that_onnx_runtime_has_no_kernel_for(dovetail_session: Open, assigned: Open) -> None:
    image, weight = np.random.default_rng(0).random((1, 1, 4, 4)), np.ones((1, 1, 3, 3))
    inputs, outputs = [tensor("x", image.shape, TensorProto.DOUBLE)], [tensor("y", None, TensorProto.DOUBLE)]
    model = make_model([node("Relu", ["x"], ["a"]), node("Conv", ["a", "w"], ["y"])], inputs, outputs, {"w": weight})
    session = dovetail_session(model)
    assert assigned(session) == {EP: ["Conv"], CPU: ["Relu"]}
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    np.testing.assert_allclose(session.run(None, {"x": image})[0], windows.sum((-1, -2)))


def test_operators_that_onnx_runtime_has_no_kernel_for(dovetail_session: Open, assigned: Open) -> None:
    image = np.random.default_rng(0).random((1, 2, 2, 4)).astype(np.float32)
    weights = {"scale": np.ones(4, np.float32), "bias": np.zeros(4, np.float32)}
    norm = node(
        "GroupNorm", ["a", "scale", "bias"], ["y"], domain="com.microsoft", groups=2, activation=0, channels_last=1
    )
    inputs, outputs = [tensor("x", image.shape)], [tensor("y", None)]
    model = make_model([node("Relu", ["x"], ["a"]), norm], inputs, outputs, weights, domains=["com.microsoft"])
    session = dovetail_session(model)
    assert assigned(session) == {EP: ["GroupNorm"], CPU: ["Relu"]}
    groups = image.reshape(4, 2, 2).transpose(1, 0, 2).reshape(2, -1)
    scaled = (groups - groups.mean(1, keepdims=True)) / np.sqrt(groups.var(1, keepdims=True) + 1e-5)
    expected = scaled.reshape(2, 4, 2).transpose(1, 0, 2).reshape(image.shape)
    np.testing.assert_allclose(session.run(None, {"x": image})[0], expected, rtol=1e-4, atol=1e-5)


def test_brain_floats(dovetail_session: Open, assigned: Open) -> None:
    steps = [
        node("Cast", ["x"], ["a"], to=TensorProto.BFLOAT16),
        node("Sigmoid", ["a"], ["b"]),
        node("Cast", ["b"], ["y"], to=TensorProto.FLOAT),
    ]
    session = dovetail_session(_model(steps))
    assert assigned(session) == {EP: ["Sigmoid"], CPU: ["Cast", "Cast"]}
    np.testing.assert_allclose(session.run(None, {"x": X})[0], 1 / (1 + np.exp(-X)), rtol=1e-2)


def test_operators_that_onnx_runtime_runs_by_others_stay_there(dovetail_session: Open, assigned: Open) -> None:
    model = _model([node("HardSwish", ["x"], ["y"])])
    session = dovetail_session(model)
    assert EP not in assigned(session)
    _check(session, model, {"x": X})


def test_operators_whose_others_onnx_runtime_lacks_are_taken(dovetail_session: Open, assigned: Open) -> None:
    inputs, outputs = [tensor("x", [2, 3], TensorProto.DOUBLE)], [tensor("y", None, TensorProto.DOUBLE)]
    session = dovetail_session(make_model([node("HardSwish", ["x"], ["y"])], inputs, outputs), fallback=False)
    assert assigned(session) == {EP: ["HardSwish"]}
    x = X.astype(np.float64)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x * np.clip(x / 6 + 0.5, 0, 1))


_WITHOUT_MODULE = """
import sys, types
from onnxruntime_ep_dovetail.claim.lacking import is_registry_readable
runtime = types.SimpleNamespace(version_text="1.31.1")
assert "onnxruntime" not in sys.modules
print(is_registry_readable(runtime))
sys.modules["onnxruntime"] = types.SimpleNamespace(__version__="1.30.0")
print(is_registry_readable(runtime))
sys.modules["onnxruntime"] = types.SimpleNamespace(__version__="1.31.1")
print(is_registry_readable(runtime))
"""


def test_a_registry_of_another_runtime_is_not_read() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT_MODULE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]


# options


def test_excluded_operators_stay_with_onnx_runtime(dovetail_session: Open, assigned: Open) -> None:
    model = _model([node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("Neg", ["b"], ["y"])])
    session = dovetail_session(model, claim="all", fallback=True, exclude="Exp,Sin")
    assert assigned(session) == {EP: ["Neg", "Relu"], CPU: ["Exp"]}
    _check(session, model, {"x": X})


def _branches(op: str) -> onnx.ModelProto:
    """A choice between two operators, whose operand lies around the branches."""
    bodies = {
        key: helper.make_graph(
            [node(inner, ["x"], [f"{key}_a"]), node("Neg", [f"{key}_a"], [f"{key}_y"])],
            key,
            [],
            [tensor(f"{key}_y", [2, 3])],
        )
        for key, inner in (("then_branch", op), ("else_branch", "Abs"))
    }
    inputs = [tensor("x", [2, 3]), tensor("c", [], TensorProto.BOOL)]
    return make_model([node("If", ["c"], ["y"], **bodies)], inputs, [tensor("y", None)])


def _check_branches(session: Any, model: onnx.ModelProto) -> None:
    for condition in (True, False):
        _check(session, model, {"x": X, "c": np.array(condition)})


@needs_bodies
def test_branches_are_taken_whole(dovetail_session: Open, assigned: Open) -> None:
    model = _branches("Exp")
    session = dovetail_session(model, claim="all")
    assert assigned(session) == {EP: ["If"]}
    _check_branches(session, model)


@pytest.mark.skipif(RUNTIME >= (1, 27), reason="from ONNX Runtime 1.27 on branches are taken whole")
def test_branches_are_taken_in_parts(dovetail_session: Open, assigned: Open) -> None:
    model = _branches("Exp")
    session = dovetail_session(model, claim="all", fallback=True)
    assert assigned(session) == {EP: ["Abs", "Exp", "Neg", "Neg"], CPU: ["If"]}
    _check_branches(session, model)


def test_a_branch_with_an_excluded_operator_is_not_taken_whole(dovetail_session: Open, assigned: Open) -> None:
    model = _branches("Exp")
    session = dovetail_session(model, claim="all", fallback=True, exclude="Exp")
    assert assigned(session) == {EP: ["Abs", "Neg", "Neg"], CPU: ["Exp", "If"]}
    _check_branches(session, model)


def test_a_plugin_in_place_of_an_operator_of_onnx(dovetail_session: Open, assigned: Open) -> None:
    model = _model([node("Softsign", ["x"], ["y"])])
    plain = dovetail_session(model)
    assert assigned(plain) == {CPU: ["Softsign"]}
    overridden = dovetail_session(model, override="Softsign", fallback=False)
    assert assigned(overridden) == {EP: ["Softsign"]}
    np.testing.assert_array_equal(overridden.run(None, {"x": X})[0], 100 * X)
