"""Where values and their shapes come from: weights, shapes of other values, or what only a run computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import onnx_ir as ir

from dovetail.network.inference.symbols import is_told_by_run
from dovetail.network.plugins import PLUGIN_DOMAIN
from dovetail.provider.schemas.shape_slots import SHAPE_SOURCES, shape_slots

__all__ = ["body_graphs", "is_constant_node", "is_constant_value", "is_of_shapes", "needs_run"]

_COUNTING: Final = frozenset(("Compress", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"))
"""Operators whose results are as long as the contents of their inputs make them."""


def body_graphs(node: ir.Node) -> list[ir.Graph]:
    """The bodies of a node, in the order of its attributes."""
    return [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]


def is_constant_value(value: ir.Value) -> bool:
    """Whether a value is a weight."""
    producer = value.producer()
    return value.const_value is not None if producer is None else is_constant_node(producer)


def is_constant_node(node: ir.Node) -> bool:
    """Whether a node is a weight written as a node."""
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx") and node.domain != PLUGIN_DOMAIN


def is_of_shapes(value: ir.Value) -> bool:
    """Whether a value is computed of shapes and weights alone, and is no weight itself."""

    def judge(each: ir.Value) -> bool | None:
        maker = each.producer()
        if maker is None or body_graphs(maker):
            return False
        return True if _is_onnx(maker) and maker.op_type in SHAPE_SOURCES else None

    def join(answers: list[bool]) -> bool:
        return bool(answers) and all(answers)

    return _trace(value, judge, join, lambda each: [v for v in _inputs(each) if not is_constant_value(v)])


def needs_run(value: ir.Value) -> bool:
    """Whether a run must come before the shape of a value is known.

    Shape inference gives up where it cannot follow; a shape still needs no run where all it is made of are shapes.
    """

    def judge(each: ir.Value) -> bool | None:
        if each.shape is not None and not any(_is_told(dim) for dim in each.shape):
            return False
        maker = each.producer()
        if maker is None or body_graphs(maker) or not _is_onnx(maker) or maker.op_type in _COUNTING:
            return True
        slots = [maker.inputs[slot] for slot in shape_slots(maker.op_type, maker.domain) if slot < len(maker.inputs)]
        is_computed = any(v is not None and not is_constant_value(v) and not is_of_shapes(v) for v in slots)
        return True if is_computed else None

    return _trace(value, judge, any, _inputs)


def _trace(
    value: ir.Value,
    judge: Callable[[ir.Value], bool | None],
    join: Callable[[list[bool]], bool],
    list_sources: Callable[[ir.Value], list[ir.Value]],
) -> bool:
    """The answer for a value: its own, or where it has none that of all it is made of, joined."""
    known: dict[ir.Value, bool] = {}
    waiting = [value]
    while waiting:
        each = waiting[-1]
        answer = known.get(each)
        answer = judge(each) if answer is None else answer
        if answer is None:
            sources = list_sources(each)
            unknown = [source for source in sources if source not in known]
            if unknown:
                waiting += unknown
                continue
            answer = join([known[source] for source in sources])
        known[each] = answer
        waiting.pop()
    return known[value]


def _inputs(value: ir.Value) -> list[ir.Value]:
    maker = value.producer()
    return [] if maker is None else [each for each in maker.inputs if each is not None]


def _is_onnx(node: ir.Node) -> bool:
    return node.domain in ("", "ai.onnx")


def _is_told(dim: int | ir.SymbolicDim) -> bool:
    return not isinstance(dim, int) and (dim.value is None or is_told_by_run(str(dim.value)))
