"""Matrix products and convolutions of com.microsoft on integers, and its own linear quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._channels import channels_first
from dovetail.providers.cpu.kernels._channels import channels_last as move_channels_last
from dovetail.providers.cpu.kernels._checks import fail, normalize_axes, read_scalar, require
from dovetail.providers.cpu.kernels._quantization import quantize as quantize_values
from dovetail.providers.cpu.kernels._support import INT4, reference
from dovetail.providers.cpu.kernels.onnx.convolution import qlinear_conv
from dovetail.providers.cpu.kernels.onnx.quantization import dequantize, quantize, quantize_dynamically
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "dequantize_linear",
    "dynamic_quantize_matmul",
    "matmul_integer_16",
    "matmul_integer_to_float",
    "mul_integer",
    "qgemm",
    "qlinear_conv_any_layout",
    "quantize_linear",
    "reduce_sum_integer",
]

_DOMAIN: Final = "com.microsoft"
_BYTES: Final = ("int8", "uint8")
_WORDS: Final = ("int16", "uint16")
_QUANTIZED: Final = (*_BYTES, *_WORDS, *INT4)


def _per_column(op: str, name: str, values: Array, right: Array) -> Array:
    """One value for all, or one a column of the right factor, ready to broadcast over the factor and the product."""
    if values.size == 1:
        return values.reshape(())
    matrices, columns = right.shape[:-2], right.shape[-1]
    if values.ndim == 1:
        require(values.shape == (columns,), op, f"'{name}' has one value a column", expected=columns, got=values.shape)
        return values
    # A stack of matrices may have one row of values each.
    wanted = (*matrices, 1, columns)
    require(values.shape == wanted, op, f"'{name}' has one value a column", expected=wanted, got=values.shape)
    return values


def _center(op: str, name: str, x: Array, zero_point: Array | None, right: Array) -> Array:
    wide = x.astype(np.float64)
    if zero_point is None:
        return wide
    require(zero_point.dtype == x.dtype, op, f"'{name}' has another type", expected=x.dtype, got=zero_point.dtype)
    return wide - _per_column(op, name, zero_point, right).astype(np.float64)


def _multiply(op: str, left: Array, right: Array) -> Array:
    """The exact product: float64 holds every sum of byte products, and has a fast matrix product."""
    require(left.ndim > 0 and right.ndim > 0, op, "a scalar is not a matrix")
    inner = right.shape[-2] if right.ndim > 1 else right.shape[0]
    require(left.shape[-1] == inner, op, "inner sizes differ", expected=left.shape[-1], got=inner)
    return np.asarray(np.matmul(left, right))


@kernel(
    "MatMulIntegerToFloat", domain=_DOMAIN, since=1, types={"T1": _BYTES, "T2": _BYTES, "T3": ("float32", "float16")}
)
@reference
def matmul_integer_to_float(
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """The product of two quantized matrices as real values, plus an optional bias."""
    op = "MatMulIntegerToFloat"
    read_scalar(op, "a_scale", a_scale)
    if a_zero_point is not None:
        read_scalar(op, "a_zero_point", a_zero_point)
    left = _center(op, "a_zero_point", a, a_zero_point, b)
    sums = _multiply(op, left, _center(op, "b_zero_point", b, b_zero_point, b))
    factor = a_scale.reshape(()).astype(np.float32) * _per_column(op, "b_scale", b_scale, b).astype(np.float32)
    y = sums.astype(np.float32) * factor
    if bias is not None:
        require(bias.shape == b.shape[-1:], op, "'bias' has one value a column", expected=b.shape[-1:], got=bias.shape)
        y = y + bias.astype(np.float32)
    return np.asarray(y).astype(b_scale.dtype)


@kernel("DynamicQuantizeMatMul", domain=_DOMAIN, since=1, types={"T1": ("float32",), "T2": _BYTES})
@reference
def dynamic_quantize_matmul(
    a: Array, b: Array, b_scale: Array, b_zero_point: Array | None = None, bias: Array | None = None
) -> Array:
    """The product with a quantized matrix of the input quantized to just hold its range."""
    quantized, a_scale, a_zero_point = quantize_dynamically(a)
    return np.asarray(matmul_integer_to_float(quantized, b, a_scale, b_scale, a_zero_point, b_zero_point, bias))


@kernel("QGemm", domain=_DOMAIN, since=1, types={"TA": _BYTES, "TB": _BYTES, "TC": ("int32",), "TYZ": _BYTES})
@reference
def qgemm(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    c: Array | None = None,
    y_scale: Array | None = None,
    y_zero_point: Array | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema names it so
    transB: int = 0,  # noqa: N803
) -> Array:
    """Gemm of quantized matrices; the result is quantized when it has a scale, else float32."""
    op = "QGemm"
    require(a.ndim == b.ndim == 2, op, "both factors must be matrices", got=(a.shape, b.shape))
    require((y_scale is None) == (y_zero_point is None), op, "'y_scale' and 'y_zero_point' come together")
    right = b.T if transB else b
    left = _center(op, "a_zero_point", a.T if transA else a, a_zero_point.reshape(()), right)
    sums = _multiply(op, left, _center(op, "b_zero_point", right, b_zero_point, right))
    if c is not None:
        fits = c.ndim <= 2 and all(n in (1, m) for n, m in zip(c.shape[::-1], sums.shape[::-1], strict=False))
        require(fits, op, "'C' does not broadcast to the result", expected=sums.shape, got=c.shape)
        sums = sums + c
    read_scalar(op, "a_scale", a_scale)
    factor = np.float32(alpha) * a_scale.reshape(()) * _per_column(op, "b_scale", b_scale, right)
    y = np.asarray(sums.astype(np.float32) * factor.astype(np.float32))
    if y_scale is None or y_zero_point is None:
        return y
    read_scalar(op, "y_scale", y_scale)
    return quantize_values(y, y_scale.reshape(()), y_zero_point.reshape(()))


@kernel("QLinearConv", domain=_DOMAIN, since=1, types={"T1": _BYTES, "T2": _BYTES, "T3": _BYTES, "T4": ("int32",)})
@reference
def qlinear_conv_any_layout(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """QLinearConv of images with their channels second or last; the filters are as in Conv."""
    y = qlinear_conv(
        channels_first("QLinearConv", x) if channels_last else x,
        x_scale,
        x_zero_point,
        w,
        w_scale,
        w_zero_point,
        y_scale,
        y_zero_point,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return move_channels_last(np.asarray(y)) if channels_last else np.asarray(y)


@kernel("MatMulInteger16", domain=_DOMAIN, since=1, types={"T1": _WORDS, "T2": _WORDS})
@reference
def matmul_integer_16(a: Array, b: Array) -> Array:
    """The product of matrices of 16-bit integers, in 32 bits that wrap around."""
    signed = a.dtype.kind == "i" or b.dtype.kind == "i"
    sums = _multiply("MatMulInteger16", a.astype(np.int64), b.astype(np.int64))
    return sums.astype(np.int32 if signed else np.uint32)


@kernel("MulInteger", domain=_DOMAIN, since=1, types={"T": _BYTES})
@reference
def mul_integer(a: Array, a_zero_point: Array | None, b: Array, b_zero_point: Array | None = None) -> Array:
    """The exact product of two tensors of bytes, element by element."""
    op = "MulInteger"
    factors = []
    for name, x, zero_point in (("A_zero_point", a, a_zero_point), ("B_zero_point", b, b_zero_point)):
        zero = 0 if zero_point is None else int(read_scalar(op, name, zero_point))
        factors.append(x.astype(np.int32) - np.int32(zero))
    try:
        return np.asarray(factors[0] * factors[1])
    except ValueError:
        fail(op, "the inputs do not broadcast", got=(a.shape, b.shape))


@kernel("ReduceSumInteger", domain=_DOMAIN, since=1, types={"T1": _BYTES})
@reference
def reduce_sum_integer(data: Array, *, axes: Sequence[int], keepdims: int) -> Array:
    """The exact sum of bytes over axes, in 32 bits of the same sign."""
    chosen = normalize_axes("ReduceSumInteger", axes or None, data.ndim)
    wide = np.int32 if data.dtype.kind == "i" else np.uint32
    return np.asarray(np.sum(data, axis=chosen, keepdims=bool(keepdims), dtype=wide))


@kernel("QuantizeLinear", domain=_DOMAIN, since=1, types={"T1": ("float32", "float16"), "T2": _QUANTIZED})
@reference
def quantize_linear(x: Array, y_scale: Array, y_zero_point: Array | None = None, *, axis: int = 1) -> Array:
    """Quantization with one scale, or one for each index of an axis."""
    return quantize(x, y_scale, y_zero_point, axis=axis)


@kernel("DequantizeLinear", domain=_DOMAIN, since=1, types={"T1": (*_QUANTIZED, "int32"), "T2": ("float32", "float16")})
@reference
def dequantize_linear(x: Array, x_scale: Array, x_zero_point: Array | None = None, *, axis: int = 1) -> Array:
    """Dequantization with one scale, or one for each index of an axis."""
    return dequantize(x, x_scale, x_zero_point, axis=axis)
