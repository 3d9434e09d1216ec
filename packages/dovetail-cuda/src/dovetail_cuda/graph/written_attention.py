"""Attention that a model writes out: a product, whatever is done with its elements, a softmax, and a second product.

What lies between the two products is not lowered node by node but becomes the mask of one attention. Queries and keys
may have any number of dimensions, and be moved and scaled in any way before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dovetail_cuda.lower.pointwise import ELEMENTWISE

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["WrittenAttention", "find_written"]

_MOST_STEPS: Final = 8
"""Operators between the first product and the softmax."""


@dataclass(frozen=True, kw_only=True)
class WrittenAttention:
    """The nodes of one attention."""

    product: ir.Node
    """Queries times keys, of which features come before keys."""
    between: tuple[ir.Node, ...]
    """What is done with scores, in order."""
    after: tuple[ir.Node, ...]
    """The softmax, and what puts zeros in place of NaN."""
    last: ir.Node
    """Weights times values."""

    @property
    def inside(self) -> tuple[ir.Node, ...]:
        """All but the last."""
        return self.product, *self.between, *self.after

    @property
    def zeroes_blind(self) -> bool:
        """Whether a query that sees no key gives zeros, and not NaN."""
        return any(node.op_type == "IsNaN" for node in self.after)


def find_written(graph: ir.Graph) -> list[WrittenAttention]:
    """Every attention that is written out."""
    return [found for node in graph if (found := _find(node)) is not None]


def _find(softmax: ir.Node) -> WrittenAttention | None:
    if softmax.op_type != "Softmax" or softmax.domain not in ("", "ai.onnx") or not _is_over_last(softmax):
        return None
    scores = softmax.inputs[0]
    path = None if scores is None else _trace(scores, _MOST_STEPS)
    after = _find_reader(softmax.outputs[0])
    if path is None or after is None:
        return None
    product, *between = path
    *guards, last = after
    return WrittenAttention(product=product, between=tuple(between), after=(softmax, *guards), last=last)


def _is_over_last(softmax: ir.Node) -> bool:
    axis, shape = softmax.attributes.get("axis"), softmax.outputs[0].shape
    number = -1 if axis is None else axis.as_int()
    return number == -1 or (shape is not None and number == len(shape) - 1)


def _trace(value: ir.Value, steps: int) -> list[ir.Node] | None:
    """The nodes from a product of two tensors to a value, where each does something with elements only."""
    node = value.producer()
    if node is None or not _is_read_once(value) or value.shape is None or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "MatMul":
        is_between_tensors = all(each is not None and each.const_value is None for each in node.inputs)
        return [node] if is_between_tensors and len(value.shape) > 2 else None
    if node.op_type not in ELEMENTWISE or not steps:
        return None
    found = [path for each in _list_same(node, value) if (path := _trace(each, steps - 1)) is not None]
    return [*found[0], node] if len(found) == 1 else None


def _list_same(node: ir.Node, value: ir.Value) -> Iterator[ir.Value]:
    """The inputs that have the shape of a value."""
    for each in node.inputs:
        if each is not None and each.shape is not None and tuple(each.shape) == tuple(value.shape or ()):
            yield each


def _is_read_once(value: ir.Value) -> bool:
    return len(list(value.uses())) == 1 and not value.is_graph_output()


def _find_reader(weights: ir.Value) -> list[ir.Node] | None:
    """The product that reads weights, behind a change of type and what puts zeros in place of NaN."""
    uses = list(weights.uses())
    if weights.is_graph_output():
        return None
    if len(uses) == 1 and uses[0].node.op_type == "Cast":
        rest = _find_reader(uses[0].node.outputs[0])
        return None if rest is None else [uses[0].node, *rest]
    if len(uses) == 1 and uses[0].node.op_type == "MatMul" and uses[0].idx == 0:
        return [uses[0].node]
    nodes = {use.node.op_type: use.node for use in uses}
    if len(uses) != 2 or set(nodes) != {"IsNaN", "Where"}:
        return None
    test, choice = nodes["IsNaN"], nodes["Where"]
    is_guard = choice.inputs[0] is test.outputs[0] and choice.inputs[2] is weights and _is_zero(choice.inputs[1])
    rest = _find_reader(choice.outputs[0]) if is_guard and _is_read_once(test.outputs[0]) else None
    return None if rest is None else [test, choice, *rest]


def _is_zero(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and not np.any(value.const_value.numpy())
