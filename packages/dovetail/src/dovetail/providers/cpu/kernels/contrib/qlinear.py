"""Element-wise and reducing ops of com.microsoft on bytes: dequantize, compute in float32, quantize again.

A scale and a zero point are one value a tensor; an absent zero point is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._channels import channels_first
from dovetail.providers.cpu.kernels._channels import channels_last as move_channels_last
from dovetail.providers.cpu.kernels._checks import fail, normalize_axes, normalize_axis, read_scalar, require
from dovetail.providers.cpu.kernels._quantization import quantize
from dovetail.providers.cpu.kernels._support import reference
from dovetail.providers.cpu.kernels.onnx.activation import leaky_relu, sigmoid, softmax
from dovetail.providers.cpu.kernels.onnx.pooling import average_pool
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "dequantize_bytes",
    "qlinear_add",
    "qlinear_average_pool",
    "qlinear_concat",
    "qlinear_global_average_pool",
    "qlinear_leaky_relu",
    "qlinear_mul",
    "qlinear_reduce_mean",
    "qlinear_sigmoid",
    "qlinear_softmax",
    "qlinear_where",
    "quantize_bytes",
]

_DOMAIN: Final = "com.microsoft"
_BYTES: Final = ("int8", "uint8")
_TYPES: Final = {"T": _BYTES}


def dequantize_bytes(op: str, x: Array, scale: Array, zero_point: Array | None) -> Array:
    """The real values of bytes, in float32."""
    factor = np.float32(read_scalar(op, "scale", scale))
    return np.asarray(_center(op, x, zero_point).astype(np.float32) * factor)


def _center(op: str, x: Array, zero_point: Array | None) -> Array:
    if zero_point is None:
        return x.astype(np.int32)
    require(zero_point.dtype == x.dtype, op, "a zero point has another type", expected=x.dtype, got=zero_point.dtype)
    return x.astype(np.int32) - np.int32(read_scalar(op, "zero_point", zero_point))


def quantize_bytes(op: str, values: Array, scale: Array, zero_point: Array | None, dtype: np.dtype[Any]) -> Array:
    """Real values as bytes, halves to even and saturated."""
    read_scalar(op, "scale", scale)
    if zero_point is None:
        zero_point = np.zeros((), dtype=dtype)
    read_scalar(op, "zero_point", zero_point)
    return quantize(values, scale.reshape(()), zero_point.reshape(()))


def _broadcast(op: str, *shapes: tuple[int, ...]) -> None:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        fail(op, "the inputs do not broadcast", got=shapes)


@kernel("QLinearAdd", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def qlinear_add(
    a: Array,
    a_scale: Array,
    a_zero_point: Array | None,
    b: Array,
    b_scale: Array,
    b_zero_point: Array | None,
    c_scale: Array,
    c_zero_point: Array | None = None,
) -> Array:
    """The sum of two quantized tensors."""
    op = "QLinearAdd"
    _broadcast(op, a.shape, b.shape)
    total = dequantize_bytes(op, a, a_scale, a_zero_point) + dequantize_bytes(op, b, b_scale, b_zero_point)
    return quantize_bytes(op, total, c_scale, c_zero_point, a.dtype)


@kernel("QLinearMul", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def qlinear_mul(
    a: Array,
    a_scale: Array,
    a_zero_point: Array | None,
    b: Array,
    b_scale: Array,
    b_zero_point: Array | None,
    c_scale: Array,
    c_zero_point: Array | None = None,
) -> Array:
    """The product of two quantized tensors."""
    op = "QLinearMul"
    _broadcast(op, a.shape, b.shape)
    product = dequantize_bytes(op, a, a_scale, a_zero_point) * dequantize_bytes(op, b, b_scale, b_zero_point)
    return quantize_bytes(op, product, c_scale, c_zero_point, a.dtype)


@kernel("QLinearSigmoid", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def qlinear_sigmoid(
    x: Array, x_scale: Array, x_zero_point: Array | None, y_scale: Array, y_zero_point: Array | None = None
) -> Array:
    """The logistic function of a quantized tensor."""
    return _map_bytes("QLinearSigmoid", sigmoid, x, x_scale, x_zero_point, y_scale, y_zero_point)


@kernel("QLinearLeakyRelu", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def qlinear_leaky_relu(
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    alpha: float = 0.01,
) -> Array:
    """The identity of a quantized tensor, with negative elements times ``alpha``."""

    def bend(values: Array) -> Array:
        return np.asarray(leaky_relu(values, alpha=np.float32(alpha)))

    return _map_bytes("QLinearLeakyRelu", bend, x, x_scale, x_zero_point, y_scale, y_zero_point)


def _map_bytes(
    op: str,
    function: Callable[[Array], Array],
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array | None,
) -> Array:
    values = function(dequantize_bytes(op, x, x_scale, x_zero_point))
    return quantize_bytes(op, values, y_scale, y_zero_point, x.dtype)


@kernel("QLinearSoftmax", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def qlinear_softmax(
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array,
    *,
    axis: int = -1,
    opset: int,
) -> Array:
    """Softmax of a quantized tensor: over one axis, or before ``opset`` 13 over all axes from it on, taken as one."""
    op = "QLinearSoftmax"
    # The zero point is the same for all elements, and softmax does not see what all have in common.
    values = dequantize_bytes(op, x, x_scale, x_zero_point)
    if opset >= 13:
        y = softmax(values, normalize_axis(op, axis, x.ndim))
    else:
        first = axis if axis == x.ndim else normalize_axis(op, axis, x.ndim)
        flat = values.reshape(math.prod(x.shape[:first]), math.prod(x.shape[first:]))
        y = softmax(flat, 1).reshape(x.shape)
    return quantize_bytes(op, y, y_scale, y_zero_point, x.dtype)


@kernel("QLinearWhere", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def qlinear_where(
    condition: Array,
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    y: Array,
    y_scale: Array,
    y_zero_point: Array,
    z_scale: Array,
    z_zero_point: Array,
) -> Array:
    """Elements of one quantized tensor where the condition holds, of the other elsewhere."""
    op = "QLinearWhere"
    _broadcast(op, condition.shape, x.shape, y.shape)
    left = _requantize(op, x, x_scale, x_zero_point, z_scale, z_zero_point)
    right = _requantize(op, y, y_scale, y_zero_point, z_scale, z_zero_point)
    return np.where(condition, left, right)


def _requantize(op: str, x: Array, x_scale: Array, x_zero: Array, y_scale: Array, y_zero: Array) -> Array:
    """Bytes in the scale of the result; those that are in it already stay as they are."""
    same = read_scalar(op, "scale", x_scale) == read_scalar(op, "scale", y_scale)
    if same and x.dtype == y_zero.dtype and np.array_equal(x_zero.reshape(()), y_zero.reshape(())):
        return x
    return quantize_bytes(op, dequantize_bytes(op, x, x_scale, x_zero), y_scale, y_zero, y_zero.dtype)


@kernel("QLinearConcat", domain=_DOMAIN, since=1, types={"T8": _BYTES})
@reference
def qlinear_concat(y_scale: Array, y_zero_point: Array, *inputs: Array, axis: int) -> Array:
    """Quantized tensors joined in one scale; each comes with its own scale and zero point."""
    op = "QLinearConcat"
    require(len(inputs) % 3 == 0 and len(inputs) > 0, op, "inputs are a tensor, a scale and a zero point each")
    parts = []
    for x, scale, zero_point in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True):
        require(
            x.dtype == y_zero_point.dtype, op, "an input has another type", expected=y_zero_point.dtype, got=x.dtype
        )
        parts.append(_requantize(op, x, scale, zero_point, y_scale, y_zero_point))
    along = normalize_axis(op, axis, parts[0].ndim)
    rest = [(*part.shape[:along], *part.shape[along + 1 :]) for part in parts]
    fits = all(part.ndim == parts[0].ndim for part in parts) and len(set(rest)) == 1
    require(fits, op, "the inputs differ outside the axis", got=[part.shape for part in parts])
    return np.concatenate(parts, axis=along)


@kernel("QLinearReduceMean", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def qlinear_reduce_mean(
    data: Array,
    data_scale: Array,
    data_zero_point: Array | None,
    reduced_scale: Array,
    reduced_zero_point: Array | None = None,
    *,
    axes: Sequence[int],
    keepdims: int,
) -> Array:
    """The mean of a quantized tensor over axes."""
    op = "QLinearReduceMean"
    chosen = normalize_axes(op, axes or None, data.ndim)
    values = dequantize_bytes(op, data, data_scale, data_zero_point)
    mean = np.asarray(np.mean(values, axis=chosen, keepdims=bool(keepdims)))
    return quantize_bytes(op, mean, reduced_scale, reduced_zero_point, data.dtype)


@kernel("QLinearGlobalAveragePool", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def qlinear_global_average_pool(
    x: Array, x_scale: Array, x_zero_point: Array, y_scale: Array, y_zero_point: Array, *, channels_last: int = 0
) -> Array:
    """The mean of each channel of quantized images."""
    op = "QLinearGlobalAveragePool"
    require(x.ndim >= 3, op, "an image has spatial axes", got=x.shape)
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    count = math.prod(x.shape[axis] for axis in axes)
    require(count > 0, op, "a spatial axis is empty", got=x.shape)
    sums = np.sum(_center(op, x, x_zero_point), axis=axes, keepdims=True, dtype=np.int64)
    mean = sums.astype(np.float32) * np.float32(read_scalar(op, "x_scale", x_scale)) / np.float32(count)
    return quantize_bytes(op, np.asarray(mean), y_scale, y_zero_point, x.dtype)


@kernel("QLinearAveragePool", domain=_DOMAIN, since=1, types=_TYPES)
@reference
def qlinear_average_pool(
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """The mean of each window of quantized images."""
    op = "QLinearAveragePool"
    values = dequantize_bytes(op, x, x_scale, x_zero_point)
    means = average_pool(
        channels_first(op, values) if channels_last else values,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    y = quantize_bytes(op, np.asarray(means), y_scale, y_zero_point, x.dtype)
    return move_channels_last(y) if channels_last else y
