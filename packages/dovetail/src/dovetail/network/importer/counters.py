"""Loops whose body declares its counter or its condition as a vector: it is made one inside the body.

A loop passes scalars. ONNX Runtime also takes bodies that declare vectors of one element; what such a body computes
from them has an axis more.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

__all__ = ["pass_scalar_counters"]

_RESHAPES_BY_INPUT: Final = 5
"""The opset from which on Reshape reads the new shape from an input."""


def pass_scalar_counters(model: ir.Model) -> None:
    """Have every loop pass scalars to its body, which gives them the shape that it declares."""
    if model.opset_imports.get("", 1) < _RESHAPES_BY_INPUT:
        return
    for node in list(model.graph.all_nodes()):
        body = node.attributes.get("body")
        if node.domain == "" and node.op_type == "Loop" and body is not None and not body.is_ref():
            _pass_scalars(body.as_graph())


def _pass_scalars(body: ir.Graph) -> None:
    for index, declared in enumerate(list(body.inputs)[:2]):
        if declared.shape:
            scalar = ir.Value(name=declared.name, type=declared.type, shape=ir.Shape(()))
            shaped = _reshape(body, scalar, len(declared.shape))
            shaped.name = f"{declared.name}/vector"
            declared.replace_all_uses_with(shaped, replace_graph_outputs=True)
            body.inputs[index] = scalar


def _reshape(body: ir.Graph, scalar: ir.Value, rank: int) -> ir.Value:
    """The only element of a scalar as a tensor of a rank, made at the start of a body."""
    shape = ir.Tensor(np.ones(rank, np.int64), name=f"{scalar.name}/ones")
    ones = ir.Node("", "Constant", [], [ir.AttrTensor("value", shape)], num_outputs=1)
    ones.outputs[0].name = shape.name
    node = ir.Node("", "Reshape", [scalar, ones.outputs[0]], num_outputs=1)
    if len(body):
        body.insert_before(body[0], (ones, node))
    else:
        body.extend((ones, node))
    return node.outputs[0]
