"""Scales of INT8 tensors: from explicit ranges, from the Q/DQ nodes next to a tensor, or from a calibrator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

__all__ = ["find_scales", "graph_values", "scale_from_range"]


def scale_from_range(low: float, high: float) -> float:
    """The symmetric scale that covers a range.

    >>> scale_from_range(-1.27, 1.0)
    0.01
    """
    return max(abs(low), abs(high)) / 127.0


def find_scales(graph: ir.Graph, ranges: Mapping[str, tuple[float, float]]) -> dict[ir.Value, float]:
    """The scale of every tensor that has one: a range by name wins over a Q or DQ node beside it.

    A Q or DQ node speaks for both of its sides: what was dequantized loses nothing when it is kept in INT8 with the
    same scale, and what will be quantized is going to lie on its steps anyway.
    """
    scales: dict[ir.Value, float] = {}
    for node in graph.all_nodes():
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scale = _symmetric_scale(node)
            for value in (node.inputs[0], node.outputs[0]):
                if scale is not None and value is not None:
                    scales.setdefault(value, scale)
    for value in graph_values(graph):
        if value.name is not None and value.name in ranges:
            scales[value] = scale_from_range(*ranges[value.name])
    return scales


def _symmetric_scale(node: ir.Node) -> float | None:
    """The scale of an INT8 node with one scale and no zero point, which is what a descriptor can say."""
    quantized = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    scale, zero = (_constant(node, index) for index in (1, 2))
    if quantized is None or quantized.dtype != ir.DataType.INT8 or scale is None or scale.size != 1:
        return None
    is_symmetric = len(node.inputs) < 3 or node.inputs[2] is None or (zero is not None and not zero.any())
    return float(scale.reshape(-1)[0]) if is_symmetric else None


def _constant(node: ir.Node, index: int) -> Any:
    value = node.inputs[index] if len(node.inputs) > index else None
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def graph_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Every tensor that a graph is given, holds or computes, those of bodies included."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from graph_values(attribute.as_graph())
