"""Numbers in few bits: a scale for all of a tensor, for each slice of an axis, or for blocks along it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dovetail_cuda.lower.expr import Expr, apply, convert, literal
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import find_axis
from dovetail_cuda.lower.pointwise import ONNX_TYPES, map_elements
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Tensor, refuse

__all__: list[str] = []

_LIMITS: Final = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}
_FLOATS: Final = ("float16", "bfloat16", "float32")


def _spread(tensor: Tensor, shape: Sequence[int], axis: int, block_size: int) -> Tensor:
    """A scale or zero point for each element."""
    if tensor.count == 1 and not block_size:
        origin = [Index()] * tensor.rank
        return Tensor(shape=tuple(shape), dtype=tensor.dtype, pull=lambda at, guard: tensor.at(origin, guard))
    along = find_axis(axis, len(shape))

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        if tensor.rank == 1 and not block_size:
            return tensor.at((at[along],), guard)
        return tensor.at([c // block_size if each == along else c for each, c in enumerate(at)], guard)

    return Tensor(shape=tuple(shape), dtype=tensor.dtype, pull=pull)


@registry.register("DequantizeLinear", since=10)
def dequantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    """Numbers of what stands for them."""
    dtype = ONNX_TYPES.get(output_dtype, "") if output_dtype else scale.dtype
    if x.dtype not in (*_LIMITS, "int32") or dtype not in _FLOATS:
        raise refuse(f"it does not dequantize {x.dtype} to {dtype or 'that type'}")
    scales = _spread(scale, x.shape, axis, block_size)
    points = [] if zero_point is None else [_spread(zero_point, x.shape, axis, block_size)]

    def restore(value: Expr, factor: Expr, *zero: Expr) -> Expr:
        wide = convert(value, "int32")
        if zero:
            wide = apply("{0} - {1}", wide, convert(zero[0], "int32"), dtype="int32")
        product = apply("{0} * {1}", convert(wide, "float32"), convert(factor, "float32"), dtype="float32")
        return convert(product, dtype)

    return map_elements(restore, x, scales, *points, dtype=dtype)


@registry.register("QuantizeLinear", since=10)
def quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    """What stands for numbers: to the nearest, to even where two are as near, and within the type."""
    dtype = (
        zero_point.dtype if zero_point is not None else ONNX_TYPES.get(output_dtype, "") if output_dtype else "uint8"
    )
    if dtype not in _LIMITS or x.dtype not in _FLOATS or precision not in (0, 1):
        raise refuse(f"it does not quantize {x.dtype} to {dtype or 'that type'}")
    scales = _spread(scale, x.shape, axis, block_size)
    points = [] if zero_point is None else [_spread(zero_point, x.shape, axis, block_size)]
    low, high = (literal(limit, "float32") for limit in _LIMITS[dtype])

    def reduce(value: Expr, factor: Expr, *zero: Expr) -> Expr:
        parts = convert(value, "float32"), convert(factor, "float32")
        near = apply("f.round(tl.div_rn({0}, {1}))", *parts, dtype="float32")
        if zero:
            near = apply("{0} + {1}", near, convert(zero[0], "float32"), dtype="float32")
        return convert(apply("tl.minimum(tl.maximum({0}, {1}), {2})", near, low, high, dtype="float32"), dtype)

    return map_elements(reduce, x, scales, *points, dtype=dtype)
