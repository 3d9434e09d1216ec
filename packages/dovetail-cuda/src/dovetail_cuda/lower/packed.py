"""Products with weights that are packed into a few bits, which stay packed in memory: MatMulNBits of com.microsoft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dovetail_cuda.lower.expr import Expr, apply, convert, literal, position
from dovetail_cuda.lower.gemm import matmul
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import reshape_to
from dovetail_cuda.lower.operators.gather import clamp_index
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Anchor, ProductTensor, Tensor, make_constant, refuse

__all__ = ["ComputedProductTensor", "unpack_bits"]

_REAL: Final = ("float32", "float16", "bfloat16")
_BITS: Final = (2, 4, 8)
Coordinates = Sequence[Index]


@dataclass(frozen=True, kw_only=True, eq=False)
class ComputedProductTensor(Anchor):
    """A product whose right factor is computed."""

    left: Tensor
    """(M, K)"""
    right: Tensor
    """(K, N)"""

    @property
    def product(self) -> ProductTensor:
        """The same as an ordinary product."""
        made = matmul(self.left, self.right)
        if not isinstance(made, ProductTensor):
            raise refuse(f"it multiplies no {self.dtype} in tiles")
        plain = replace(made.plain, shape=self.shape)
        return replace(made, shape=self.shape, plain=plain, finish=self.finish)

    def with_left(self, left: Tensor) -> ComputedProductTensor:
        """The same of another left factor."""
        return replace(self, left=left)


@registry.register(
    "MatMulNBits", domain="com.microsoft", since=1, types={"T1": _REAL, "T2": ("uint8",), "T3": (*_REAL, "uint8")}
)
def matmul_nbits(
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,  # noqa: N803 - the schema names it so
    N: int,  # noqa: N803
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Anchor:
    """The product with N rows of K weights in a few bits; blocks of a row share a scale and a zero point."""
    blocks = -(-K // block_size)
    fits = a.rank > 0 and a.shape[-1] == K and b.count == N * blocks * (block_size * bits // 8)
    if bits not in _BITS or weight_prepacked or not fits or scales.count != N * blocks:
        raise refuse(f"weights of shape {b.shape} in {bits} bits do not make {N} rows of {K}")
    packed = reshape_to(b, (N, blocks * block_size * bits // 8))
    factors = reshape_to(scales, (N, blocks))
    zeros = _read_zeros(zero_points, bits, N, blocks)

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        inner, row = at
        block = inner // block_size
        if g_idx is not None:
            block = clamp_index(convert(g_idx.at((inner,), guard), "int64"), blocks)
        number = unpack_bits(packed, (row,), inner, bits, guard)
        zero, factor = (convert(each.at((row, block), guard), "float32") for each in (zeros, factors))
        text = "({0} - {1}) * {2}"
        return convert(apply(text, convert(number, "float32"), zero, factor, dtype="float32"), a.dtype)

    weight = Tensor(shape=(K, N), dtype=a.dtype, pull=pull)
    rows = a.count // max(K, 1)

    def finish(result: Tensor) -> Tensor:
        if bias is None:
            return result
        return map_elements(lambda x, y: apply("{0} + {1}", x, y, dtype=a.dtype), result, bias, dtype=a.dtype)

    shape = (*a.shape[:-1], N)
    return ComputedProductTensor(shape=shape, dtype=a.dtype, left=reshape_to(a, (rows, K)), right=weight, finish=finish)


def unpack_bits(packed: Tensor, lead: Coordinates, number: Index, bits: int, guard: Expr | None) -> Expr:
    """One of the numbers that lie in bytes along the last axis, the first in the lowest bits."""
    if bits == 8:
        return packed.at((*lead, number), guard)
    each = 8 // bits
    byte = convert(packed.at((*lead, number // each), guard), "int32")
    shift = position(number % each * bits, "int32")
    return apply("({0} >> {1}) & {2}", byte, shift, literal(2**bits - 1, "int32"), dtype="int32")


def _read_zeros(zero_points: Tensor | None, bits: int, rows: int, blocks: int) -> Tensor:
    """The zero point of each block: the middle of the range, real numbers, or numbers packed as the weights."""
    if zero_points is None:
        return make_constant(2 ** (bits - 1), (rows, blocks), "int32")
    if zero_points.dtype != "uint8":
        return reshape_to(zero_points, (rows, blocks))
    packed = reshape_to(zero_points, (rows, -(-blocks * bits // 8)))

    def pull(at: Coordinates, guard: Expr | None) -> Expr:
        return unpack_bits(packed, at[:1], at[1], bits, guard)

    return Tensor(shape=(rows, blocks), dtype="uint8" if bits == 8 else "int32", pull=pull)
