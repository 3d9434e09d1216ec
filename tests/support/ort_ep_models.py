"""Small models for tests of the execution provider, and what they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["feeds", "plain_model", "plugin_model", "run_plain", "two_part_model"]

FLOAT = TensorProto.FLOAT
WEIGHTS = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


def feeds(rows: int = 4) -> dict[str, Any]:
    """Inputs of ``plain_model``."""
    x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
    return {"x": x, "z": np.full((1, 8), 0.5, np.float32)}


def run_plain(inputs: dict[str, Any]) -> Any:
    """What ``plain_model`` gives."""
    return np.maximum(inputs["x"] @ WEIGHTS, 0) + inputs["z"]


def plain_model() -> onnx.ModelProto:
    """``Relu(x @ W) + z``; the inputs of the graph are not in the order in which nodes use them."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"], name="product"),
        helper.make_node("Relu", ["a"], ["b"], name="bend"),
        helper.make_node("Add", ["b", "z"], ["y"], name="shift"),
    ]
    return _model(nodes, {"z": [1, 8], "x": ["N", 16]}, {"y": ["N", 8]}, {"W": WEIGHTS})


def two_part_model(middle: str = "Sqrt") -> onnx.ModelProto:
    """Two partitions when ``middle`` is not taken: ``Relu(x)``, the middle, ``Neg``."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node(middle, ["a"], ["b"], name="middle"),
        helper.make_node("Neg", ["b"], ["y"], name="last"),
    ]
    return _model(nodes, {"x": ["N", 16]}, {"y": ["N", 16]}, {})


def plugin_model(op: str, domain: str = "dovetail.plugins", **attributes: Any) -> onnx.ModelProto:
    """A custom layer between two operators that ONNX Runtime has."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="before"),
        helper.make_node(op, ["a"], ["b"], name="custom", domain=domain, **attributes),
        helper.make_node("Neg", ["b"], ["y"], name="after"),
    ]
    return _model(nodes, {"x": ["N", 16]}, {"y": ["N", 16]}, {}, domain)


def _model(
    nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], weights: dict[str, Any], domain: str = ""
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
