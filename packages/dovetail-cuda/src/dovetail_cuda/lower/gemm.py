"""Products of matrices: MatMul and Gemm, for a library where it has the type, else as sums over rows."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_cuda.lower.expr import Expr, apply, literal
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import reshape_to, transpose_to
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, ProductTensor, Rows, RowTensor, Tensor, broadcast_shapes, broadcast_to
from dovetail_cuda.lower.types import WIDE, is_float

__all__ = ["matmul", "scale_tensor"]


def _multiply_rows(a: Tensor, b: Tensor) -> RowTensor:
    """(..., M, K) times (..., K, N) as one sum for each element of the result."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    left, right = broadcast_to(a, (*batch, m, k)), broadcast_to(b, (*batch, k, n))

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        *outer, row, column, inner = at
        factors = left.at((*outer, row, inner), guard), right.at((*outer, inner, column), guard)
        return apply("{0} * {1}", *factors, dtype=a.dtype)

    products = Tensor(shape=(*batch, m, n, k), dtype=a.dtype, pull=pull)

    def body(rows: Rows) -> Expr:
        return rows.reduce("sum", rows.read(products))

    return make_reduced(products, (len(batch) + 2,), body, keep=False)


@registry.register("MatMul", since=9, types={"T": WIDE})
def matmul(a: Tensor, b: Tensor) -> Lowered:
    """The product of the last two dimensions, for all before."""
    left = reshape_to(a, (1, *a.shape)) if a.rank == 1 else a
    right = reshape_to(b, (*b.shape, 1)) if b.rank == 1 else b
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    rows = () if a.rank == 1 else (left.shape[-2],)
    columns = () if b.rank == 1 else (right.shape[-1],)
    shape = (*batch, *rows, *columns)
    plain = _with_shape(_multiply_rows(left, right), shape)
    if not is_float(a.dtype) or not plain.rows.num_columns:
        return plain
    return ProductTensor(shape=shape, dtype=a.dtype, left=left, right=right, plain=plain)


def _with_shape(made: RowTensor, shape: tuple[int, ...]) -> RowTensor:
    return RowTensor(shape=shape, dtype=made.dtype, rows=made.rows, value=made.value, is_reduced=made.is_reduced)


@registry.register("Gemm", since=9, types={"T": WIDE})
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - ONNX's names
    transB: int = 0,  # noqa: N803
) -> Lowered:
    """A product of two matrices and a sum with a third."""
    left = transpose_to(a, (1, 0)) if transA else a
    right = transpose_to(b, (1, 0)) if transB else b
    shape, dtype = (left.shape[0], right.shape[1]), a.dtype
    plain = _multiply_rows(left, right)

    def add(x: Expr, y: Expr) -> Expr:
        return apply("{0} + {1}", x, y, dtype=dtype)

    def finish(result: Tensor) -> Tensor:
        scaled = scale_tensor(result, alpha)
        return scaled if c is None else map_elements(add, scaled, scale_tensor(c, beta), dtype=dtype)

    if is_float(dtype) and plain.rows.num_columns:
        return ProductTensor(shape=shape, dtype=dtype, left=left, right=right, finish=finish, plain=plain)
    value = finish(Tensor(shape=shape, dtype=dtype, pull=lambda at, guard: plain.value)).at(plain.rows.coordinates[:2])
    return RowTensor(shape=shape, dtype=dtype, rows=plain.rows, value=value, is_reduced=True)


def scale_tensor(x: Tensor, factor: float) -> Tensor:
    """A multiple of a tensor."""
    if factor == 1.0:
        return x
    number = literal(factor, x.dtype)
    return map_elements(lambda a: apply("{0} * {1}", a, number, dtype=x.dtype), x, dtype=x.dtype)
