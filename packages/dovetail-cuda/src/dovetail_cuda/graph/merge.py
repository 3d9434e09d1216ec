"""Products of one input with several weights become one product: each of them is some of its columns.

Queries, keys and values of attention are such products. One that is three times as wide takes little longer than one of
them, where the rows are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dovetail_cuda.run.packing import join_columns

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["merge_siblings"]

_LEAST_OPSET: Final = 13
"""From here on Split has its sizes as an input."""


@dataclass(frozen=True, kw_only=True)
class _Sibling:
    """A product with a weight, and the sum with a bias where that is all that follows."""

    product: ir.Node
    weight: ir.Value
    sum: ir.Node | None
    bias: ir.Value | None

    @property
    def result(self) -> ir.Value:
        return (self.sum or self.product).outputs[0]


def merge_siblings(model: ir.Model) -> dict[str, tuple[str, ...]]:
    """Merge products in place; tells of each new weight which it is made of."""
    graph = model.graph
    made: dict[str, tuple[str, ...]] = {}
    if model.opset_imports.get("", 0) < _LEAST_OPSET:
        return made
    for value in [*graph.inputs, *(output for node in graph for output in node.outputs)]:
        for siblings in _find_groups(value):
            made |= _merge(graph, value, siblings)
    return made


def _find_groups(value: ir.Value) -> list[list[_Sibling]]:
    """The products that read a value from the left, those with and those without a bias apart."""
    found = [sibling for use in value.uses() if use.idx == 0 and (sibling := _find_sibling(use.node)) is not None]
    groups = [[s for s in found if (s.bias is None) is is_plain] for is_plain in (True, False)]
    return [group for group in groups if len(group) > 1 and len({s.weight for s in group}) == len(group)]


def _find_sibling(node: ir.Node) -> _Sibling | None:
    weight = node.inputs[1] if node.op_type == "MatMul" else None
    if weight is None or weight.const_value is None or len(weight.const_value.shape) != 2:
        return None
    result = node.outputs[0]
    if result.is_graph_output():
        return None
    uses = list(result.uses())
    if len(uses) == 1 and uses[0].node.op_type == "Add":
        total = uses[0].node
        bias = total.inputs[1 - uses[0].idx]
        size = weight.const_value.shape[1]
        if bias is not None and bias.const_value is not None and tuple(bias.const_value.shape) == (size,):
            return None if total.outputs[0].is_graph_output() else _make(node, weight, total, bias)
    return _make(node, weight, None, None)


def _make(node: ir.Node, weight: ir.Value, total: ir.Node | None, bias: ir.Value | None) -> _Sibling:
    return _Sibling(product=node, weight=weight, sum=total, bias=bias)


def _merge(graph: ir.Graph, value: ir.Value, siblings: Sequence[_Sibling]) -> dict[str, tuple[str, ...]]:
    import onnx_ir as ir

    name = siblings[0].result.name or siblings[0].product.name or "product"
    weights = [sibling.weight for sibling in siblings]
    joined = _join(graph, f"{name}.weights", weights)
    made = {joined.name or "": tuple(each.name or "" for each in weights)}
    nodes = [_node("MatMul", [value, joined], siblings, 1)]
    biases = [sibling.bias for sibling in siblings if sibling.bias is not None]
    if biases:
        bias = _join(graph, f"{name}.biases", biases)
        made[bias.name or ""] = tuple(each.name or "" for each in biases)
        nodes.append(_node("Add", [nodes[-1].outputs[0], bias], siblings, 1))
    sizes = np.array([weight.const_value.shape[1] for weight in weights if weight.const_value is not None], np.int64)
    counts = ir.Value(name=f"{name}.sizes", const_value=ir.tensor(sizes))
    graph.register_initializer(counts)
    last = _node("Split", [nodes[-1].outputs[0], counts], siblings, len(siblings), axis=-1)
    first = min(siblings, key=lambda sibling: list(graph).index(sibling.product)).product
    for number, node in enumerate((*nodes, last)):
        for place, output in enumerate(node.outputs):
            output.name = f"{name}.{number}.{place}"
        graph.insert_before(first, node)
    for sibling, output in zip(siblings, last.outputs, strict=True):
        ir.convenience.replace_all_uses_with(sibling.result, output)
        graph.remove([node for node in (sibling.sum, sibling.product) if node is not None], safe=True)
    return made


def _join(graph: ir.Graph, name: str, values: Sequence[ir.Value]) -> ir.Value:
    import onnx_ir as ir

    array = join_columns(value.const_value.numpy() for value in values if value.const_value is not None)
    joined = ir.Value(name=name, const_value=ir.tensor(array))
    graph.register_initializer(joined)
    return joined


def _node(op: str, inputs: Sequence[ir.Value], siblings: Sequence[_Sibling], count: int, **attributes: int) -> ir.Node:
    """A node that is named as what it stands for."""
    import onnx_ir as ir

    name = siblings[0].product.name or siblings[0].product.op_type
    given = [ir.AttrInt64(key, value) for key, value in attributes.items()]
    return ir.Node("", op, inputs, given, num_outputs=count, name=name)
