"""Layers that work element by element, activations, softmax, scales, casts and constants."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from dovetail.network.api.enums import ActivationType, ElementWiseOperation, ScaleMode, UnaryOperation
from dovetail.types import DataType, Weights
from tests.support.layer_cases import Expected, Sketch, case, rand

_erf = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS: dict[ActivationType, Any] = {
    ActivationType.RELU: lambda x, a, b: np.maximum(x, 0),
    ActivationType.SIGMOID: lambda x, a, b: 1 / (1 + np.exp(-x)),
    ActivationType.TANH: lambda x, a, b: np.tanh(x),
    ActivationType.LEAKY_RELU: lambda x, a, b: np.where(x >= 0, x, a * x),
    ActivationType.ELU: lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)),
    ActivationType.SELU: lambda x, a, b: b * np.where(x > 0, x, a * np.expm1(x)),
    ActivationType.SOFTSIGN: lambda x, a, b: x / (1 + np.abs(x)),
    ActivationType.SOFTPLUS: lambda x, a, b: a * np.log1p(np.exp(b * x)),
    ActivationType.CLIP: lambda x, a, b: np.clip(x, a, b),
    ActivationType.HARD_SIGMOID: lambda x, a, b: np.clip(a * x + b, 0, 1),
    ActivationType.SCALED_TANH: lambda x, a, b: a * np.tanh(b * x),
    ActivationType.THRESHOLDED_RELU: lambda x, a, b: np.where(x > a, x, 0),
    ActivationType.GELU_ERF: lambda x, a, b: 0.5 * x * (1 + _erf(x * math.sqrt(0.5))),
    ActivationType.GELU_TANH: lambda x, a, b: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}
DEFAULTS = {
    ActivationType.LEAKY_RELU: (0.01, 0.0),
    ActivationType.ELU: (1.0, 0.0),
    ActivationType.SELU: (1.6732632, 1.0507010),
    ActivationType.SOFTPLUS: (1.0, 1.0),
    ActivationType.CLIP: (-3e38, 3e38),
    ActivationType.HARD_SIGMOID: (0.2, 0.5),
    ActivationType.SCALED_TANH: (1.0, 1.0),
    ActivationType.THRESHOLDED_RELU: (1.0, 0.0),
}


def activation(sketch: Sketch, kind: ActivationType, alpha: float | None, beta: float | None) -> Expected:
    x = rand(3, 17, low=-4, high=4)
    layer = sketch.network.add_activation(sketch.input(x), ActivationType.RELU if alpha is not None else kind)
    layer.type = kind
    if alpha is not None and beta is not None:
        layer.alpha, layer.beta = alpha, beta
    else:
        alpha, beta = DEFAULTS.get(kind, (0.0, 0.0))
    return [(layer.get_output(0), ACTIVATIONS[kind](x.astype(np.float64), alpha, beta).astype(np.float32))]


for _kind in ActivationType:
    case("add_activation", f"{_kind.name} as it is", kind=_kind, alpha=None, beta=None)(activation)
    case("add_activation", f"{_kind.name} with numbers", kind=_kind, alpha=0.3, beta=1.7)(activation)


@case("add_activation", "CLIP of integers")
def clip_integers(sketch: Sketch) -> Expected:
    x = np.arange(-6, 6, dtype=np.int32)
    layer = sketch.network.add_activation(sketch.input(x), ActivationType.CLIP)
    layer.alpha, layer.beta = -2, 3
    return [(layer.get_output(0), np.clip(x, -2, 3))]


@case("add_activation", "CLIP of halves as it is")
def clip_halves(sketch: Sketch) -> Expected:
    x = rand(5).astype(np.float16)
    return [(sketch.network.add_activation(sketch.input(x), ActivationType.CLIP).get_output(0), x)]


@case("add_parametric_relu")
def parametric_relu(sketch: Sketch) -> Expected:
    x, slopes = rand(2, 3, 4), rand(1, 3, 1)
    layer = sketch.network.add_parametric_relu(sketch.input(x), sketch.input(slopes))
    return [(layer.get_output(0), np.where(x < 0, x * slopes, x))]


BINARY: dict[ElementWiseOperation, Any] = {
    ElementWiseOperation.SUM: np.add,
    ElementWiseOperation.PROD: np.multiply,
    ElementWiseOperation.MAX: np.maximum,
    ElementWiseOperation.MIN: np.minimum,
    ElementWiseOperation.SUB: np.subtract,
    ElementWiseOperation.DIV: np.divide,
    ElementWiseOperation.POW: np.power,
    ElementWiseOperation.FLOOR_DIV: np.floor_divide,
    ElementWiseOperation.AND: np.logical_and,
    ElementWiseOperation.OR: np.logical_or,
    ElementWiseOperation.XOR: np.logical_xor,
    ElementWiseOperation.EQUAL: np.equal,
    ElementWiseOperation.GREATER: np.greater,
    ElementWiseOperation.LESS: np.less,
}
LOGICAL = (ElementWiseOperation.AND, ElementWiseOperation.OR, ElementWiseOperation.XOR)


def elementwise(sketch: Sketch, op: ElementWiseOperation) -> Expected:
    a, b = rand(2, 3, 4), rand(1, 3, 1, seed=5)
    if op in LOGICAL:
        a, b = a > 0, b > 0
    elif op == ElementWiseOperation.POW:
        a = np.abs(a)
    else:
        a[0, :, 0] = b[0, :, 0]  # so that EQUAL finds something
    layer = sketch.network.add_elementwise(sketch.input(a), sketch.input(b), ElementWiseOperation.SUM)
    layer.op = op
    return [(layer.get_output(0), BINARY[op](a, b))]


for _op in ElementWiseOperation:
    case("add_elementwise", _op.name, op=_op)(elementwise)


@case("add_elementwise", "FLOOR_DIV of integers", dtype=np.int32)
@case("add_elementwise", "FLOOR_DIV of long integers", dtype=np.int64)
def floor_divide(sketch: Sketch, dtype: Any) -> Expected:
    a, b = np.arange(-9, 9, dtype=dtype).reshape(3, 6), np.array([[-4], [3], [-3]], dtype)
    layer = sketch.network.add_elementwise(sketch.input(a), sketch.input(b), ElementWiseOperation.FLOOR_DIV)
    return [(layer.get_output(0), a // b)]


@case("add_elementwise", "DIV of integers goes towards zero")
def divide_integers(sketch: Sketch) -> Expected:
    a, b = np.arange(-9, 9, dtype=np.int32), np.full(18, 4, np.int32)
    layer = sketch.network.add_elementwise(sketch.input(a), sketch.input(b), ElementWiseOperation.DIV)
    return [(layer.get_output(0), np.trunc(a / b).astype(np.int32))]


@case("add_elementwise", "other inputs later")
def elementwise_inputs(sketch: Sketch) -> Expected:
    a, b, c = rand(2, 2), rand(2, 2, seed=1), rand(2, 2, seed=2)
    layer = sketch.network.add_elementwise(sketch.input(a), sketch.input(b), ElementWiseOperation.SUB)
    layer.set_input(0, sketch.input(c))
    return [(layer.get_output(0), c - b)]


UNARY: dict[UnaryOperation, Any] = {
    UnaryOperation.EXP: np.exp,
    UnaryOperation.LOG: np.log,
    UnaryOperation.SQRT: np.sqrt,
    UnaryOperation.RECIP: lambda x: 1 / x,
    UnaryOperation.ABS: np.abs,
    UnaryOperation.NEG: np.negative,
    UnaryOperation.SIN: np.sin,
    UnaryOperation.COS: np.cos,
    UnaryOperation.TAN: np.tan,
    UnaryOperation.SINH: np.sinh,
    UnaryOperation.COSH: np.cosh,
    UnaryOperation.ASIN: np.arcsin,
    UnaryOperation.ACOS: np.arccos,
    UnaryOperation.ATAN: np.arctan,
    UnaryOperation.ASINH: np.arcsinh,
    UnaryOperation.ACOSH: np.arccosh,
    UnaryOperation.ATANH: np.arctanh,
    UnaryOperation.CEIL: np.ceil,
    UnaryOperation.FLOOR: np.floor,
    UnaryOperation.ERF: _erf,
    UnaryOperation.SIGN: np.sign,
    UnaryOperation.ROUND: np.round,
    UnaryOperation.ISINF: np.isinf,
    UnaryOperation.ISNAN: np.isnan,
}
PREPARE: dict[UnaryOperation, Any] = {  # arguments that lie where the function is defined, or says something
    UnaryOperation.LOG: np.abs,
    UnaryOperation.SQRT: np.abs,
    UnaryOperation.ASIN: lambda x: x / 2,
    UnaryOperation.ACOS: lambda x: x / 2,
    UnaryOperation.ACOSH: lambda x: np.abs(x) + 1,
    UnaryOperation.ATANH: lambda x: x / 3,
    UnaryOperation.ROUND: lambda x: np.array([-2.5, -1.5, -0.4, 0.5, 1.5, 2.5, 0.6, 3.2], np.float32),
    UnaryOperation.ISINF: lambda x: np.array([1, np.inf, -np.inf, np.nan], np.float32),
    UnaryOperation.ISNAN: lambda x: np.array([1, np.inf, -np.inf, np.nan], np.float32),
}


def unary(sketch: Sketch, op: UnaryOperation) -> Expected:
    x = np.asarray(PREPARE.get(op, lambda value: value)(rand(4, 5)))
    wanted = UNARY[op](x.astype(np.float64))
    layer = sketch.network.add_unary(sketch.input(x), UnaryOperation.ABS)
    layer.op = op
    is_flag = op in (UnaryOperation.ISINF, UnaryOperation.ISNAN)
    return [(layer.get_output(0), wanted if is_flag else wanted.astype(np.float32))]


for _unary in UNARY:
    case("add_unary", _unary.name, op=_unary)(unary)


@case("add_unary", "NOT")
def logical_not(sketch: Sketch) -> Expected:
    x = rand(7) > 0
    return [(sketch.network.add_unary(sketch.input(x), UnaryOperation.NOT).get_output(0), ~x)]


@case("add_unary", "ABS", op=UnaryOperation.ABS, function=np.abs)
@case("add_unary", "NEG", op=UnaryOperation.NEG, function=np.negative)
@case("add_unary", "SIGN", op=UnaryOperation.SIGN, function=np.sign)
def unary_integers(sketch: Sketch, op: UnaryOperation, function: Any) -> Expected:
    x = np.arange(-4, 4, dtype=np.int32)
    return [(sketch.network.add_unary(sketch.input(x), op).get_output(0), function(x))]


@case("add_select")
def select(sketch: Sketch) -> Expected:
    condition, then, other = rand(2, 1, 4) > 0, rand(2, 3, 4), rand(1, 3, 1, seed=3)
    layer = sketch.network.add_select(sketch.input(condition), sketch.input(then), sketch.input(other))
    return [(layer.get_output(0), np.where(condition, then, other))]


@case("add_scale", "uniform", mode=ScaleMode.UNIFORM, shape=())
@case("add_scale", "channel", mode=ScaleMode.CHANNEL, shape=(3, 1, 1), open_dims=False)
@case("add_scale", "elementwise", mode=ScaleMode.ELEMENTWISE, shape=(3, 4, 5), open_dims=False)
@case("add_scale_nd", "channel of another axis", mode=ScaleMode.CHANNEL, shape=(4, 1), axis=2, open_dims=False)
@case("add_scale_nd", "elementwise from the first axis", mode=ScaleMode.ELEMENTWISE, shape=(2, 3, 4, 5), axis=0,
      open_dims=False)  # fmt: skip
def scale(sketch: Sketch, mode: ScaleMode, shape: Any, axis: int | None = None) -> Expected:
    x = rand(2, 3, 4, 5, low=0.5, high=2)
    factor, shift = rand(*shape, low=0.5, high=2), rand(*shape, seed=1, low=0, high=1)
    power = rand(*shape, seed=2, low=1, high=3)
    tensor = sketch.input(x)
    if axis is None:
        layer = sketch.network.add_scale(tensor, ScaleMode.UNIFORM, np.ones(1, np.float32))
    else:
        layer = sketch.network.add_scale_nd(tensor, ScaleMode.UNIFORM, channel_axis=0)
        layer.channel_axis = axis
    layer.mode, layer.shift, layer.scale, layer.power = mode, shift, Weights(factor), power.reshape(-1)
    return [(layer.get_output(0), (x * factor + shift) ** power)]


@case("add_scale", "nothing to do")
def scale_nothing(sketch: Sketch) -> Expected:
    x = rand(2, 3)
    return [(sketch.network.add_scale(sketch.input(x), ScaleMode.UNIFORM).get_output(0), x)]


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@case("add_softmax", "default axis of four", shape=(2, 3, 4, 5), wanted=1)
@case("add_softmax", "default axis of two", shape=(4, 5), wanted=0)
@case("add_softmax", "last axis", shape=(2, 3, 4), axes=1 << 2, wanted=2)
def softmax(sketch: Sketch, shape: Any, wanted: int, axes: int | None = None) -> Expected:
    x = rand(*shape)
    layer = sketch.network.add_softmax(sketch.input(x))
    if axes is not None:
        layer.axes = axes
    assert layer.axes == 1 << wanted
    return [(layer.get_output(0), _softmax(x, wanted))]


@case("add_ragged_softmax")
def ragged_softmax(sketch: Sketch) -> Expected:
    x, bounds = rand(2, 3, 5), np.array([[[5], [2], [0]], [[1], [4], [3]]], np.int32)
    wanted = np.zeros_like(x)
    for index in np.ndindex(2, 3):
        count = bounds[index][0]
        if count:
            wanted[index][:count] = _softmax(x[index][:count], 0)
    layer = sketch.network.add_ragged_softmax(sketch.input(x), sketch.input(bounds))
    return [(layer.get_output(0), wanted)]


@case("add_constant", "floats", array=rand(2, 3))
@case("add_constant", "integers", array=np.arange(6, dtype=np.int64).reshape(3, 2))
@case("add_constant", "flags", array=np.array([True, False]))
@case("add_constant", "nothing", array=np.empty((0, 3), np.float32))
@case("add_constant", "a scalar", array=np.float32(2.5))
@case("add_constant", "bfloat16", array=rand(4).astype(ml_dtypes.bfloat16))
def constant(sketch: Sketch, array: Any) -> Expected:
    array = np.asarray(array)
    sketch.input(rand(1))  # a network needs something to be fed
    layer = sketch.network.add_constant((1,), np.zeros(1, np.float32))
    layer.shape, layer.weights = array.shape, Weights(array.reshape(-1))
    if not array.size:
        layer = sketch.network.add_constant(array.shape, array)
    return [(layer.get_output(0), array)]


@case("add_identity")
def identity(sketch: Sketch) -> Expected:
    x = rand(3, 2)
    return [(sketch.network.add_identity(sketch.input(x)).get_output(0), x)]


@case("add_cast", "to integers", to=DataType.INT32, dtype=np.int32)
@case("add_cast", "to halves", to=DataType.HALF, dtype=np.float16)
@case("add_cast", "to flags", to=DataType.BOOL, dtype=np.bool_)
@case("add_cast", "to bfloat16", to=DataType.BF16, dtype=ml_dtypes.bfloat16)
def cast(sketch: Sketch, to: DataType, dtype: Any) -> Expected:
    x = rand(3, 4)
    layer = sketch.network.add_cast(sketch.input(x), DataType.FLOAT)
    layer.to_type = to
    return [(layer.get_output(0), x.astype(dtype))]


@case("add_shape")
def shape(sketch: Sketch) -> Expected:
    x = rand(3, 4, 5)
    return [(sketch.network.add_shape(sketch.input(x)).get_output(0), np.array([3, 4, 5], np.int64))]
