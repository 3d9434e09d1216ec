"""Shapes that inference could get wrong, from a model to a run: slices over open dims, loops that end early."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail as dt


def _model(nodes: list, inputs: list, outputs: list, constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, 5, 1), (2, 9, 1), (-3, 2**62, 1), (1, -1, 1), (0, 2**31 - 1, 2), (4, 2, 1), (-100, 3, 1), (1, 100, 3)],
)
@pytest.mark.parametrize("profile", [None, {"x": ((1, 2), (4, 2), (12, 2))}])
def test_slices_are_clamped_to_open_dims(start: int, end: int, step: int, profile: dict | None) -> None:
    names = ("s", "e", "a", "t")
    values = (start, end, 0, step)
    model = _model(
        [helper.make_node("Slice", ["x", *names], ["c"]), helper.make_node("Relu", ["c"], ["y"])],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        {name: np.array([value], np.int64) for name, value in zip(names, values, strict=True)},
    )
    engine = dt.compile(model, shapes=profile)
    for rows in (1, 3, 5, 12):
        x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        np.testing.assert_array_equal(engine(x), x[start:end:step])


def test_a_loop_that_its_condition_ends_is_as_long_as_it_ran() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "one"], ["w"]),
            helper.make_node("Less", ["w", "limit"], ["going"]),
            helper.make_node("Identity", ["w"], ["part"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("part", TensorProto.FLOAT, []),
        ],
    )
    model = _model(
        [
            helper.make_node("Loop", ["count", "", "x"], ["last", "parts"], body=body),
            helper.make_node("Neg", ["parts"], ["y"]),
        ],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        {"count": np.array(10, np.int64), "one": np.array(1.0, np.float32), "limit": np.array(3.0, np.float32)},
    )
    engine = dt.compile(model)
    np.testing.assert_array_equal(engine(np.array(0.0, np.float32)), [-1.0, -2.0, -3.0])
    np.testing.assert_array_equal(engine(np.array(-20.0, np.float32)), -np.arange(-19.0, -9.0, dtype=np.float32))
