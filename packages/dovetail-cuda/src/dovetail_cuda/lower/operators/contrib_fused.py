"""Operators of com.microsoft that are others in one: sums with a bias, products with what follows, packed tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from dovetail_cuda.lower.expr import Expr, apply, both, convert, literal, select
from dovetail_cuda.lower.gemm import matmul
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import find_axis, move
from dovetail_cuda.lower.operators.contrib import fused_matmul
from dovetail_cuda.lower.operators.gather import clamp_index
from dovetail_cuda.lower.operators.quantize import dequantize, quantize
from dovetail_cuda.lower.packed import unpack_bits
from dovetail_cuda.lower.pointwise import GELU_TANH, map_elements
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, ProductTensor, Tensor, make_constant, refuse
from dovetail_cuda.lower.types import FLOATS

__all__: list[str] = []

_DOMAIN: Final = "com.microsoft"
_REAL: Final = ("float32", "float16", "bfloat16")
_SINGLE: Final = ("float32", "float16")
_BITS: Final = (2, 4, 8)
Coordinates = Sequence[Index]


def _add(x: Tensor, *others: Tensor | None) -> Tensor:
    """A sum of what is there."""
    parts = [x, *(each for each in others if each is not None)]
    text = " + ".join(f"{{{number}}}" for number in range(len(parts)))
    return map_elements(lambda *values: apply(text, *values, dtype=x.dtype), *parts, dtype=x.dtype)


def _check_bias(x: Tensor, bias: Tensor) -> None:
    if bias.shape not in (x.shape, x.shape[-1:]):
        raise refuse(f"a bias of shape {bias.shape} is nothing to add to {x.shape}")


@registry.register(
    "BiasDropout", domain=_DOMAIN, since=1, types={"T": FLOATS, "T1": FLOATS, "T2": ("bool",)}, host_inputs=(4,)
)
def bias_dropout(
    x: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    ratio: Tensor | None = None,
    training_mode: Any = None,
    *,
    seed: int = 0,
    num_outputs: int = 1,
) -> tuple[Tensor, ...]:
    """A sum with a bias and a residual: nothing is dropped when a model runs."""
    if training_mode is not None and bool(training_mode):
        raise refuse("it drops nothing at random")
    _check_bias(x, bias)
    return (_add(x, bias, residual), make_constant(value=True, shape=x.shape, dtype="bool"))[:num_outputs]


@registry.register("BiasAdd", domain=_DOMAIN, since=1, types={"T": _SINGLE})
def bias_add(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """A sum with a bias along the last axis and a residual."""
    _check_bias(x, bias)
    return _add(x, bias, skip)


@registry.register("BiasSplitGelu", domain=_DOMAIN, since=1, types={"T": _SINGLE})
def bias_split_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """The first half of the last axis times the GELU of the second, both with a bias."""
    _check_bias(x, bias)
    moved, half = _add(x, bias), x.shape[-1] // 2
    shape = (*x.shape[:-1], half)
    left = move(moved, shape, lambda at: at)
    right = move(moved, shape, lambda at: (*at[:-1], at[-1] + half))
    return map_elements(lambda a, b: apply("{0} * f.gelu({1})", a, b, dtype=x.dtype), left, right, dtype=x.dtype)


@registry.register("TransposeMatMul", domain=_DOMAIN, since=1, types={"T": FLOATS})
def transpose_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema's names
    transB: int = 0,  # noqa: N803
) -> Lowered:
    """The older name of FusedMatMul."""
    return fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB)


@registry.register("GemmFastGelu", domain=_DOMAIN, since=1, types={"T": _REAL})
def gemm_fast_gelu(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Lowered:
    """The GELU of a product, by the hyperbolic tangent."""
    product = matmul(x, w)
    if not isinstance(product, ProductTensor):
        raise refuse("it multiplies no such product")

    def finish(made: Tensor) -> Tensor:
        return map_elements(lambda a: apply(GELU_TANH, a, dtype=x.dtype), _add(made, bias), dtype=x.dtype)

    return replace(product, finish=finish)


@registry.register("QuantizeLinear", domain=_DOMAIN, since=1, types={"T1": _SINGLE})
def quantize_linear(x: Tensor, scale: Tensor, zero_point: Tensor | None = None, *, axis: int = 1) -> Tensor:
    """What stands for numbers, as ONNX's operator has it."""
    return quantize(x, scale, zero_point, axis=axis)


@registry.register("DequantizeLinear", domain=_DOMAIN, since=1, types={"T2": _SINGLE})
def dequantize_linear(x: Tensor, scale: Tensor, zero_point: Tensor | None = None, *, axis: int = 1) -> Tensor:
    """Numbers of what stands for them, as ONNX's operator has it."""
    return dequantize(x, scale, zero_point, axis=axis)


@registry.register(
    "GatherBlockQuantized",
    domain=_DOMAIN,
    since=1,
    types={"T1": ("uint8",), "T2": _REAL, "Tind": ("int32", "int64")},
)
def gather_block_quantized(
    data: Tensor,
    indices: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Tensor:
    """Rows of a table that stays packed in bytes; a row beyond the table is zero."""
    axis, blocked = find_axis(gather_axis, data.rank), find_axis(quantize_axis, data.rank)
    if axis != 0 or blocked != data.rank - 1 or blocked == 0 or bits not in _BITS:
        raise refuse("it gathers from the first axis of tables that are packed along the last one")
    width = data.shape[-1] * (8 // bits)
    if scales.shape != (*data.shape[:-1], -(-width // block_size)):
        raise refuse(f"scales of shape {scales.shape} do not fit a table of {(*data.shape[:-1], width)}")
    rows, dtype = data.shape[0], scales.dtype

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        raw = convert(indices.at(at[: indices.rank], guard), "int64")
        row = apply("tl.where({0} < 0, {0} + {1}, {0})", raw, literal(rows, "int64"), dtype="int64")
        inside = apply("({0} >= 0) & ({0} < {1})", row, literal(rows, "int64"), dtype="bool")
        lead, known = (clamp_index(row, rows), *at[indices.rank : -1]), both(guard, inside)
        number = convert(unpack_bits(data, lead, at[-1], bits, known), "float32")
        block = at[-1] // block_size
        zero: Expr = literal(2 ** (bits - 1), "float32")
        if zero_points is not None:
            zero = convert(unpack_bits(zero_points, lead, block, bits, known), "float32")
        factor = convert(scales.at((*lead, block), known), "float32")
        value = apply("({0} - {1}) * {2}", number, zero, factor, dtype="float32")
        return convert(select(inside, value, literal(0, "float32")), dtype)

    return Tensor(shape=(*indices.shape, *data.shape[1:-1], width), dtype=dtype, pull=pull)
