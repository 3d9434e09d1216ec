"""What a node costs more here than in ONNX Runtime."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest

from onnxruntime_ep_dovetail.claim.costs import BORDER_US, extra_us


def _node(op: str, shape: list[int | str] | None, *, domain: str = "", second: ir.Value | None = None) -> ir.Node:
    kind = ir.TensorType(ir.DataType.FLOAT)
    value = ir.Value(name="x", type=kind, shape=None if shape is None else ir.Shape(shape))
    node = ir.Node(domain, op, [value] if second is None else [value, second], num_outputs=1)
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = "y", kind, value.shape
    return node


def _weight() -> ir.Value:
    return ir.Value(name="w", const_value=ir.Tensor(np.array([1, -1])))


@pytest.mark.parametrize("op", ["Relu", "Add", "Mul", "Cast", "Sigmoid", "Identity"])
def test_small_steps_between_two_plugins_are_worth_it(op: str) -> None:
    assert extra_us(_node(op, [1, 64])) < BORDER_US


@pytest.mark.parametrize("op", ["Conv", "MatMul", "Gemm", "LSTM", "Softmax", "ReduceSum", "If", "Loop"])
def test_what_onnx_runtime_does_better_is_never_worth_it(op: str) -> None:
    assert math.isinf(extra_us(_node(op, [1, 1])))


def test_other_domains_are_never_worth_it() -> None:
    assert math.isinf(extra_us(_node("Relu", [1], domain="com.microsoft")))


def test_large_results_cost_more() -> None:
    costs = [extra_us(_node("Relu", [1, size])) for size in (16, 4096, 65536)]
    assert costs == sorted(costs)
    assert costs[-1] > BORDER_US
    assert extra_us(_node("Sigmoid", [1, 4096])) > extra_us(_node("Relu", [1, 4096]))


@pytest.mark.parametrize("shape", [None, ["batch", 4]])
def test_unknown_sizes_are_not_guessed(shape: list[int | str] | None) -> None:
    assert math.isinf(extra_us(_node("Relu", shape)))


def test_a_view_costs_the_same_at_any_size_unless_its_shape_is_computed() -> None:
    assert extra_us(_node("Reshape", ["batch", 4], second=_weight())) < BORDER_US
    assert extra_us(_node("Reshape", [1, 1 << 20], second=_weight())) == extra_us(_node("Identity", [1]))
    assert math.isinf(extra_us(_node("Reshape", [1, 4], second=ir.Value(name="shape"))))
