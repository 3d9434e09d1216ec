"""Small models and plans for tests with host devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt

__all__ = ["WEIGHT", "X", "build", "chain", "expected", "make_model", "steps_of"]

WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str]],
    outputs: dict[str, Sequence[int | str] | None],
    weights: dict[str, Any] | None = None,
    *,
    types: dict[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of opset 20; ports are floats unless ``types`` says otherwise."""
    kinds = types or {}
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def chain(rows: int | str = "n") -> onnx.ModelProto:
    """x @ W, Relu, Softmax, plus x."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"], name="matmul"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Softmax", ["b"], ["c"], name="softmax"),
        helper.make_node("Add", ["c", "x"], ["y"], name="add"),
    ]
    return make_model(nodes, {"x": [rows, 8]}, {"y": [rows, 8]}, {"W": WEIGHT})


def expected(model: Any, *arrays: Any) -> Any:
    """What the cpu provider alone gives."""
    return dt.compile(model, providers=["cpu"])(*arrays)


def build(model: Any, *providers: str, **options: Any) -> dt.Engine:
    """An engine over host devices, in order, and then the cpu."""
    return dt.compile(model, providers=[*(providers or ("host_device",)), "cpu"], **options)


def steps_of(engine: dt.Engine) -> list[str]:
    """The steps in order: the op, and where it runs."""
    return [f"{step.op}@{step.provider}" for step in engine.manifest.programs[0].steps]
