"""With ``claim=all`` what is taken runs, and what cannot be built stays with ONNX Runtime, which is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dovetail.network.inference import fixes, shapes
from tests.support.ort_ep import EP, needs_bodies, reference_session, session_options
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

CPU = "CPUExecutionProvider"
Open = Callable[..., Any]
RNG = np.random.default_rng(12)
ROUTES = pytest.mark.parametrize("route", ["compile", "kernels"])


def _floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _check(session: Any, model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    for ours, theirs in zip(session.run(None, feeds), reference_session(model).run(None, feeds), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


PRODUCTS = [
    ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
    ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
    ((2, 3, 4), (5, 2, 4), {"transBatchB": 1, "transB": 1}),
    ((3, 2, 6, 4), (2, 6, 4, 5), {"transBatchA": 1}),
    ((3, 2, 6, 4), (4, 2, 6, 5), {"transBatchA": 1, "transBatchB": 1}),
]


@ROUTES
@pytest.mark.parametrize("is_open", [False, True], ids=["static", "open"])
@pytest.mark.parametrize(("left", "right", "attributes"), PRODUCTS)
def test_products_whose_batch_is_transposed(
    dovetail_session: Open, left: Any, right: Any, attributes: Any, is_open: bool, route: str
) -> None:
    steps = [node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", alpha=2.0, **attributes)]
    inputs = [
        tensor(name, [f"{name}{i}" for i in range(len(shape))] if is_open else shape)
        for name, shape in (("a", left), ("b", right))
    ]
    model = make_model(steps, inputs, [tensor("y", None)], domains=["com.microsoft"])
    session = dovetail_session(model, claim="all", route=route)
    _check(session, model, {"a": _floats(*left), "b": _floats(*right)})


@needs_bodies
@pytest.mark.parametrize("counter", [[], [1]], ids=["scalar", "vector"])
@pytest.mark.parametrize("condition", [[], [1]], ids=["scalar", "vector"])
def test_loops_by_how_the_body_declares_its_counter(
    dovetail_session: Open, counter: list[int], condition: list[int]
) -> None:
    steps = [
        node("Cast", ["i"], ["number"], to=TensorProto.FLOAT),
        node("Add", ["state", "number"], ["next"]),
        node("Identity", ["go"], ["go_on"]),
        node("Identity", ["number"], ["seen"]),
        node("Cast", ["go"], ["going"], to=TensorProto.FLOAT),
    ]
    inputs = [tensor("i", counter, TensorProto.INT64), tensor("go", condition, TensorProto.BOOL), tensor("state", [2])]
    outputs = [tensor("go_on", condition, TensorProto.BOOL), tensor("next", [2])]
    scans = [tensor("seen", counter), tensor("going", condition)]
    body = helper.make_graph(steps, "body", inputs, outputs + scans)
    given = [tensor("n", counter, TensorProto.INT64), tensor("c", condition, TensorProto.BOOL), tensor("x", [2])]
    made = [tensor("y", [2]), tensor("numbers", None), tensor("marks", None)]
    model = make_model([node("Loop", ["n", "c", "x"], ["y", "numbers", "marks"], body=body)], given, made)
    session = dovetail_session(model, claim="all")
    _check(session, model, {"n": np.full(counter, 3), "c": np.full(condition, True), "x": _floats(2)})


@ROUTES
@pytest.mark.parametrize(("opset", "kind"), [(7, TensorProto.FLOAT), (10, TensorProto.BOOL), (13, TensorProto.BOOL)])
def test_masks_of_dropout(dovetail_session: Open, opset: int, kind: int, route: str) -> None:
    outputs = [tensor("y", [2, 3]), tensor("mask", [2, 3], kind)]
    model = make_model([node("Dropout", ["x"], ["y", "mask"])], [tensor("x", [2, 3])], outputs, opset=opset)
    session = dovetail_session(model, claim="all", route=route)
    _check(session, model, {"x": _floats(2, 3)})


@ROUTES
def test_nodes_that_cannot_be_built_stay(
    dovetail_session: Open,
    assigned: Open,
    route: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def refuse(_context: Any, _node: Any) -> bool:
        raise ValueError("nobody builds this")

    monkeypatch.setattr(shapes, "CORRECTIONS", {**fixes.CORRECTIONS, ("", "Softmax"): refuse})
    steps = [
        node("Relu", ["x"], ["a"]),
        node("Softmax", ["a"], ["b"], name="odd"),
        node("Neg", ["b"], ["c"]),
        node("Softmax", ["c"], ["d"]),
        node("Abs", ["d"], ["y"]),
    ]
    model = make_model(steps, [tensor("x", ["n", 3])], [tensor("y", None)])
    options = session_options(fallback=True)
    options.log_severity_level = 2
    session = dovetail_session(model, options=options, claim="all", route=route)
    told = capfd.readouterr().err
    assert told.count("stays with ONNX Runtime") == 2, "each node once"
    assert "node 'odd' (Softmax) stays with ONNX Runtime: shapes do not fit: nobody builds this" in told
    assert assigned(session) == {EP: ["Abs", "Neg", "Relu"], CPU: ["Softmax", "Softmax"]}
    _check(session, model, {"x": _floats(2, 3)})
