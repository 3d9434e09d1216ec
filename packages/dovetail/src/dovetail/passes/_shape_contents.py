"""What is known of the contents of shape tensors: numbers, and names of dimensions where there are no numbers.

A shape that a model computes is a chain of Shape, Gather, Slice, Concat and a little arithmetic. Following it with
the sizes that shape inference found says which of its elements are constant and which are the size of what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import onnx_ir as ir

from dovetail.passes._graph import constant_array, is_onnx
from dovetail.passes._match import Dim, dims_of, int_attribute, ints_of, normalize_axis, rank_of

__all__ = ["ShapeContents"]

Contents = tuple[Dim, ...]

_MAX_ELEMENTS: Final = 32
"""Longer tensors of integers are no shapes."""
_INTEGERS: Final = (ir.DataType.INT64, ir.DataType.INT32)


class ShapeContents:
    """The contents of small integer tensors, learned node by node in order.

    Args:
        keep: Names of constants whose contents may change.
    """

    def __init__(self, keep: frozenset[str]) -> None:
        self._keep = keep
        self._known: dict[ir.Value, Contents] = {}

    def of(self, value: ir.Value | None) -> Contents | None:
        """The elements of a tensor in order, or None when nothing is known of them."""
        if value is None:
            return None
        if value not in self._known:
            array = constant_array(value, self._keep) if value.dtype in _INTEGERS else None
            if array is None or array.size > _MAX_ELEMENTS:
                return None
            self._known[value] = tuple(int(number) for number in array.reshape(-1))
        return self._known[value]

    def learn(self, node: ir.Node) -> Contents | None:
        """Work out what a node makes from what is known of its inputs."""
        learn = _LEARN.get(node.op_type) if is_onnx(node, node.op_type) else None
        if learn is None or len(node.outputs) != 1 or node.outputs[0].dtype not in _INTEGERS:
            return None
        contents = learn(self, node)
        if contents is None or len(contents) > _MAX_ELEMENTS:
            return None
        self._known[node.outputs[0]] = contents
        return contents


def _shape(_known: ShapeContents, node: ir.Node) -> Contents | None:
    dims = dims_of(node.inputs[0])
    if dims is None:
        return None
    end = node.attributes.get("end")
    return dims[slice(int_attribute(node, "start", 0), None if end is None else end.as_int())]


def _same(known: ShapeContents, node: ir.Node) -> Contents | None:
    return known.of(node.inputs[0])


def _gather(known: ShapeContents, node: ir.Node) -> Contents | None:
    contents, indices = known.of(node.inputs[0]), ints_of(node.inputs[1])
    if contents is None or indices is None or rank_of(node.inputs[0]) != 1:
        return None
    if not all(-len(contents) <= index < len(contents) for index in indices):
        return None
    return tuple(contents[index] for index in indices)


def _slice(known: ShapeContents, node: ir.Node) -> Contents | None:
    contents = known.of(node.inputs[0])
    if contents is None or rank_of(node.inputs[0]) != 1 or len(node.inputs) < 3:
        return None
    given = [ints_of(value) for value in node.inputs[1:]]
    if any(numbers is None or len(numbers) != 1 for numbers in given):
        return None
    numbers = [numbers[0] for numbers in given if numbers]
    step = numbers[3] if len(numbers) > 3 else 1
    return contents[slice(numbers[0], numbers[1], step)] if step > 0 else None


def _concat(known: ShapeContents, node: ir.Node) -> Contents | None:
    parts = [known.of(value) for value in node.inputs]
    if any(part is None for part in parts) or any(rank_of(value) != 1 for value in node.inputs):
        return None
    return tuple(dim for part in parts if part is not None for dim in part)


def _arithmetic(compute: Callable[[int, int], int]) -> Callable[[ShapeContents, ir.Node], Contents | None]:
    def learn(known: ShapeContents, node: ir.Node) -> Contents | None:
        first, second = known.of(node.inputs[0]), known.of(node.inputs[1])
        if first is None or second is None or max(_ranks(node.inputs)) > 1:
            return None
        if 1 not in (len(first), len(second)) and len(first) != len(second):
            return None
        count = max(len(first), len(second)) if first and second else 0
        pairs = zip(_repeat(first, count), _repeat(second, count), strict=True)
        return tuple(
            compute(one, two) if isinstance(one, int) and isinstance(two, int) else ir.SymbolicDim(None)
            for one, two in pairs
        )

    return learn


def _ranks(values: Sequence[ir.Value | None]) -> list[int]:
    return [2 if (rank := rank_of(value)) is None else rank for value in values]


def _repeat(contents: Contents, count: int) -> Contents:
    return contents * count if len(contents) == 1 else contents


_LEARN: Final[dict[str, Callable[[ShapeContents, ir.Node], Contents | None]]] = {
    "Shape": _shape,
    "Gather": lambda known, node: (
        _gather(known, node) if normalize_axis(int_attribute(node, "axis", 0), 1) == 0 else None
    ),
    "Slice": _slice,
    "Concat": _concat,
    "Add": _arithmetic(lambda one, two: one + two),
    "Sub": _arithmetic(lambda one, two: one - two),
    "Mul": _arithmetic(lambda one, two: one * two),
    **dict.fromkeys(("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"), _same),
}
