"""Moves quantization up and dequantization down over operators that only move values, and drops what cancels.

Between them the data then stays in its narrow type: DQ -> Reshape -> Q becomes Reshape. Every step is exact. Moving
values and quantizing each of them alone can be done in either order; the largest of some values stays the largest when
all are quantized with one positive scale; and quantizing what was dequantized with the same scale gives it back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Final

import onnx
import onnx_ir as ir

from dovetail.errors import InternalError
from dovetail.passes._graph import constant_array, is_onnx, layer_name, names_in, replace_output, walk_graphs
from dovetail.passes._match import dims_of, int_attribute, one_reader, producer_of
from dovetail.passes.base import Pass, PassResult
from dovetail.passes.opsets import model_opset

__all__ = ["QDQPlacement"]

_MOVING: Final = (
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
    "SpaceToDepth",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
)
"""Operators whose output has values of their first input and no others."""
_CHOOSING: Final = ("MaxPool",)
"""Operators whose output has the largest of some values of their first input."""
_QUANTIZING: Final = ("QuantizeLinear", "DequantizeLinear")
_NARROW: Final = (ir.DataType.INT8, ir.DataType.UINT8)
_NOTE: Final = "dovetail."
_LEAST_SCALE, _MOST_SCALE = 1e-30, 1e30
"""Outside of these, a value that is scaled and scaled back need not be the same."""


@dataclass(frozen=True)
class _Move:
    """What a quantizing node can do: go before an operator, or after one, or away."""

    kind: str
    node: ir.Node
    other: ir.Node


class QDQPlacement(Pass):
    """Places QuantizeLinear early, DequantizeLinear late, and removes pairs that cancel.

    Only whole tensors with one scale are looked at, in eight bits.

    Args:
        keep: Names of weights that may be refitted: two of them are never taken to be equal.
    """

    name: ClassVar[str] = "qdq_placement"

    def __init__(self, *, keep: frozenset[str] = frozenset()) -> None:
        self._keep = keep

    def call(self, model: ir.Model) -> PassResult:
        """Move step by step: each step brings a node over one operator, and never back."""
        changed: list[str] = []
        taken = names_in(model)
        for graph in walk_graphs(model.graph):
            while lines := self._sweep(graph, model_opset(model), taken):
                changed += lines
        return PassResult(model=model, changed=changed)

    def ensures(self, model: ir.Model) -> None:
        """Nothing is left that could be moved or dropped."""
        for graph in walk_graphs(model.graph):
            for node in graph:
                if self._find(node, model_opset(model)) is not None:
                    raise InternalError(f"'{layer_name(node)}' was not moved", where=f"pass '{self.name}'")

    def _sweep(self, graph: ir.Graph, opset: int, taken: set[str]) -> list[str]:
        changed = []
        # In order: a value that many pairs come back to is then read by each of them once, and not again for the next.
        waiting = deque(node for node in graph if is_onnx(node, *_QUANTIZING))
        while waiting:
            node = waiting.popleft()
            move = self._find(node, opset) if node.graph is graph else None
            if move is not None:
                changed.append(_describe(move))
                waiting.extendleft(_apply(graph, move, taken))
        return changed

    def _find(self, node: ir.Node, opset: int) -> _Move | None:
        if not is_onnx(node, *_QUANTIZING) or not _is_plain(node) or _is_noted(node):
            return None
        if node.op_type == "DequantizeLinear":
            return self._find_down(node, opset)
        before = producer_of(node.inputs[0], "DequantizeLinear")
        if before is not None and _is_plain(before) and self._is_inverse(before, node):
            return None if node.outputs[0].is_graph_output() else _Move("drop", node, before)
        return self._find_up(node, opset)

    def _find_up(self, quantize: ir.Node, opset: int) -> _Move | None:
        other = producer_of(quantize.inputs[0], *_MOVING, *_CHOOSING)
        if other is None or other.graph is not quantize.graph or len(other.outputs) != 1 or _is_noted(other):
            return None
        if (
            one_reader(other.outputs[0], "QuantizeLinear") is not quantize
            or constant_array(other.inputs[0]) is not None
        ):
            return None
        return _Move("up", quantize, other) if self._carries(other, quantize, quantize.outputs[0], opset) else None

    def _find_down(self, dequantize: ir.Node, opset: int) -> _Move | None:
        other = one_reader(dequantize.outputs[0], *_MOVING, *_CHOOSING, "Concat")
        if other is None or other.graph is not dequantize.graph or len(other.outputs) != 1 or _is_noted(other):
            return None
        if other.outputs[0].is_graph_output():
            return None
        if other.op_type == "Concat":
            parts = [producer_of(value, "DequantizeLinear") for value in other.inputs]
            if not all(part is not None and self._is_like(part, dequantize) for part in parts):
                return None
        elif other.inputs[0] is not dequantize.outputs[0]:
            return None
        narrow = dequantize.inputs[0]
        return _Move("down", dequantize, other) if self._carries(other, dequantize, narrow, opset) else None

    def _carries(self, other: ir.Node, node: ir.Node, narrow: ir.Value | None, opset: int) -> bool:
        """Whether an operator can work on the narrow type, and means the same there."""
        if narrow is None or narrow.dtype not in _NARROW or not _takes(other.op_type, opset, narrow.dtype):
            return False
        return other.op_type not in _CHOOSING or self._is_positive(node.inputs[1])

    def _is_positive(self, scale: ir.Value | None) -> bool:
        array = constant_array(scale, self._keep)
        return array is not None and bool((array > 0).all())

    def _is_like(self, first: ir.Node, second: ir.Node) -> bool:
        """Whether two nodes dequantize alike, and nobody but one operator reads the first."""
        narrow, other = first.inputs[0], second.inputs[0]
        if narrow is None or other is None or narrow.dtype != other.dtype or first.graph is not second.graph:
            return False
        private = not first.outputs[0].is_graph_output() and len({use.node for use in first.outputs[0].uses()}) == 1
        return private and _is_plain(first) and not _is_noted(first) and self._same_numbers(first, second)

    def _is_inverse(self, dequantize: ir.Node, quantize: ir.Node) -> bool:
        narrow, result = dequantize.inputs[0], quantize.outputs[0]
        if narrow is None or narrow.dtype not in _NARROW or narrow.dtype != result.dtype:
            return False
        scale = constant_array(quantize.inputs[1], self._keep)
        if scale is None or not (_LEAST_SCALE < abs(float(scale.reshape(-1)[0])) < _MOST_SCALE):
            return False
        return self._same_numbers(dequantize, quantize)

    def _same_numbers(self, first: ir.Node, second: ir.Node) -> bool:
        """Whether the scales are equal, and the zero points."""
        return self._is_equal(first.inputs[1], second.inputs[1]) and self._is_equal(
            first.inputs[2] if len(first.inputs) > 2 else None, second.inputs[2] if len(second.inputs) > 2 else None
        )

    def _is_equal(self, first: ir.Value | None, second: ir.Value | None) -> bool:
        if first is second:
            return True
        one, two = self._number(first), self._number(second)
        return one is not None and two is not None and one == two

    def _number(self, value: ir.Value | None) -> float | None:
        """The one number of a scale or a zero point, which is zero when it is not given."""
        if value is None:
            return 0.0
        array = constant_array(value, self._keep)
        return None if array is None or array.size != 1 else float(array.reshape(-1)[0])


def _is_plain(node: ir.Node) -> bool:
    """Whether one scale serves the whole tensor."""
    dims = dims_of(node.inputs[1]) if len(node.inputs) > 1 else None
    return dims in ((), (1,)) and not int_attribute(node, "block_size", 0)


def _is_noted(node: ir.Node) -> bool:
    return any(key.startswith(_NOTE) for value in node.outputs for key in value.metadata_props)


def _takes(op: str, opset: int, dtype: ir.DataType) -> bool:
    """Whether the schema of an operator has a type for its first input."""
    schema = onnx.defs.get_schema(op, opset, "")
    wanted = schema.inputs[0].type_str
    allowed = next((each.allowed_type_strs for each in schema.type_constraints if each.type_param_str == wanted), ())
    return f"tensor({dtype.name.lower()})" in allowed


def _describe(move: _Move) -> str:
    name, other = f"'{layer_name(move.node)}' ({move.node.op_type})", f"'{layer_name(move.other)}'"
    if move.kind == "drop":
        return f"dropped {name}: it undoes {other}"
    return f"moved {name} {'before' if move.kind == 'up' else 'after'} {other}"


def _apply(graph: ir.Graph, move: _Move, taken: set[str]) -> list[ir.Node]:
    """Make a move; what comes back are quantizing nodes that may be able to move now."""
    if move.kind == "drop":
        ir.convenience.replace_all_uses_with(move.node.outputs[0], _first(move.other))
        graph.remove(move.node, safe=True)
        if not move.other.outputs[0].uses() and not move.other.outputs[0].is_graph_output():
            graph.remove(move.other, safe=True)
        return [move.other]
    return _move_up(graph, move, taken) if move.kind == "up" else _move_down(graph, move, taken)


def _move_up(graph: ir.Graph, move: _Move, taken: set[str]) -> list[ir.Node]:
    quantize, other, source = move.node, move.other, _first(move.other)
    early = _copy(quantize, [source, *quantize.inputs[1:]])
    _type(early.outputs[0], f"{source.name}_quantized", quantize.outputs[0].dtype, source.shape, taken)
    late = _copy(other, [early.outputs[0], *other.inputs[1:]])
    graph.insert_before(quantize, [early, late])
    replace_output(quantize.outputs[0], late.outputs[0])
    graph.remove([quantize, other], safe=True)
    return [early]


def _move_down(graph: ir.Graph, move: _Move, taken: set[str]) -> list[ir.Node]:
    dequantize, other = move.node, move.other
    parts = [dequantize] if other.op_type != "Concat" else [_maker(value) for value in other.inputs]
    rest = () if other.op_type == "Concat" else other.inputs[1:]
    early = _copy(other, [*map(_first, parts), *rest])
    old = other.outputs[0]
    _type(early.outputs[0], f"{old.name}_quantized", _first(dequantize).dtype, old.shape, taken)
    late = _copy(dequantize, [early.outputs[0], *dequantize.inputs[1:]])
    graph.insert_before(other, [early, late])
    replace_output(old, late.outputs[0])
    graph.remove([other, *dict.fromkeys(parts)], safe=True)
    readers = [use.node for use in late.outputs[0].uses()]
    return [late, *(node for node in readers if is_onnx(node, "QuantizeLinear"))]


def _first(node: ir.Node) -> ir.Value:
    """What a node reads first: quantizing nodes and those they move over always read something."""
    value = node.inputs[0]
    if value is None:
        raise InternalError(f"node '{node.name}' has no first input", where="pass 'qdq_placement'")
    return value


def _maker(value: ir.Value | None) -> ir.Node:
    node = None if value is None else value.producer()
    if node is None:
        raise InternalError("an input of Concat is made by nothing", where="pass 'qdq_placement'")
    return node


def _copy(node: ir.Node, inputs: list[ir.Value | None]) -> ir.Node:
    attributes = list(node.attributes.values())
    new = ir.Node(node.domain, node.op_type, inputs, attributes, num_outputs=1, name=node.name)
    new.metadata_props.update(node.metadata_props)
    new.meta.update(node.meta)
    return new


def _type(value: ir.Value, name: str, dtype: ir.DataType | None, shape: ir.Shape | None, taken: set[str]) -> None:
    unique, count = name, 2
    while unique in taken:
        unique, count = f"{name}_{count}", count + 1
    taken.add(unique)
    value.name, value.shape = unique, shape
    value.type = None if dtype is None else ir.TensorType(dtype)
