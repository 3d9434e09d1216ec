"""Scales of INT8 tensors: from explicit ranges, from the Q/DQ nodes next to a tensor, or from a calibrator."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

__all__ = ["find_scales", "scale_from_range"]


def scale_from_range(low: float, high: float) -> float:
    """The symmetric scale that covers a range.

    >>> scale_from_range(-1.27, 1.0)
    0.01
    """
    return max(abs(low), abs(high)) / 127.0


def find_scales(graph: ir.Graph, ranges: Mapping[str, tuple[float, float]]) -> dict[ir.Value, float]:
    """The scale of every tensor that has one: a range by name wins over a Q or DQ node beside it."""
    scales: dict[ir.Value, float] = {}
    for node in graph.all_nodes():
        if node.op_type == "QuantizeLinear":
            _take(scales, node.outputs[0], node)
        elif node.op_type == "DequantizeLinear":
            _take(scales, node.inputs[0], node)
    for value in _values(graph):
        if value.name is not None and value.name in ranges:
            scales[value] = scale_from_range(*ranges[value.name])
    return scales


def _take(scales: dict[ir.Value, float], value: ir.Value | None, node: ir.Node) -> None:
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    tensor = None if scale is None else ir.convenience.get_const_tensor(scale)
    if value is not None and value.dtype == ir.DataType.INT8 and tensor is not None and tensor.size == 1:
        scales[value] = float(tensor.numpy().reshape(-1)[0])


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *(value for node in graph.all_nodes() for value in node.outputs)]
