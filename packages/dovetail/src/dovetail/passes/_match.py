"""What passes ask of values and nodes when they look for a form: who reads them, their sizes, and scalar contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from dovetail.passes._graph import constant_array, is_onnx

__all__ = [
    "Dim",
    "dims_of",
    "int_attribute",
    "ints_attribute",
    "ints_of",
    "is_float",
    "is_named",
    "is_private",
    "normalize_axis",
    "one_reader",
    "producer_of",
    "rank_of",
    "same_dims",
    "scalar_of",
]

Dim = int | ir.SymbolicDim
_FLOAT_TYPES: Final = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


# who makes and reads a value


def producer_of(value: ir.Value | None, *ops: str) -> ir.Node | None:
    """The node that makes a value as its first output, when it is one of these operators of ONNX."""
    node = None if value is None else value.producer()
    return node if node is not None and node.outputs[0] is value and is_onnx(node, *ops) else None


def is_private(value: ir.Value) -> bool:
    """Whether exactly one input of one node reads a value, and no caller does."""
    return len(value.uses()) == 1 and not value.is_graph_output()


def one_reader(value: ir.Value, *ops: str) -> ir.Node | None:
    """The only node that reads a value, when it is one of these operators and lies in the same graph."""
    if not is_private(value):
        return None
    node = next(iter(value.uses())).node
    return node if is_onnx(node, *ops) and node.graph is value.graph else None


# sizes


def dims_of(value: ir.Value | None) -> tuple[Dim, ...] | None:
    """The sizes of a value; None when even the rank is unknown."""
    return None if value is None or value.shape is None else tuple(map(_number, value.shape.dims))


def _number(dim: Dim) -> Dim:
    """A size as a number when it is one: inference leaves some as expressions that have come to a number."""
    return int(dim.value) if isinstance(dim, ir.SymbolicDim) and dim.value is not None and dim.value.isdigit() else dim


def rank_of(value: ir.Value | None) -> int | None:
    """How many axes a value has, if that is known."""
    return None if value is None or value.shape is None else len(value.shape)


def is_named(dim: Dim) -> bool:
    """Whether a size is a number or an expression, and not just unknown."""
    return isinstance(dim, int) or dim.value is not None


def same_dims(first: Sequence[Dim] | None, second: Sequence[Dim] | None) -> bool:
    """Whether two shapes are equal at every run; unknown sizes are equal to nothing."""
    if first is None or second is None or len(first) != len(second):
        return False
    return all(is_named(a) and a == b for a, b in zip(first, second, strict=True))


def normalize_axis(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return axis + rank if axis < 0 else axis


# contents


def scalar_of(value: ir.Value | None, keep: frozenset[str] = frozenset()) -> float | None:
    """The number that a constant of one element and of at most one axis holds; None when it is none or to be kept."""
    array = constant_array(value, keep)
    if array is None or array.size != 1 or array.ndim > 1 or array.dtype.kind in "USO":
        return None
    return float(array.reshape(())[()])


def ints_of(value: ir.Value | None) -> list[int] | None:
    """The integers that a constant of at most one axis holds."""
    array = constant_array(value)
    if array is None or array.ndim > 1 or not np.issubdtype(array.dtype, np.integer):
        return None
    return [int(number) for number in array.reshape(-1)]


# attributes


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    """An integer attribute, or what the schema says without one."""
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.is_ref() else attribute.as_int()


def ints_attribute(node: ir.Node, name: str) -> list[int] | None:
    """An attribute that is a list of integers, if the node has it."""
    attribute = node.attributes.get(name)
    return None if attribute is None or attribute.is_ref() else [int(number) for number in attribute.as_ints()]


def is_float(value: ir.Value | None) -> bool:
    """Whether a value is of one of the float types that kernels compute in."""
    return value is not None and value.dtype in _FLOAT_TYPES
