"""Matrices in memory: operands of products that lie in a buffer with even strides, so that they need not be moved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from dovetail_cuda.lower.expr import Load
from dovetail_cuda.lower.index import Index, Var
from dovetail_cuda.lower.sizes import divide, estimate, is_below, least, may_exceed
from dovetail_cuda.lower.tensors import Tensor
from dovetail_cuda.lower.types import size_of

__all__ = ["Matrix", "find_matrix", "order_rows"]

_ALIGNMENT: Final = 16
"""Bytes that an operand must begin at a multiple of."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A batch of matrices in a buffer."""

    buffer: str
    batch: int
    batch_stride: int
    """Elements from one matrix to the next; 0 where there is only one, or all are the same."""
    line: int
    """Elements from one row to the next, or from one column to the next where it lies the other way round."""
    is_swapped: bool
    """Whether columns and not rows lie together."""
    offset: int = 0
    """Elements before the first."""


def find_matrix(tensor: Tensor) -> Matrix | None:
    """How the last two dimensions of a tensor lie in memory; None where it is not in one buffer with even strides."""
    found = _find_strides(tensor)
    if found is None:
        return None
    element, strides = found
    offset = element.index.constant
    if least(offset) < 0 or divide(offset * size_of(tensor.dtype), _ALIGNMENT) is None:
        return None
    batch_stride = _find_batch_stride(tensor.shape[:-2], strides[:-2])
    placed = _place(*tensor.shape[-2:], *strides[-2:])
    if batch_stride is None or placed is None:
        return None
    line, is_swapped = placed
    return Matrix(
        buffer=element.buffer,
        batch=math.prod(tensor.shape[:-2]),
        batch_stride=batch_stride,
        line=line,
        is_swapped=is_swapped,
        offset=offset,
    )


def order_rows(tensor: Tensor) -> tuple[int, ...]:
    """All dimensions but the last in the order they lie in memory, the outermost first; as they are where none is."""
    axes, found = tuple(range(tensor.rank - 1)), _find_strides(tensor)
    return axes if found is None else tuple(sorted(axes, key=lambda axis: -estimate(found[1][axis])))


def _find_strides(tensor: Tensor) -> tuple[Load, list[int]] | None:
    """The element that is read, and the elements from one of it to the next along each dimension, where it is even."""
    element = tensor.at([Index.variable(f"d{axis}", size) for axis, size in enumerate(tensor.shape)])
    if not isinstance(element, Load) or element.guard is not None:
        return None
    factors = {atom.name: factor for atom, factor in element.index.terms if isinstance(atom, Var)}
    if len(factors) < len(element.index.terms):
        return None
    return element, [factors.get(f"d{axis}", 0) for axis in range(tensor.rank)]


def _place(rows: int, columns: int, row_stride: int, column_stride: int) -> tuple[int, bool] | None:
    """The distance of lines, and whether they are columns; dimensions of size 1 have no stride."""
    if columns == 1 or column_stride == 1:
        line = row_stride if may_exceed(rows, 1) else columns
        return None if not is_below(columns - 1, line) else (line, False)
    if rows == 1 or row_stride == 1:
        return None if not is_below(rows - 1, column_stride) else (column_stride, True)
    return None


def _find_batch_stride(sizes: tuple[int, ...], strides: list[int]) -> int | None:
    """The one distance between matrices of a batch."""
    outer = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if may_exceed(size, 1)]
    if not outer or all(not stride for _, stride in outer):
        return 0
    for (_, stride), (size, inner) in pairwise(outer):
        if stride != size * inner:
            return None
    return outer[-1][1]
