"""The right results of a product, by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dovetail_cuda.choose.records import ReferenceRecord
from dovetail_cuda.run.payload import Product

__all__ = ["MOST_OPS", "compute_reference", "count_ops"]

MOST_OPS: Final = 1 << 31
"""Products up to so many multiplications are compared with NumPy's; larger ones with each other."""


def count_ops(product: Product) -> int:
    """How many multiplications a product is."""
    return product.batch * product.m * product.n * product.k


def compute_reference(
    reference: ReferenceRecord | None, counts: Sequence[int], arrays: Sequence[Any]
) -> list[Any] | None:
    """The result as it lies in its buffer, for arrays by role; None where the question is no product, or a large one.

    Args:
        reference: The product.
        counts: The elements of each operand.
        arrays: The numbers of each operand; None for the result.
    """
    if reference is None or count_ops(reference.product) > MOST_OPS:
        return None
    product, roles = reference.product, reference.roles
    wide = np.float64 if product.dtype == "float64" else np.float32
    made = np.zeros(counts[roles[-1]], wide)
    with np.errstate(all="ignore"):  # a result that is not finite is compared as it is
        _lay(made, product)[:] = _multiply(product, [arrays[role].astype(wide) for role in roles[:-1]])
        return [made.astype(np.dtype(product.dtype))]


def _multiply(product: Product, operands: Sequence[Any]) -> Any:
    left, right, *extra = operands
    result = np.matmul(_view_left(left, product), _view_right(right, product)) * left.dtype.type(product.alpha)
    if product.has_bias:
        result += extra.pop(0)[: product.n]
    if product.has_residual:
        result += _lay(extra.pop(0), product)
    return _activate(result, product.activation)


def _view_left(flat: Any, product: Product) -> Any:
    shape = (product.batch, product.m, product.k)
    return _view(flat, shape, product.left_stride, product.left_line, is_swapped=product.is_left_swapped)


def _view_right(flat: Any, product: Product) -> Any:
    shape = (product.batch, product.k, product.n)
    return _view(flat, shape, product.right_stride, product.right_line, is_swapped=product.is_right_swapped)


def _view(flat: Any, shape: tuple[int, int, int], stride: int, line: int, *, is_swapped: bool) -> Any:
    """The matrices that lie in an operand."""
    steps = [stride, 1, line] if is_swapped else [stride, line, 1]
    strides = [step * flat.itemsize for step in steps]
    return np.lib.stride_tricks.as_strided(flat, shape, strides, writeable=False)


def _lay(flat: Any, product: Product) -> Any:
    """Matrices where the result has them."""
    steps = [product.result_stride * flat.itemsize, product.result_line * flat.itemsize, flat.itemsize]
    return np.lib.stride_tricks.as_strided(flat, (product.batch, product.m, product.n), steps)


def _activate(x: Any, name: str) -> Any:
    if name == "relu":
        return np.maximum(x, 0)
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))) if name else x
