"""A product of two matrices and the bias added to it become one Gemm.

Only where it is one: both factors have two axes, and the bias does not make the result larger. A weight that is
transposed first goes in as it is.
"""

from __future__ import annotations

from typing import ClassVar, Final

import onnx_ir as ir

from dovetail.passes._graph import is_onnx
from dovetail.passes._match import (
    dims_of,
    int_attribute,
    ints_attribute,
    is_float,
    is_named,
    is_private,
    producer_of,
    rank_of,
)
from dovetail.passes.fusions.base import Fusion, FusionPass

__all__ = ["MatMulAddFusion"]

_SWAPPED: Final = [1, 0]


class MatMulAddFusion(FusionPass):
    """Replaces MatMul and Add, and a Gemm without bias and Add."""

    name: ClassVar[str] = "matmul_add"
    op: ClassVar[str] = "Gemm"
    since: ClassVar[int] = 11
    """Before it, Gemm needed a bias."""

    def match(self, node: ir.Node) -> Fusion | None:
        """An addition of a product and something that fits it."""
        if not is_onnx(node, "Add") or not is_float(node.outputs[0]):
            return None
        for index in (0, 1):
            product, bias = producer_of(node.inputs[index], "MatMul", "Gemm"), node.inputs[1 - index]
            if product is not None and bias is not None and _fits(bias, product.outputs[0]):
                return _fuse(node, product, bias)
        return None


def _fits(bias: ir.Value, product: ir.Value) -> bool:
    """Whether a bias broadcasts to a matrix, and to nothing larger."""
    small, large = dims_of(bias), dims_of(product)
    if small is None or large is None or len(large) != 2 or len(small) > 2 or bias.dtype != product.dtype:
        return False
    pairs = zip(reversed(small), reversed(large), strict=False)
    return all(one == 1 or (is_named(one) and one == two) for one, two in pairs)


def _fuse(add: ir.Node, product: ir.Node, bias: ir.Value) -> Fusion | None:
    if product.op_type == "Gemm":
        return _extend_gemm(add, product, bias)
    factors, nodes, attributes = [], [add, product], {}
    for name, value in zip(("transA", "transB"), product.inputs, strict=True):
        if rank_of(value) != 2 or value is None:
            return None
        transpose = producer_of(value, "Transpose")
        if transpose is not None and is_private(value) and ints_attribute(transpose, "perm") in (None, _SWAPPED):
            nodes.append(transpose)
            attributes[name] = 1
            value = transpose.inputs[0]
        factors.append(value)
    return Fusion(root=add, nodes=tuple(nodes), inputs=(*factors, bias), attributes=attributes)


def _extend_gemm(add: ir.Node, gemm: ir.Node, bias: ir.Value) -> Fusion | None:
    if len(gemm.inputs) > 2 and gemm.inputs[2] is not None:
        return None
    alpha = gemm.attributes.get("alpha")
    attributes = {name: int_attribute(gemm, name, 0) for name in ("transA", "transB")}
    factor = {} if alpha is None else {"alpha": alpha.as_float()}
    return Fusion(root=add, nodes=(add, gemm), inputs=(*gemm.inputs[:2], bias), attributes={**attributes, **factor})
