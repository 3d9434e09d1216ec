"""Values of ONNX Runtime as arrays: types below a byte, texts, and types whose numbers are not ONNX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from onnxruntime_ep_dovetail.graph.values import kind_of, number_of
from tests.support.ort_ep import EP, RUNTIME, reference_session, session_options
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

Open = Callable[..., Any]
since_opset_25 = pytest.mark.skipif(RUNTIME < (1, 25), reason="ONNX Runtime takes opset 25 from 1.25 on")


def test_numbers_and_types_belong_together() -> None:
    known = [kind for kind in ir.DataType if kind not in (ir.DataType.FLOAT6E2M3, ir.DataType.FLOAT6E3M2)]
    assert [kind_of(number_of(kind)) for kind in known] == known
    assert len({number_of(kind) for kind in known}) == len(known)


@since_opset_25
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (TensorProto.UINT4, [0, 15, 7, 8, 1]),
        (TensorProto.INT4, [0, -8, 7, -1, 3]),
        (TensorProto.UINT2, [0, 3, 1, 2, 3]),
        (TensorProto.INT2, [0, -2, 1, -1, -2]),
    ],
    ids=lambda one: TensorProto.DataType.Name(one) if isinstance(one, int) else "",
)
@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_weights_below_a_byte(kind: int, values: list[int], route: str, dovetail_session: Open, assigned: Open) -> None:
    weight = helper.make_tensor("w", kind, [5], values)
    nodes = [node("Cast", ["w"], ["a"], to=TensorProto.FLOAT), node("Add", ["a", "x"], ["y"])]
    model = make_model(nodes, [tensor("x", [5])], [tensor("y", [5])], {"w": weight}, opset=25)
    options = session_options(fallback=True)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = dovetail_session(model, options=options, claim="all", route=route)
    assert "Cast" in assigned(session)[EP]
    x = np.zeros(5, np.float32)
    assert session.run(None, {"x": x})[0].tolist() == values


def test_an_attribute_that_is_a_tensor_of_texts_is_read(dovetail_session: Open) -> None:
    keys = helper.make_tensor("keys_tensor", TensorProto.STRING, [3], [b"one", b"", "drei·".encode()])
    found = helper.make_tensor("values_tensor", TensorProto.INT64, [3], [1, 0, 3])
    other = helper.make_tensor("default_tensor", TensorProto.INT64, [1], [9])
    tables = {"keys_tensor": keys, "values_tensor": found, "default_tensor": other}
    encoder = node("LabelEncoder", ["t"], ["y"], domain="ai.onnx.ml", **tables)
    model = make_model([encoder], [tensor("t", [3], TensorProto.STRING)], [tensor("y", [3], TensorProto.INT64)])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 4))
    feeds = {"t": np.array(["drei·", "one", "two"], object)}
    for route in ("compile", "kernels"):
        session = dovetail_session(model, claim="all", route=route, fallback=True)
        assert (
            session.run(None, feeds)[0].tolist() == reference_session(model).run(None, feeds)[0].tolist() == [3, 1, 9]
        )


def test_an_attribute_that_is_a_type_does_not_end_the_session(dovetail_session: Open) -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    nodes = [
        node("Optional", [], ["o"], type=kind),
        node("OptionalHasElement", ["o"], ["has"]),
        node("Not", ["has"], ["y"]),
    ]
    model = make_model(nodes, [], [tensor("y", [], TensorProto.BOOL)], opset=18)
    for route in ("compile", "kernels"):
        session = dovetail_session(model, claim="all", route=route, fallback=True)
        assert session.run(None, {})[0].item() is True


@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_a_scalar_beside_a_result_that_only_the_run_sizes(route: str, dovetail_session: Open, assigned: Open) -> None:
    nodes = [node("NonZero", ["x"], ["places"]), node("ReduceSum", ["x"], ["total"], keepdims=0)]
    outputs = [tensor("places", [1, None], TensorProto.INT64), tensor("total", [])]
    model = make_model(nodes, [tensor("x", [4])], outputs)
    session = dovetail_session(model, claim="all", route=route)
    places, total = session.run(None, {"x": np.array([0, 1, 0, 2], np.float32)})
    assert places.tolist() == [[1, 3]]
    assert (total.shape, float(total)) == ((), 3.0)
