"""Weights in files that bodies of control flow read: sessions run as they do without Dovetail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support import ort_ep

pytestmark = pytest.mark.versions

Open = Callable[..., ort.InferenceSession]
SIZE = 400
OPTIONS = [
    {"route": route, "claim": claim} for route, claim in itertools.product(("compile", "kernels"), ("all", "auto"))
]


def _branch(op: str, name: str) -> onnx.GraphProto:
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(op, ["x", "w"], [name])], name, [], [output])


def _loop_body() -> onnx.GraphProto:
    nodes = [
        helper.make_node("Mul", ["state", "w"], ["next"]),
        helper.make_node("Identity", ["was"], ["going"]),
    ]
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("was", TensorProto.BOOL, []),
        helper.make_tensor_value_info("state", TensorProto.FLOAT, [SIZE]),
    ]
    outputs = [
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        helper.make_tensor_value_info("next", TensorProto.FLOAT, [SIZE]),
    ]
    return helper.make_graph(nodes, "body", inputs, outputs)


def _model(kind: str) -> onnx.ModelProto:
    control = {
        "If": helper.make_node("If", ["c"], ["a"], then_branch=_branch("Add", "t"), else_branch=_branch("Mul", "e")),
        "Loop": helper.make_node("Loop", ["m", ""], ["a"], body=_loop_body()),
    }
    control["Loop"].input.append("x")
    nodes = [control[kind], helper.make_node("Add", ["a", "w"], ["y"])]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [SIZE]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    weight = numpy_helper.from_array(np.linspace(1, 2, SIZE, dtype=np.float32), "w")
    trips = numpy_helper.from_array(np.array(3, np.int64), "m")
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [SIZE])]
    graph = helper.make_graph(nodes, kind, inputs, outputs, [weight, trips])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("kind", ["If", "Loop"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options.values()))
def test_bodies_read_weights_in_files(
    dovetail_session: Open, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(kind), path, save_as_external_data=True, location="model.data", size_threshold=0)
    session, plain = dovetail_session(str(path), fallback=True, **options), ort_ep.reference_session(str(path))
    for condition in (True, False):
        feeds = {"x": np.full(SIZE, 3, np.float32), "c": np.array(condition)}
        np.testing.assert_allclose(session.run(None, feeds)[0], plain.run(None, feeds)[0], rtol=1e-6)
