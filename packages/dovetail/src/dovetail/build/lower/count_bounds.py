"""The most that a count can be which only the run tells, so that callers can provide memory before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import onnx_ir as ir

from dovetail.expr import Constant, DimensionOperation, Expr, Operation, Symbol, substitute
from dovetail.network.inference.shapes import ShapeInference

__all__ = ["find_count_bounds"]

_Rule = Callable[[ir.Node, ShapeInference], Expr | None]


def find_count_bounds(graph: ir.Graph, inference: ShapeInference) -> dict[str, Expr]:
    """The bounds of counts by their symbols; a bound may depend on sizes of inputs only."""
    bounds: dict[str, Expr] = {}
    for node in graph:
        rule = _RULES.get(node.op_type) if not node.domain else None
        bound = None if rule is None else rule(node, inference)
        if bound is not None:
            bound = substitute(bound, bounds)
            bounds |= dict.fromkeys(_count_symbols(node, inference), bound)
    return bounds


def _count_symbols(node: ir.Node, inference: ShapeInference) -> list[str]:
    """The symbols that first appear in the outputs of a node."""
    given = {dim for value in node.inputs if value is not None for dim in inference.exprs(value) or ()}
    made = [dim for value in node.outputs for dim in inference.exprs(value) or ()]
    return [dim.name for dim in made if isinstance(dim, Symbol) and dim not in given]


def _multiply(dims: Sequence[Expr | None] | None) -> Expr | None:
    known = [dim for dim in dims or () if dim is not None]
    if dims is None or len(known) < len(dims):
        return None
    product: Expr = Constant(1)
    for dim in known:
        product = Operation(DimensionOperation.PROD, product, dim)
    return product


def _dims(node: ir.Node, index: int, inference: ShapeInference) -> tuple[Expr | None, ...] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None else inference.exprs(value)


def _bound_elements(node: ir.Node, inference: ShapeInference) -> Expr | None:
    """No more than there are elements."""
    return _multiply(_dims(node, 0, inference))


def _bound_along_axis(node: ir.Node, inference: ShapeInference) -> Expr | None:
    """No more than there are along the axis; without one all elements count."""
    axis, dims = node.attributes.get("axis"), _dims(node, 0, inference)
    return _multiply(dims) if axis is None or dims is None else _multiply([dims[axis.as_int()]])


def _bound_boxes(node: ir.Node, inference: ShapeInference) -> Expr | None:
    """No more than the boxes of each class of each image, and no more of a class than its limit."""
    scores = _dims(node, 1, inference)
    every = _multiply(scores)
    limit = inference.constant_values(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else None
    if scores is None or every is None or not limit or not isinstance(limit[0], Constant) or limit[0].value < 0:
        return every
    return _multiply([*scores[:2], Operation(DimensionOperation.MIN, limit[0], scores[2] or limit[0])])


_RULES: Final[dict[str, _Rule]] = {
    "Compress": _bound_along_axis,
    "NonMaxSuppression": _bound_boxes,
    "NonZero": _bound_elements,
    "Unique": _bound_along_axis,
}
