"""A small model with a custom operator, and the library that has it, for tests of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["LIBRARY", "write_library", "write_model"]

LIBRARY = '''\
"""Custom layers of the tests."""

import numpy as np

from dovetail import layer


@layer("acme::ScaledRelu", tactics=("where", "maximum"))
def scaled_relu(x, *, alpha: float = 1.0, tactic: str = "where"):
    scale = x.dtype.type(alpha)
    return np.where(x > 0, x * scale, x.dtype.type(0)) if tactic == "where" else np.maximum(x, 0) * scale
'''
WEIGHT = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3)


def write_library(folder: Path, text: str = LIBRARY) -> Path:
    """Write the plugin library."""
    path = folder / "layers.py"
    path.write_text(text, encoding="utf-8")
    return path


def write_model(
    path: Path, dims: Sequence[int | str] = ("n", 4), *, op: str = "ScaledRelu", alpha: float = 2.0
) -> Path:
    """Write ``y = scaled_relu(x @ w)``, and ``z``, the sum of ``y``."""
    domain = "acme" if op == "ScaledRelu" else ""
    extra = {"alpha": alpha, "plugin_namespace": "acme"} if domain else {}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], name="project"),
        helper.make_node(op, ["t"], ["y"], name="custom", domain=domain, **extra),
        helper.make_node("ReduceSum", ["y"], ["z"], name="sum", keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [dims[0], 3]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, []),
        ],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def reference(x: np.ndarray, alpha: float = 2.0) -> np.ndarray:
    """What ``y`` must be."""
    return np.maximum(x @ WEIGHT, 0) * np.float32(alpha)
