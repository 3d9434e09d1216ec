"""A partition of one product as a plan gives it back."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from dovetail.provider.interfaces import StoredPartition, TensorSpec
from dovetail_openvino.payload import split_partition

__all__ = ["WEIGHT", "X", "make_model", "store"]

X = TensorSpec.of("float32", (None, 64))
WEIGHT = np.ones((64, 64), np.float32)


def make_model() -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64]) for name in "xy"]
    weight = numpy_helper.from_array(WEIGHT, "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def store(model: onnx.ModelProto | None = None) -> StoredPartition:
    payload, weights = split_partition(ir.from_proto(model or make_model()), frozenset())
    return StoredPartition(
        name="step",
        payload=memoryview(payload),
        version="onnx-1",
        inputs=["x"],
        outputs=["y"],
        weights=weights,
        places={},
        input_specs=[X],
        output_specs=[X],
    )
