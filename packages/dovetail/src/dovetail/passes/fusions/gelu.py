"""Written-out GELU becomes one node: x * (1 + erf(x / sqrt(2))) / 2, and the form with tanh that approximates it.

Exporters write the factors in any order, so nothing here depends on it: what goes into erf or tanh is read as a
polynomial of x, and what happens to the result as a product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Final

import onnx_ir as ir

from dovetail.passes._graph import is_onnx
from dovetail.passes._match import is_float, one_reader, producer_of, rank_of, scalar_of
from dovetail.passes.fusions.base import Fusion, FusionPass

__all__ = ["GeluFusion"]

Polynomial = dict[int, float]
"""Power of x -> factor."""

_ERF: Final[Polynomial] = {1: math.sqrt(0.5)}
_TANH: Final[Polynomial] = {1: math.sqrt(2 / math.pi), 3: math.sqrt(2 / math.pi) * 0.044715}
_TOLERANCE: Final = 1e-3
"""Factors are often rounded: 0.7978845 and 0.044715, or what is left of them in half precision."""
_MAX_DEPTH: Final = 6


@dataclass
class _Product:
    """The factors of a value, found from the inside out."""

    nodes: list[ir.Node]
    factor: float = 1.0
    others: list[ir.Value] = field(default_factory=list)


class GeluFusion(FusionPass):
    """Replaces both written-out forms of GELU."""

    name: ClassVar[str] = "gelu"
    op: ClassVar[str] = "Gelu"
    since: ClassVar[int] = 20

    def match(self, node: ir.Node) -> Fusion | None:
        """From the erf or tanh inside outwards."""
        if not is_onnx(node, "Erf", "Tanh") or not is_float(node.outputs[0]):
            return None
        product = self._product_around(node)
        if product is None or len(product.others) != 1 or not math.isclose(product.factor, 0.5, rel_tol=_TOLERANCE):
            return None
        x = product.others[0]
        polynomial = self._polynomial(node.inputs[0], x, product.nodes, _MAX_DEPTH)
        wanted, approximate = (_ERF, "none") if node.op_type == "Erf" else (_TANH, "tanh")
        if polynomial is None or not _is_close(polynomial, wanted):
            return None
        if x.dtype != node.outputs[0].dtype or not rank_of(x):  # a constant of one axis would give a scalar that axis
            return None
        return Fusion(
            root=product.nodes[0],
            nodes=(*product.nodes, node),
            inputs=(x,),
            attributes={"approximate": approximate},
        )

    def _product_around(self, node: ir.Node) -> _Product | None:
        """All that 1 + erf(...) is multiplied by, until that is one half and a value; the last node comes first."""
        plus = one_reader(node.outputs[0], "Add")
        if plus is None or self._other_scalar(plus, node.outputs[0]) != 1.0:
            return None
        product, current = _Product([plus]), plus
        while len(product.others) < 1 or not math.isclose(product.factor, 0.5, rel_tol=_TOLERANCE):
            reader = one_reader(current.outputs[0], "Mul", "Div")
            if reader is None or len(product.nodes) > _MAX_DEPTH or not self._take(reader, current, product):
                return None
            product.nodes.insert(0, reader)
            current = reader
        return product

    def _take(self, reader: ir.Node, current: ir.Node, product: _Product) -> bool:
        """Add the other side of a product or quotient to the factors."""
        index = 0 if reader.inputs[0] is current.outputs[0] else 1
        other = reader.inputs[1 - index]
        scalar = scalar_of(other, self.keep)
        if reader.op_type == "Div":
            if index != 0 or not scalar:
                return False
            product.factor /= scalar
            return True
        if scalar is not None:
            product.factor *= scalar
            return True
        return other is not None and self._take_scaled(other, product)

    def _take_scaled(self, value: ir.Value, product: _Product) -> bool:
        """A value that is not constant: x, or x times a constant."""
        if product.others:
            return False
        node = producer_of(value, "Mul")
        scaled = None if node is None or len(value.uses()) != 1 else self._split_scale(node)
        if node is None or scaled is None:
            product.others.append(value)
            return True
        product.others.append(scaled[0])
        product.factor *= scaled[1]
        product.nodes.append(node)
        return True

    def _split_scale(self, node: ir.Node) -> tuple[ir.Value, float] | None:
        for index in (0, 1):
            scalar, value = scalar_of(node.inputs[index], self.keep), node.inputs[1 - index]
            if scalar is not None and value is not None:
                return value, scalar
        return None

    def _other_scalar(self, node: ir.Node, value: ir.Value) -> float | None:
        return scalar_of(node.inputs[1] if node.inputs[0] is value else node.inputs[0], self.keep)

    def _polynomial(self, value: ir.Value | None, x: ir.Value, nodes: list[ir.Node], depth: int) -> Polynomial | None:
        """A value as a polynomial of x; the nodes that compute it are noted."""
        if value is x:
            return {1: 1.0}
        scalar = scalar_of(value, self.keep)
        if scalar is not None:
            return {0: scalar}
        node = producer_of(value, "Mul", "Add", "Div", "Pow")
        if node is None or depth == 0:
            return None
        nodes.append(node)
        first = self._polynomial(node.inputs[0], x, nodes, depth - 1)
        second = None if first is None else self._polynomial(node.inputs[1], x, nodes, depth - 1)
        return None if first is None or second is None else _combine(node.op_type, first, second)


def _combine(op: str, first: Polynomial, second: Polynomial) -> Polynomial | None:
    if op == "Add":
        return {power: first.get(power, 0.0) + second.get(power, 0.0) for power in first.keys() | second.keys()}
    if op == "Mul":
        return _multiply(first, second)
    if second.keys() != {0}:
        return None
    number = second[0]
    if op == "Div":
        return None if number == 0 else {power: factor / number for power, factor in first.items()}
    if number not in (2.0, 3.0):
        return None
    square = _multiply(first, first)
    return square if number == 2.0 else _multiply(square, first)


def _multiply(first: Polynomial, second: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for one, factor in first.items():
        for two, other in second.items():
            result[one + two] = result.get(one + two, 0.0) + factor * other
    return result


def _is_close(found: Polynomial, wanted: Polynomial) -> bool:
    given = {power: factor for power, factor in found.items() if factor != 0}
    return given.keys() == wanted.keys() and all(
        math.isclose(given[power], wanted[power], rel_tol=_TOLERANCE) for power in wanted
    )
