"""What a product of matrices takes with it: the bias and the activation that follow it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dovetail_cuda.lower.expr import Expr, apply
from dovetail_cuda.lower.indexing import reshape_to
from dovetail_cuda.lower.tensors import Lowered, ProductTensor, RowTensor, Tensor

__all__ = ["ABSORBED", "absorb"]

ABSORBED: Final = frozenset(("Add", "Gelu", "Relu"))
"""Operators that may become part of a product before them."""
_TEXTS: Final = {"relu": "tl.maximum({0}, 0.0)", "gelu_tanh": "f.gelu_tanh({0})"}


def absorb(op: str, inputs: Sequence[Lowered | None], attributes: Mapping[str, Any]) -> ProductTensor | None:
    """The product with one more operator in it; None where that cannot be."""
    products = [each for each in inputs if isinstance(each, ProductTensor)]
    if len(products) != 1 or products[0].activation:
        return None
    if op == "Add":
        others = [each for each in inputs if isinstance(each, Tensor)]
        return _add_bias(products[0], others[0]) if len(others) == 1 else None
    if op == "Relu":
        return _activate(products[0], "relu")
    return _activate(products[0], "gelu_tanh") if attributes.get("approximate") == "tanh" else None


def _add_bias(product: ProductTensor, bias: Tensor) -> ProductTensor | None:
    columns = product.shape[-1] if product.shape else 0
    is_bias = bias.buffer is not None and bias.count == columns and bias.shape[-1:] == (columns,)
    if product.bias is not None or not is_bias or bias.rank > len(product.shape) or product.plain is None:
        return None
    flat = reshape_to(bias, (columns,))

    def add(rows: RowTensor) -> Expr:
        column = rows.rows.coordinates[-2]  # the last but one: behind it is what is summed over
        return apply("{0} + {1}", rows.value, flat.at((column,)), dtype=product.dtype)

    return replace(product, bias=flat, plain=replace(product.plain, value=add(product.plain)))


def _activate(product: ProductTensor, name: str) -> ProductTensor | None:
    if product.plain is None:
        return None
    value = apply(_TEXTS[name], product.plain.value, dtype=product.dtype)
    return replace(product, activation=name, plain=replace(product.plain, value=value))
