"""Small models for tests inside ONNX Runtime, written in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["make_model", "node", "tensor"]

node = helper.make_node


def tensor(name: str, shape: Sequence[int | str] | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """An input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model of these nodes; weights are arrays or tensors."""
    held = [
        weight if isinstance(weight, TensorProto) else numpy_helper.from_array(np.asarray(weight), name)
        for name, weight in (weights or {}).items()
    ]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, held)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
