"""Layers that look along axes: reductions, top-k, cumulative sums, products, normalization and fills."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.network.api.enums import (
    CumulativeOperation,
    ElementWiseOperation,
    FillOperation,
    MatrixOperation,
    ReduceOperation,
    TopKOperation,
    UnaryOperation,
)
from dovetail.types import DataType
from tests.support.layer_cases import Expected, Sketch, case, rand

REDUCTIONS: dict[ReduceOperation, Any] = {
    ReduceOperation.SUM: np.sum,
    ReduceOperation.PROD: np.prod,
    ReduceOperation.MAX: np.max,
    ReduceOperation.MIN: np.min,
    ReduceOperation.AVG: np.mean,
}


def reduce(sketch: Sketch, op: ReduceOperation, axes: tuple[int, ...], keep: bool) -> Expected:
    x = rand(2, 3, 4)
    layer = sketch.network.add_reduce(sketch.input(x), ReduceOperation.MAX, 1, not keep)
    layer.op, layer.axes, layer.keep_dims = op, sum(1 << axis for axis in axes), keep
    wanted = x if op == ReduceOperation.NONE else REDUCTIONS[op](x, axes, keepdims=keep)
    return [(layer.get_output(0), wanted)]


for _op in ReduceOperation:
    case("add_reduce", f"{_op.name} kept", op=_op, axes=(1,), keep=True)(reduce)
    case("add_reduce", f"{_op.name} of two axes", op=_op, axes=(0, 2), keep=False)(reduce)


@case("add_topk", "largest", op=TopKOperation.MAX, axis=1)
@case("add_topk", "smallest, long indices", op=TopKOperation.MIN, axis=0, indices=DataType.INT64)
@case("add_topk", "count from a tensor", op=TopKOperation.MAX, axis=1, dynamic=True)
def topk(
    sketch: Sketch, op: TopKOperation, axis: int, indices: DataType = DataType.INT32, dynamic: bool = False
) -> Expected:
    x = rand(4, 5)
    layer = sketch.network.add_topk(sketch.input(x), TopKOperation.MAX, 1, 1)
    layer.op, layer.axes, layer.indices_type = op, 1 << axis, indices
    if dynamic:
        layer.set_input(1, sketch.scalar(3, np.int32))
    else:
        layer.k = 3
    order = np.argsort(-x if op == TopKOperation.MAX else x, axis, kind="stable").take(range(3), axis)
    return [
        (layer.get_output(0), np.take_along_axis(x, order, axis)),
        (layer.get_output(1), order.astype(indices.numpy)),
    ]


@case("add_cumulative", "as it is", exclusive=False, reverse=False)
@case("add_cumulative", "exclusive", exclusive=True, reverse=False)
@case("add_cumulative", "reversed and exclusive", exclusive=True, reverse=True)
def cumulative(sketch: Sketch, exclusive: bool, reverse: bool) -> Expected:
    x = rand(3, 4)
    axis = sketch.scalar(1, np.int32)
    layer = sketch.network.add_cumulative(sketch.input(x), axis, CumulativeOperation.SUM, not exclusive, not reverse)
    layer.op, layer.exclusive, layer.reverse = CumulativeOperation.SUM, exclusive, reverse
    line = x[:, ::-1] if reverse else x
    wanted = np.cumsum(line, 1) - (line if exclusive else 0)
    return [(layer.get_output(0), wanted[:, ::-1] if reverse else wanted)]


@case("add_cumulative", "axis from a constant")
def cumulative_constant(sketch: Sketch) -> Expected:
    x = rand(3, 4)
    axis = sketch.constant(np.array(0, np.int64))
    layer = sketch.network.add_cumulative(sketch.input(x), axis, CumulativeOperation.SUM, False, False)
    return [(layer.get_output(0), np.cumsum(x, 0))]


@case("add_non_zero", "short", indices=DataType.INT32)
@case("add_non_zero", "long", indices=DataType.INT64)
def non_zero(sketch: Sketch, indices: DataType) -> Expected:
    x = np.array([[1, 0, 2], [0, 0, 3]], np.float32)
    layer = sketch.network.add_non_zero(sketch.input(x))
    layer.indices_type = indices
    return [(layer.get_output(0), np.stack(np.nonzero(x)).astype(indices.numpy))]


NONE, TRANSPOSE, VECTOR = MatrixOperation.NONE, MatrixOperation.TRANSPOSE, MatrixOperation.VECTOR


@case("add_matrix_multiply", "plain", a=(2, 3, 4), b=(2, 4, 5), op0=NONE, op1=NONE, equation="bij,bjk->bik")
@case("add_matrix_multiply", "transposed", a=(4, 3), b=(5, 4), op0=TRANSPOSE, op1=TRANSPOSE, equation="ji,kj->ik")
@case("add_matrix_multiply", "broadcast", a=(1, 3, 4), b=(2, 4, 5), op0=NONE, op1=NONE, equation="aij,bjk->bik")
@case("add_matrix_multiply", "row vectors", a=(2, 4), b=(2, 4, 5), op0=VECTOR, op1=NONE, equation="bj,bjk->bk")
@case("add_matrix_multiply", "column vectors", a=(2, 3, 4), b=(2, 4), op0=NONE, op1=VECTOR, equation="bij,bj->bi")
@case("add_matrix_multiply", "two vectors", a=(2, 4), b=(2, 4), op0=VECTOR, op1=VECTOR, equation="bj,bj->b")
def matrix_multiply(sketch: Sketch, a: Any, b: Any, op0: Any, op1: Any, equation: str) -> Expected:
    first, second = rand(*a), rand(*b, seed=1)
    layer = sketch.network.add_matrix_multiply(sketch.input(first), TRANSPOSE, sketch.input(second), TRANSPOSE)
    layer.op0, layer.op1 = op0, op1
    return [(layer.get_output(0), np.einsum(equation, first, second).astype(np.float32))]


@case("add_einsum", "a product", shapes=((2, 3), (3, 4)), equation="ij,jk->ki")
@case("add_einsum", "three tensors", shapes=((2, 3), (3, 4), (4,)), equation="ij,jk,k->i")
@case("add_einsum", "the diagonal", shapes=((3, 3),), equation="ii->i")
def einsum(sketch: Sketch, shapes: Any, equation: str) -> Expected:
    arrays = [rand(*shape) for shape in shapes]
    layer = sketch.network.add_einsum([sketch.input(array) for array in arrays], "a->a")
    layer.equation = equation
    return [(layer.get_output(0), np.einsum(equation, *arrays).astype(np.float32))]


def normalize(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    wide = x.astype(np.float64)
    mean, variance = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    return (wide - mean) / np.sqrt(variance + epsilon)


@case("add_normalization", "layer", axes=(2, 3), size=(1, 1, 4, 5), open_dims=False)
@case("add_normalization", "instance", axes=(2, 3), size=(1, 6, 1, 1), open_dims=False)
@case("add_normalization", "any axes", axes=(1, 3), size=(1, 6, 1, 5))
@case("add_normalization_v2", "layer", axes=(3,), size=(1, 1, 1, 5), open_dims=False)
@case("add_normalization_v2", "batch", axes=(0, 2, 3), size=(1, 6, 1, 1))
def normalization(sketch: Sketch, axes: tuple[int, ...], size: Any) -> Expected:
    x, scale, bias = rand(2, 6, 4, 5), rand(*size), rand(*size, seed=1)
    version = 1 if axes == (2, 3) or axes == (1, 3) else 2
    add = sketch.network.add_normalization if version == 1 else sketch.network.add_normalization_v2
    layer = add(sketch.input(x), sketch.input(scale), sketch.input(bias), 1)
    layer.axes, layer.epsilon = sum(1 << axis for axis in axes), 0.1
    assert layer.is_v2 == (version == 2)
    return [(layer.get_output(0), (normalize(x, axes, 0.1) * scale + bias).astype(np.float32))]


@case("add_normalization", "groups with a scale each", v2=False, count=2, open_dims=False)
@case("add_normalization", "groups with a scale for each channel", v2=False, count=6, open_dims=False)
@case("add_normalization_v2", "groups", v2=True, count=6, open_dims=False)
def group_normalization(sketch: Sketch, v2: bool, count: int) -> Expected:
    x, scale, bias = rand(2, 6, 4, 5), rand(1, count, 1, 1), rand(1, count, 1, 1, seed=1)
    add = sketch.network.add_normalization_v2 if v2 else sketch.network.add_normalization
    layer = add(sketch.input(x), sketch.input(scale), sketch.input(bias), 0b1100)
    layer.num_groups, layer.epsilon = 2, 1e-3
    wanted = normalize(x.reshape(2, 2, 3, 4, 5), (2, 3, 4), 1e-3).reshape(x.shape)
    factor, shift = scale.repeat(6 // count, 1), bias.repeat(6 // count, 1)
    return [(layer.get_output(0), (wanted * factor + shift).astype(np.float32))]


@case("add_fill", "linspace", dtype=DataType.FLOAT)
@case("add_fill", "linspace of integers", dtype=DataType.INT32)
@case("add_fill", "linspace of long integers", dtype=DataType.INT64)
@case("add_fill", "linspace of halves", dtype=DataType.HALF)
def linspace(sketch: Sketch, dtype: DataType) -> Expected:
    sketch.input(rand(1))
    layer = sketch.network.add_fill((1,), FillOperation.RANDOM_NORMAL, DataType.HALF)
    layer.shape, layer.operation, layer.to_type = (5,), FillOperation.LINSPACE, dtype
    layer.alpha, layer.beta = 3, 2
    assert layer.is_alpha_beta_int64()
    return [(layer.get_output(0), (3 + 2 * np.arange(5)).astype(dtype.numpy))]


@case("add_fill", "linspace, numbers from tensors")
def linspace_inputs(sketch: Sketch) -> Expected:
    layer = sketch.network.add_fill((1,), FillOperation.LINSPACE)
    layer.set_input(0, sketch.numbers(2, 3, dtype=np.int32))
    layer.set_input(1, sketch.input(np.float32(0.5)))
    layer.set_input(2, sketch.input(np.array([10.0, 0.25], np.float32), fixed=True))
    rows, columns = np.ogrid[:2, :3]
    return [(layer.get_output(0), (0.5 + 10 * rows + 0.25 * columns).astype(np.float32))]


@case("add_fill", "uniform", op=FillOperation.RANDOM_UNIFORM)
@case("add_fill", "normal", op=FillOperation.RANDOM_NORMAL)
@case("add_fill", "uniform, shape from a tensor", op=FillOperation.RANDOM_UNIFORM, dynamic="shape")
@case("add_fill", "normal, shape from a tensor", op=FillOperation.RANDOM_NORMAL, dynamic="shape")
@case("add_fill", "uniform, numbers from tensors", op=FillOperation.RANDOM_UNIFORM, dynamic="shape alpha beta")
@case("add_fill", "normal, numbers from tensors", op=FillOperation.RANDOM_NORMAL, dynamic="alpha beta")
@case("add_fill", "uniform, one bound from a tensor", op=FillOperation.RANDOM_UNIFORM, dynamic="beta")
def random(sketch: Sketch, op: FillOperation, dynamic: str = "") -> Expected:
    """Random numbers cannot be compared, but their mean, spread and bounds can."""
    sketch.input(rand(1))
    network = sketch.network
    layer = network.add_fill((40, 50), op, DataType.FLOAT)
    layer.alpha, layer.beta = 2.0, 5.0
    for index, (name, value) in enumerate((("shape", None), ("alpha", 2.0), ("beta", 5.0))):
        if name in dynamic:
            layer.set_input(index, sketch.numbers(40, 50) if value is None else sketch.input(np.float32(value)))
    is_uniform = op == FillOperation.RANDOM_UNIFORM
    drawn = layer.get_output(0)
    mean = network.add_reduce(drawn, ReduceOperation.AVG, 3, False).get_output(0)
    low = network.add_reduce(drawn, ReduceOperation.MIN, 3, False).get_output(0)
    high = network.add_reduce(drawn, ReduceOperation.MAX, 3, False).get_output(0)
    centre, spread = (3.5, 1.5) if is_uniform else (2.0, 18.0)
    near = [(mean, centre, 0.5), (low, centre - spread, 0.2 if is_uniform else 8.0)]
    near.append((high, centre + spread, 0.2 if is_uniform else 8.0))
    return [_is_near(sketch, *numbers) for numbers in near]


def _is_near(sketch: Sketch, tensor: Any, wanted: float, within: float) -> tuple[Any, Any]:
    network = sketch.network
    centre = sketch.constant(np.float32(wanted))
    distance = network.add_elementwise(tensor, centre, ElementWiseOperation.SUB).get_output(0)
    size = network.add_unary(distance, UnaryOperation.ABS).get_output(0)
    limit = sketch.constant(np.float32(within))
    layer = network.add_elementwise(size, limit, ElementWiseOperation.LESS)
    return layer.get_output(0), np.array(True)
