"""Where over shapes: exporters keep -1 out of the target of an Expand by a choice that is always the same."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from dovetail.network.inference.context import BoundedContext, find_inputs
from dovetail.network.inference.dim_exprs import Dim

__all__ = ["correct_choice"]


def correct_choice(context: BoundedContext, node: ir.Node) -> bool:
    """The contents of a Where whose condition compares sizes with numbers, where that is known for each of them."""
    condition, first, second = find_inputs(node, 3)
    if condition is None or first is None or second is None:
        return False
    known = [_compare(context, condition), context.get_symbolic_value(first), context.get_symbolic_value(second)]
    length = max((len(each) for each in known if each is not None), default=0)
    if any(each is None or len(each) not in (1, length) for each in known) or node.outputs[0].shape is None:
        return False
    answers, ones, others = (_repeat(each or [], length) for each in known)
    chosen = [one if is_one else other for is_one, one, other in zip(answers, ones, others, strict=True)]
    if first.dtype is not None:
        context.set_dtype(node.outputs[0], first.dtype)
    context.set_symbolic_value(node.outputs[0], chosen)
    return True


def _repeat(contents: Sequence[Dim], length: int) -> list[Dim]:
    return list(contents) * length if len(contents) == 1 else list(contents)


def _compare(context: BoundedContext, condition: ir.Value) -> list[Dim] | None:
    """1 or 0 for each element of an Equal; None where one is not known."""
    node = condition.producer()
    if node is None or node.op_type != "Equal" or node.domain not in ("", "ai.onnx"):
        return None
    first, second = (None if value is None else context.get_symbolic_value(value) for value in node.inputs)
    if first is None or second is None or (1 not in (len(first), len(second)) and len(first) != len(second)):
        return None
    length = max(len(first), len(second))
    pairs = zip(_repeat(first, length), _repeat(second, length), strict=True)
    answers = [_is_equal(context, one, two) for one, two in pairs]
    return None if None in answers else [int(bool(answer)) for answer in answers]


def _is_equal(context: BoundedContext, one: Dim, two: Dim) -> bool | None:
    """Whether two sizes are the same; no size of a tensor is negative, but what callers pass may be."""
    if isinstance(one, int) and isinstance(two, int):
        return one == two
    number, size = (one, two) if isinstance(one, int) else (two, one)
    if isinstance(number, int):
        return False if number < 0 and not context.is_given(size) and _is_named(size) else None
    return True if _is_named(one) and one == two else None


def _is_named(dim: Dim) -> bool:
    return isinstance(dim, int) or dim.value is not None
