"""Linear quantization to and from 2-, 4-, 8- and 16-bit integers and 4-, 6- and 8-bit floats.

A scale is one value, one value for each index of an axis, or one value for each block of an axis. Each opset added
attributes, so each has a function of its own in front of the same computation.
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from dovetail.errors import ModelError
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import normalize_axis, require
from dovetail.providers.cpu.kernels._conversion import convert, dtype_of, integer_limits, is_integer
from dovetail.providers.cpu.kernels._support import FLOAT4, FLOAT6, FLOAT8, INT2, INT4, SINGLE_FLOATS, reference, widen
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "dequantize",
    "dequantize_axis",
    "dequantize_blocks",
    "dequantize_linear",
    "dequantize_tensor",
    "quantize",
    "quantize_axis",
    "quantize_blocks",
    "quantize_dynamically",
    "quantize_float8",
    "quantize_linear",
    "quantize_tensor",
]

_BYTES: Final = ("int8", "uint8")
_QUANTIZED_19: Final = (*_BYTES, *FLOAT8)
_QUANTIZED_21: Final = (*_QUANTIZED_19, "int16", "uint16", *INT4)
_QUANTIZED: Final = (*_QUANTIZED_21, *INT2, *FLOAT6, *FLOAT4)
_REAL: Final = ("float32", "float16", "bfloat16", "int32")
_SCALES: Final = (*_REAL, "float8_e8m0fnu")
_E8M0: Final = np.dtype(ml_dtypes.float8_e8m0fnu)


def _spread(op: str, values: Array, shape: tuple[int, ...], axis: int, block_size: int) -> Array:
    """Scales or zero points shaped so that they broadcast against the tensor."""
    if values.size == 1 and (values.ndim < 2 or block_size == 0):
        return values.reshape(())
    along = normalize_axis(op, axis, len(shape))
    if block_size == 0:
        expected = (shape[along],)
        require(values.shape == expected, op, "one scale an index is needed", expected=expected, got=values.shape)
        return values.reshape([-1 if index == along else 1 for index in range(len(shape))])
    repeated = np.repeat(values, block_size, axis=along)
    trimmed = repeated[(slice(None),) * along + (slice(shape[along]),)]
    require(trimmed.shape == shape, op, "the blocks do not cover the tensor", expected=shape, got=trimmed.shape)
    return trimmed


def quantize(
    x: Array,
    scale: Array,
    zero_point: Array | None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: bool = True,
) -> Array:
    """Divide by the scale, round halves to even, add the zero point and saturate."""
    target = _quantized_dtype(zero_point, output_dtype)
    ratio = _divide(x, _spread("QuantizeLinear", scale, x.shape, axis, block_size), precision)
    if is_integer(target):
        ratio = np.rint(ratio)
    if zero_point is not None:
        ratio = ratio + _spread("QuantizeLinear", zero_point, x.shape, axis, block_size).astype(np.float64)
    if not is_integer(target):
        return convert(ratio, target, saturate=saturate)
    # Not a number has no integer; zero is as good as any, and the same on every machine.
    bounded = np.clip(np.nan_to_num(ratio, nan=0.0), *integer_limits(target))
    return np.asarray(bounded).astype(np.int32).astype(target)


def _quantized_dtype(zero_point: Array | None, output_dtype: int) -> np.dtype[Any]:
    target = dtype_of(output_dtype) if output_dtype else np.dtype(np.uint8)
    if zero_point is None:
        return target
    if output_dtype and target != zero_point.dtype:
        raise ModelError(
            "QuantizeLinear names two output types", expected=f"{target.name} zero point", got=zero_point.dtype.name
        )
    return zero_point.dtype


def _divide(x: Array, scale: Array, precision: int) -> Array:
    """The quotient rounded to the precision that the schema names, as float64.

    The type of the scale is the precision unless an attribute says otherwise. A scale that is a power of two has no
    precision of its own, and integers have no quotient: those are divided in float32.
    """
    named = dtype_of(precision) if precision else scale.dtype
    rounded = np.dtype(np.float32) if named == _E8M0 or named.kind in "iu" else named
    quotient = widen(x.astype(rounded)) / widen(scale.astype(rounded))
    return np.asarray(quotient).astype(rounded).astype(np.float64)


def dequantize(
    x: Array, scale: Array, zero_point: Array | None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Array:
    """Subtract the zero point and multiply by the scale, rounding once."""
    wide = np.int64 if is_integer(x.dtype) else np.float32
    steps = x.astype(wide)
    if zero_point is not None:
        steps = steps - _spread("DequantizeLinear", zero_point, x.shape, axis, block_size).astype(wide)
    spread = _spread("DequantizeLinear", scale, x.shape, axis, block_size).astype(np.float32)
    return np.asarray(steps.astype(np.float32) * spread).astype(_real_dtype(scale, output_dtype))


def _real_dtype(scale: Array, output_dtype: int) -> np.dtype[Any]:
    if output_dtype:
        return dtype_of(output_dtype)
    if scale.dtype == _E8M0:
        raise ModelError("DequantizeLinear with a float8e8m0 scale needs 'output_dtype'", fix="set output_dtype")
    return scale.dtype


@kernel("QuantizeLinear", since=10, until=12, types={"T1": ("float32", "int32"), "T2": _BYTES})
@reference
def quantize_tensor(x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    """Quantization with one scale for the whole tensor."""
    return quantize(x, scale, zero_point)


@kernel("QuantizeLinear", since=13, until=18, types={"T1": ("float32", "int32"), "T2": _BYTES})
@reference
def quantize_axis(x: Array, scale: Array, zero_point: Array | None = None, *, axis: int = 1) -> Array:
    """Quantization with one scale for each index of an axis."""
    return quantize(x, scale, zero_point, axis=axis)


@kernel("QuantizeLinear", since=19, until=20, types={"T1": _REAL, "T2": _QUANTIZED_19})
@reference
def quantize_float8(
    x: Array, scale: Array, zero_point: Array | None = None, *, axis: int = 1, saturate: int = 1
) -> Array:
    """Quantization that also knows 8-bit floats."""
    return quantize(x, scale, zero_point, axis=axis, saturate=bool(saturate))


@kernel("QuantizeLinear", since=21, until=22, types={"T1": _REAL, "T2": _QUANTIZED_21})
@reference
def quantize_blocks(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
) -> Array:
    """Quantization with one scale for each block of an axis."""
    return quantize(
        x, scale, zero_point, axis=axis, block_size=block_size, output_dtype=output_dtype, saturate=bool(saturate)
    )


@kernel("QuantizeLinear", since=23, types={"T1": _REAL, "T2": _SCALES, "T3": _QUANTIZED})
@reference
def quantize_linear(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Array:
    """Quantization with a choice of the precision of the division."""
    return quantize(
        x,
        scale,
        zero_point,
        axis=axis,
        block_size=block_size,
        output_dtype=output_dtype,
        precision=precision,
        saturate=bool(saturate),
    )


@kernel("DequantizeLinear", since=10, until=12, types={"T": (*_BYTES, "int32")})
@reference
def dequantize_tensor(x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    """Dequantization with one scale for the whole tensor."""
    return dequantize(x, scale, zero_point)


@kernel("DequantizeLinear", since=13, until=18, types={"T": (*_BYTES, "int32")})
@kernel("DequantizeLinear", since=19, until=20, types={"T1": (*_QUANTIZED_19, "int32"), "T2": SINGLE_FLOATS})
@reference
def dequantize_axis(x: Array, scale: Array, zero_point: Array | None = None, *, axis: int = 1) -> Array:
    """Dequantization with one scale for each index of an axis."""
    return dequantize(x, scale, zero_point, axis=axis)


@kernel("DequantizeLinear", since=21, until=22, types={"T1": (*_QUANTIZED_21, "int32"), "T2": SINGLE_FLOATS})
@reference
def dequantize_blocks(
    x: Array, scale: Array, zero_point: Array | None = None, *, axis: int = 1, block_size: int = 0
) -> Array:
    """Dequantization with one scale for each block of an axis."""
    return dequantize(x, scale, zero_point, axis=axis, block_size=block_size)


@kernel(
    "DequantizeLinear",
    since=23,
    types={"T1": (*_QUANTIZED, "int32"), "T2": (*SINGLE_FLOATS, "float8_e8m0fnu"), "T3": SINGLE_FLOATS},
)
@reference
def dequantize_linear(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Array:
    """Dequantization with a choice of the output type."""
    return dequantize(x, scale, zero_point, axis=axis, block_size=block_size, output_dtype=output_dtype)


@kernel("DynamicQuantizeLinear", since=11, types={"T1": ("float32",), "T2": ("uint8",)})
@reference
def quantize_dynamically(x: Array) -> tuple[Array, Array, Array]:
    """Quantization to uint8 with the scale and zero point that just hold the tensor's range and zero."""
    low = np.min(x, initial=np.float32(0))
    span = np.max(x, initial=np.float32(0)) - low
    # A tensor of zeros spans nothing; any scale represents it.
    scale = np.asarray(span / np.float32(255) if span > 0 else np.float32(1), dtype=np.float32)
    zero_point = np.asarray(np.clip(np.rint(-low / scale), 0, 255)).astype(np.uint8)
    return quantize(x, scale, zero_point), scale, zero_point
