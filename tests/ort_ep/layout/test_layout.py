"""Channels last: ONNX Runtime rewrites what the back end has kernels for, nothing else, and results stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto

from onnxruntime_ep_dovetail.graph.read import NHWC_DOMAIN
from onnxruntime_ep_dovetail.kernels import impl as kernel_impl
from onnxruntime_ep_dovetail.kernels.layout import LayoutPreference
from onnxruntime_ep_dovetail.kernels.node import Operator, read_operator
from tests.support.ort_ep import EP, RUNTIME, reference_session
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

CPU = "CPUExecutionProvider"
Open = Callable[..., Any]
RNG = np.random.default_rng(8)
ROUTES = pytest.mark.parametrize("route", ["compile", "kernels"])


def _floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


X = _floats(2, 3, 8, 8)
WEIGHTS = {
    "w": _floats(4, 3, 3, 3),
    "b": _floats(4),
    "w2": _floats(6, 4, 1, 1),
    "wt": _floats(6, 5, 2, 2),
    "scales": np.array([1, 1, 2, 2], np.float32),
}


def _image_model(opset: int = 18) -> onnx.ModelProto:
    """Filters, pools, and between them what has no kernel with its channels last."""
    nodes = [
        node("Conv", ["x", "w", "b"], ["c0"], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["c1"]),
        node("MaxPool", ["c1"], ["c2"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["c2", "w2"], ["c3"]),
        node("Resize", ["c3", "", "scales"], ["c4"], mode="nearest"),
        node("ConvTranspose", ["c4", "wt"], ["c5"], strides=[2, 2]),
        node("AveragePool", ["c5"], ["c6"], kernel_shape=[3, 3]),
        node("GlobalAveragePool", ["c6"], ["y"]),
    ]
    return make_model(nodes, [tensor("x", ["N", 3, 8, 8])], [tensor("y", ["N", 5, 1, 1])], WEIGHTS, opset=opset)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Operator]:
    """The operators that kernels were made for: before 1.30 ONNX Runtime does not record them when it rewrites."""
    seen: list[Operator] = []
    create = kernel_impl._create_kernel

    def note(ep: Any, info: int) -> int:
        seen.append(read_operator(ep.runtime, info))
        return create(ep, info)

    monkeypatch.setattr(kernel_impl, "_create_kernel", note)
    return seen


def _nodes(session: Any, made: list[Operator]) -> list[tuple[str, str]]:
    """The domain and operator of every node, sorted."""
    parts = session.get_provider_graph_assignment_info()
    found = [(one.domain, one.op_type) for part in parts for one in part.get_nodes()]
    return sorted([(one.domain, one.op) for one in made] or found)


def _rewritten(session: Any, made: list[Operator]) -> list[str]:
    return [op for domain, op in _nodes(session, made) if domain == NHWC_DOMAIN]


def _check(session: Any, model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    for ours, theirs in zip(session.run(None, feeds), reference_session(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@ROUTES
@pytest.mark.parametrize("opset", [13, 18, 22])
def test_what_has_kernels_is_rewritten(
    route: str, opset: int, dovetail_session: Open, assigned: Open, made: list[Operator]
) -> None:
    model = _image_model(opset)
    session = dovetail_session(model, claim="all", route=route, prefer_nhwc="1")
    assert assigned(session).keys() == {EP}
    expected = ["AveragePool", "Conv", "Conv", "ConvTranspose", "GlobalAveragePool", "MaxPool"]
    assert _rewritten(session, made) == expected
    assert ("", "Resize") in _nodes(session, made)
    _check(session, model, {"x": X})


def test_a_rewritten_model_is_still_one_partition(dovetail_session: Open) -> None:
    session = dovetail_session(_image_model(), claim="all", prefer_nhwc="1")
    assert len(session.get_provider_graph_assignment_info()) == 1
    transposes = [op for _, op in _nodes(session, []) if op == "Transpose"]
    assert len(transposes) == 4, "around the model, and around what stays as it was"


IMAGES = {
    "LRN": [node("LRN", ["c"], ["y"], size=3, alpha=0.1)],
    "DepthToSpace": [node("DepthToSpace", ["c"], ["y"], blocksize=2, mode="CRD")],
    "SpaceToDepth": [node("SpaceToDepth", ["c"], ["y"], blocksize=2)],
    "GridSample": [node("GridSample", ["c", "grid"], ["y"], padding_mode="border")],
}


@ROUTES
@pytest.mark.parametrize("opset", [13, 16, 20, 22])
@pytest.mark.parametrize("op", IMAGES)
def test_other_operators_on_images_are_rewritten(
    route: str, opset: int, op: str, dovetail_session: Open, assigned: Open, made: list[Operator]
) -> None:
    if op == "GridSample" and opset < 16:
        pytest.skip("GridSample is of opset 16")
    weights = {"w": WEIGHTS["w"], "grid": RNG.uniform(-1, 1, (2, 5, 6, 2)).astype(np.float32)}
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), *IMAGES[op]]
    model = make_model(nodes, [tensor("x", ["N", 3, 8, 8])], [tensor("y", None)], weights, opset=opset)
    session = dovetail_session(model, claim="all", route=route, prefer_nhwc="1")
    assert assigned(session).keys() == {EP}
    if route == "kernels" or RUNTIME >= (1, 30):
        assert _rewritten(session, made) == sorted(["Conv", op])
    _check(session, model, {"x": X})


@ROUTES
def test_nothing_is_rewritten_unless_asked_for(route: str, dovetail_session: Open, made: list[Operator]) -> None:
    model = _image_model()
    session = dovetail_session(model, claim="all", route=route)
    assert not _rewritten(session, made)
    _check(session, model, {"x": X})


@ROUTES
def test_excluded_operators_stay_as_they_are(
    route: str, dovetail_session: Open, assigned: Open, made: list[Operator]
) -> None:
    model = _image_model()
    session = dovetail_session(model, claim="all", route=route, prefer_nhwc="1", exclude="MaxPool", fallback=True)
    assert assigned(session)[CPU] == ["MaxPool"]
    assert _rewritten(session, made) == ["AveragePool", "Conv", "Conv", "ConvTranspose", "GlobalAveragePool"]
    _check(session, model, {"x": X})


@ROUTES
def test_nodes_that_are_not_taken_are_not_rewritten(route: str, dovetail_session: Open, assigned: Open) -> None:
    session = dovetail_session(_image_model(), route=route, prefer_nhwc="1")
    assert assigned(session).keys() == {CPU}


@ROUTES
def test_a_pool_that_tells_places_keeps_all_pools_as_they_are(
    route: str, dovetail_session: Open, made: list[Operator]
) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2]),
        node("MaxPool", ["p"], ["y", "places"], kernel_shape=[2, 2]),
    ]
    outputs = [tensor("y", None), tensor("places", None, TensorProto.INT64)]
    model = make_model(nodes, [tensor("x", [2, 3, 8, 8])], outputs, {"w": WEIGHTS["w"]})
    session = dovetail_session(model, claim="all", route=route, prefer_nhwc="1")
    assert _rewritten(session, made) == ["Conv"]
    _check(session, model, {"x": X})


@ROUTES
def test_a_type_without_a_kernel_keeps_the_operator_as_it_is(
    route: str, dovetail_session: Open, made: list[Operator]
) -> None:
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
        node("Conv", ["h", "w"], ["c"]),
        node("Cast", ["c"], ["f"], to=TensorProto.FLOAT),
        node("GlobalMaxPool", ["f"], ["y"]),
    ]
    weights = {"w": onnx.helper.make_tensor("w", TensorProto.BFLOAT16, [4, 3, 3, 3], WEIGHTS["w"].ravel())}
    model = make_model(nodes, [tensor("x", [2, 3, 8, 8])], [tensor("y", None)], weights, opset=22)
    session = dovetail_session(model, claim="all", route=route, prefer_nhwc="1")
    assert _rewritten(session, made) == ["GlobalMaxPool"], "the kernel for Conv with channels last takes no bfloat16"
    filters = WEIGHTS["w"].astype(ml_dtypes.bfloat16).astype(np.float32)
    plain = [node("Conv", ["x", "w"], ["c"]), node("GlobalMaxPool", ["c"], ["y"])]
    wide = make_model(plain, model.graph.input, [tensor("y", None)], {"w": filters})
    expected = reference_session(wide).run(None, {"x": X})[0]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=0.1, atol=0.2)


@ROUTES
def test_bodies_are_rewritten_where_their_nodes_are_taken_one_by_one(
    route: str, dovetail_session: Open, made: list[Operator]
) -> None:
    if route == "compile" and RUNTIME < (1, 27):
        pytest.skip("ONNX Runtime hands over what bodies read from 1.27 on")
    then = make_model([node("Conv", ["a", "w"], ["t"])], [], [tensor("t", [2, 4, 6, 6])]).graph
    other = make_model([node("Conv", ["a", "v"], ["e"])], [], [tensor("e", [2, 4, 6, 6])]).graph
    nodes = [node("Abs", ["x"], ["a"]), node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    inputs = [tensor("x", [2, 3, 8, 8]), tensor("c", [], TensorProto.BOOL)]
    weights = {"w": WEIGHTS["w"], "v": _floats(4, 3, 3, 3)}
    model = make_model(nodes, inputs, [tensor("y", None)], weights, opset=18)
    session = dovetail_session(model, claim="all", route=route, prefer_nhwc="1")
    assert _rewritten(session, made) == ([] if route == "compile" else ["Conv", "Conv"])
    for switch in (True, False):
        _check(session, model, {"x": X, "c": np.array(switch)})


def test_only_what_the_registry_has_is_asked_for(dovetail_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, bool] = {}
    can_take = LayoutPreference._can_take

    def note(self: LayoutPreference, op: str) -> bool:
        answers[op] = can_take(self, op)
        return answers[op]

    monkeypatch.setattr(LayoutPreference, "_can_take", note)
    dovetail_session(_image_model(), claim="all", prefer_nhwc="1")
    assert {op for op, taken in answers.items() if not taken} == {"Relu", "Resize"}
