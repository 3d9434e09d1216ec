"""Matrix products: MatMul, Gemm, Einsum, the integer and quantized forms; and the determinant."""

from __future__ import annotations

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, NUMBERS, Array
from dovetail.providers.cpu.kernels._checks import fail, require
from dovetail.providers.cpu.kernels._quantization import quantize, requantize
from dovetail.providers.cpu.kernels._support import FLOAT8, SINGLE_FLOATS, float_reference, reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["det", "einsum", "gemm", "matmul", "matmul_integer", "qlinear_matmul"]

_PRODUCTS = (*FLOATS, "int32", "int64", "uint32", "uint64")
_BYTES = ("int8", "uint8")


@kernel("MatMul", since=1, types={"T": _PRODUCTS}, into=np.matmul)
@float_reference
def matmul(a: Array, b: Array) -> Array:
    """Multiply matrices, or stacks of them; a vector is a row on the left and a column on the right."""
    require(a.ndim > 0 and b.ndim > 0, "MatMul", "a scalar is not a matrix")
    inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
    require(a.shape[-1] == inner, "MatMul", "inner sizes differ", expected=a.shape[-1], got=inner)
    return np.asarray(np.matmul(a, b))


@kernel("Gemm", since=7, types={"T": _PRODUCTS})
@float_reference
def gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema names it so
    transB: int = 0,  # noqa: N803
) -> Array:
    """``alpha`` times the product plus ``beta`` times a broadcast addend."""
    left = a.T if transA else a
    right = b.T if transB else b
    require(left.ndim == right.ndim == 2, "Gemm", "both factors must be matrices", got=(a.shape, b.shape))
    require(left.shape[1] == right.shape[0], "Gemm", "inner sizes differ", expected=left.shape[1], got=right.shape[0])
    product = np.matmul(left, right)
    y = product if alpha == 1.0 else _scale(product, alpha)
    if c is None or beta == 0.0:
        return y
    return np.asarray(y + (c if beta == 1.0 else _scale(c, beta)), dtype=a.dtype)


def _scale(x: Array, factor: float) -> Array:
    """Integers are scaled in float64 and cut, since a factor of Gemm need not be whole."""
    if x.dtype.kind in "iu":
        return (x * np.float64(factor)).astype(x.dtype)
    return np.asarray(x * x.dtype.type(factor))


@kernel("Einsum", since=12, types={"T": NUMBERS})
@float_reference
def einsum(*operands: Array, equation: str) -> Array:
    """Sum products of elements as the equation's letters say."""
    compact = equation.replace(" ", "")
    try:
        y = np.einsum(compact, *operands, optimize=len(operands) > 2)
    except ValueError as error:
        fail("Einsum", f"equation '{compact}' does not fit its operands: {error}", got=[x.shape for x in operands])
    # An equation that only reorders axes gives a view of its operand.
    return np.array(y, dtype=operands[0].dtype)


@kernel("MatMulInteger", since=10, types={"T1": _BYTES, "T2": _BYTES})
@reference
def matmul_integer(a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None) -> Array:
    """Multiply matrices of bytes exactly into int32."""
    left = _subtract(a, a_zero_point, per_row=True)
    right = _subtract(b, b_zero_point, per_row=False)
    return _multiply_exactly("MatMulInteger", left, right)


def _multiply_exactly(op: str, left: Array, right: Array) -> Array:
    inner = right.shape[-2] if right.ndim > 1 else right.shape[0]
    require(left.shape[-1] == inner, op, "inner sizes differ", expected=left.shape[-1], got=inner)
    # float64 holds every sum of byte products exactly, and unlike integers it has a fast matrix product.
    return np.asarray(np.matmul(left, right)).astype(np.int64).astype(np.int32)


def _subtract(x: Array, zero_point: Array | None, *, per_row: bool) -> Array:
    wide = x.astype(np.float64)
    return wide if zero_point is None else wide - _align(zero_point.astype(np.float64), per_row=per_row)


def _align(values: Array, *, per_row: bool) -> Array:
    """One value a tensor, or one a row of the left (a column of the right) factor, ready to broadcast."""
    if values.size == 1:
        return values.reshape(())
    return values[:, None] if per_row and values.ndim == 1 else values


@kernel("QLinearMatMul", since=10, until=20, types={"T1": _BYTES, "T2": _BYTES, "T3": _BYTES})
@kernel(
    "QLinearMatMul",
    since=21,
    types={"T1": _BYTES + FLOAT8, "T2": _BYTES + FLOAT8, "T3": _BYTES + FLOAT8, "TS": SINGLE_FLOATS},
)
@reference
def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Array:
    """Multiply quantized matrices and quantize the product."""
    left = _subtract(a, a_zero_point, per_row=True)
    right = _subtract(b, b_zero_point, per_row=False)
    rows = _align(a_scale.astype(np.float32), per_row=True)
    columns = _align(b_scale.astype(np.float32), per_row=False)
    exact = a.dtype.kind in "iu" and b.dtype.kind in "iu" and y_zero_point.dtype.kind in "iu"
    result_scale = _align(y_scale, per_row=True)
    if exact:
        sums = _multiply_exactly("QLinearMatMul", left, right)
        return requantize(sums, rows * columns, result_scale, _align(y_zero_point, per_row=True))
    product = np.asarray(np.matmul(left, right)) * (rows * columns)
    return quantize(product, result_scale, _align(y_zero_point, per_row=True))


@kernel("Det", since=11, types={"T": FLOATS})
@float_reference
def det(x: Array) -> Array:
    """The determinant of each matrix."""
    require(x.ndim >= 2 and x.shape[-1] == x.shape[-2], "Det", "matrices must be square", got=x.shape)
    return np.asarray(np.linalg.det(x))
