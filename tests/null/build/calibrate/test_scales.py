"""Scales of tensors: from ranges by name, and from Q and DQ nodes where a descriptor can say what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from dovetail.build.calibrate.scales import find_scales, graph_values


def _value(name: str, dtype: ir.DataType) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape([4]))


def _constant(name: str, array: Any) -> ir.Value:
    return ir.Value(name=name, const_value=ir.tensor(np.asarray(array), name=name))


def _pair(scale: Any, zero: Any = None, *, known: bool = True, dtype: ir.DataType = ir.DataType.INT8) -> ir.Graph:
    """x -> Q -> q -> DQ -> y."""
    x, q, y = _value("x", ir.DataType.FLOAT), _value("q", dtype), _value("y", ir.DataType.FLOAT)
    constants = [_constant("s", np.asarray(scale, np.float32))] if known else [_value("s", ir.DataType.FLOAT)]
    if zero is not None:
        constants.append(_constant("z", np.asarray(zero, np.int8)))
    nodes = [
        ir.Node("", "QuantizeLinear", [x, *constants], outputs=[q]),
        ir.Node("", "DequantizeLinear", [q, *constants], outputs=[y]),
    ]
    inputs = [x] if known else [x, constants[0]]
    return ir.Graph(inputs, [y], nodes=nodes, initializers=constants if known else constants[1:])


def _names(scales: dict[ir.Value, float]) -> dict[str, float]:
    return {value.name or "": scale for value, scale in scales.items()}


@pytest.mark.parametrize("zero", [None, 0])
def test_a_pair_speaks_for_all_tensors_it_touches(zero: int | None) -> None:
    assert _names(find_scales(_pair(0.5, zero), {})) == {"x": 0.5, "q": 0.5, "y": 0.5}


def test_a_range_wins_and_covers_the_larger_side() -> None:
    scales = _names(find_scales(_pair(0.5), {"x": (-12.7, 1.0), "s": (0.0, 127.0)}))
    assert scales == {"x": pytest.approx(0.1), "q": 0.5, "y": 0.5, "s": 1.0}


@pytest.mark.parametrize(
    "graph",
    [
        _pair([0.5, 0.25, 1.0, 2.0]),
        _pair(0.5, zero=3),
        _pair(0.5, known=False),
        _pair(0.5, dtype=ir.DataType.UINT8),
        _pair(0.5, dtype=ir.DataType.FLOAT8E4M3FN),
    ],
    ids=["one a channel", "a zero point", "computed", "unsigned", "fp8"],
)
def test_what_a_descriptor_cannot_say_gives_no_scale(graph: ir.Graph) -> None:
    assert find_scales(graph, {}) == {}


def test_values_of_bodies_are_found() -> None:
    inner_in, inner_out = _value("body_in", ir.DataType.FLOAT), _value("body_out", ir.DataType.FLOAT)
    body = ir.Graph([inner_in], [inner_out], nodes=[ir.Node("", "Relu", [inner_in], outputs=[inner_out])])
    x, y = _value("x", ir.DataType.FLOAT), _value("y", ir.DataType.FLOAT)
    node = ir.Node("", "Scan", [x], [ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", 1)], outputs=[y])
    graph = ir.Graph([x], [y], nodes=[node])
    assert [value.name for value in graph_values(graph)] == ["x", "y", "body_in", "body_out"]
    assert set(_names(find_scales(graph, {"body_in": (-1.0, 1.0)}))) == {"body_in"}
