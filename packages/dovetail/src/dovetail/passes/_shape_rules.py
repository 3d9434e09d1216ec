"""The rules of shape simplification: what a node that only changes shapes could be instead.

A rule looks at one node and answers with what to write in its place. It changes nothing itself, so the same rules
serve to simplify and to check that nothing was left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir

from dovetail.passes._graph import Array, is_onnx
from dovetail.passes._match import (
    Dim,
    dims_of,
    ints_attribute,
    ints_of,
    is_named,
    producer_of,
    rank_of,
    same_dims,
)
from dovetail.passes._shape_contents import ShapeContents

__all__ = ["Forward", "NodeRewrite", "Simpler", "find_simpler"]

_REORDERING_FREE: Final = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that keep the order of elements and change only how they are counted."""
_MAX_CHAIN: Final = 8
_NO_END: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Forward:
    """The node does nothing: its readers can read this value."""

    value: ir.Value


@dataclass(frozen=True, kw_only=True)
class NodeRewrite:
    """The node can be another: its operator, inputs, where an array is a new constant, and attributes."""

    op: str
    inputs: Sequence[ir.Value | Array]
    ints: dict[str, int] | None = None
    perm: Sequence[int] | None = None
    reshape: Array | None = None
    """The first input goes through a Reshape to these sizes first."""


Simpler = Forward | NodeRewrite


def find_simpler(node: ir.Node, contents: ShapeContents) -> Simpler | None:
    """What a node could be instead, or None when it is simple already."""
    rules = _RULES.get(node.op_type, ()) if is_onnx(node, node.op_type) else ()
    for rule in rules:
        simpler = rule(node, contents)
        if simpler is not None:
            return simpler
    return None


# nodes that do nothing


def _identity(node: ir.Node, _contents: ShapeContents) -> Simpler | None:
    return _forward(node.inputs[0])


def _forward(value: ir.Value | None) -> Forward | None:
    return None if value is None else Forward(value=value)


def _counted_back(node: ir.Node, _contents: ShapeContents) -> Simpler | None:
    """A chain of reshapes that ends in the shape that one of its values had."""
    wanted = dims_of(node.outputs[0])
    value = node.inputs[0]
    for _ in range(_MAX_CHAIN):
        if value is not None and same_dims(dims_of(value), wanted):
            return Forward(value=value)
        producer = producer_of(value, *_REORDERING_FREE)
        if producer is None:
            return None
        value = producer.inputs[0]
    return None


def _opposite_axes(node: ir.Node, _contents: ShapeContents) -> Simpler | None:
    """Squeeze after Unsqueeze of the same axes, or the other way round."""
    other = producer_of(node.inputs[0], "Unsqueeze" if node.op_type == "Squeeze" else "Squeeze")
    if other is None:
        return None
    first, second = _axes_of(other), _axes_of(node)
    if first is None or second is None or min([*first, *second]) < 0:
        return None
    return _forward(other.inputs[0]) if sorted(first) == sorted(second) else None


def _axes_of(node: ir.Node) -> list[int] | None:
    """The axes of Squeeze or Unsqueeze, which were an attribute before opset 13."""
    axes = ints_of(node.inputs[1]) if len(node.inputs) > 1 else ints_attribute(node, "axes")
    return axes or None


def _whole_slice(node: ir.Node, _contents: ShapeContents) -> Simpler | None:
    dims = dims_of(node.inputs[0])
    given = [ints_of(value) for value in node.inputs[1:]]
    if dims is None or len(given) < 2 or any(numbers is None for numbers in given):
        return None
    starts, ends, *rest = [numbers for numbers in given if numbers is not None]
    axes = rest[0] if rest else list(range(len(starts)))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    if any(starts) or any(step != 1 for step in steps):
        return None
    sizes = [dims[axis] for axis in axes]
    whole = [end >= _NO_END or (isinstance(size, int) and end >= size) for end, size in zip(ends, sizes, strict=True)]
    return _forward(node.inputs[0]) if all(whole) else None


def _lone_concat(node: ir.Node, _contents: ShapeContents) -> Simpler | None:
    return _forward(node.inputs[0]) if len(node.inputs) == 1 else None


def _useless_expand(node: ir.Node, contents: ShapeContents) -> Simpler | None:
    sizes, rank = contents.of(node.inputs[1]), rank_of(node.inputs[0])
    ones = sizes is not None and rank is not None and len(sizes) <= rank and all(size == 1 for size in sizes)
    is_same = same_dims(dims_of(node.inputs[0]), dims_of(node.outputs[0]))
    return _forward(node.inputs[0]) if ones or is_same else None


# Transpose


def _transposes(node: ir.Node, _contents: ShapeContents) -> Simpler | None:
    """An order that changes nothing, and two in a row."""
    perm = _perm_of(node)
    if perm is None:
        return None
    if perm == sorted(perm):
        return _forward(node.inputs[0])
    before = producer_of(node.inputs[0], "Transpose")
    first = None if before is None else _perm_of(before)
    if before is None or first is None or before.inputs[0] is None:
        return None
    joined = [first[axis] for axis in perm]
    if joined == sorted(joined):
        return _forward(before.inputs[0])
    return NodeRewrite(op="Transpose", inputs=[before.inputs[0]], perm=joined)


def _perm_of(node: ir.Node) -> list[int] | None:
    perm, rank = ints_attribute(node, "perm"), rank_of(node.inputs[0])
    return perm if perm is not None or rank is None else list(range(rank))[::-1]


# Cast


def _casts(node: ir.Node, _contents: ShapeContents) -> Simpler | None:
    """A cast to the type a value has, and one after another that lost nothing."""
    value, wanted = node.inputs[0], node.outputs[0].dtype
    if value is None or wanted is None or value.dtype is None:
        return None
    if value.dtype == wanted:
        return Forward(value=value)
    before = producer_of(value, "Cast")
    source = None if before is None else before.inputs[0]
    if source is None or source.dtype is None or value.dtype not in _HOLDS.get(source.dtype, ()):
        return None
    if source.dtype == wanted:
        return Forward(value=source)
    return NodeRewrite(op="Cast", inputs=[source], ints={"to": int(wanted)})


_T = ir.DataType
_HOLDS: Final = {
    _T.BOOL: (_T.INT8, _T.INT16, _T.INT32, _T.INT64, _T.UINT8, _T.FLOAT16, _T.FLOAT, _T.DOUBLE),
    _T.INT8: (_T.INT16, _T.INT32, _T.INT64, _T.FLOAT16, _T.FLOAT, _T.DOUBLE),
    _T.UINT8: (_T.INT16, _T.INT32, _T.INT64, _T.FLOAT16, _T.FLOAT, _T.DOUBLE),
    _T.INT16: (_T.INT32, _T.INT64, _T.FLOAT, _T.DOUBLE),
    _T.INT32: (_T.INT64, _T.DOUBLE),
    _T.FLOAT16: (_T.FLOAT, _T.DOUBLE),
    _T.BFLOAT16: (_T.FLOAT, _T.DOUBLE),
    _T.FLOAT: (_T.DOUBLE,),
}
"""Which types have every value of a type."""


# Reshape and Expand


def _reshape_chain(node: ir.Node, _contents: ShapeContents) -> Simpler | None:
    """A reshape of a reshape, unless it copies sizes from in between."""
    before = producer_of(node.inputs[0], *_REORDERING_FREE)
    sizes = ints_of(node.inputs[1])
    source = None if before is None else before.inputs[0]
    if source is None or sizes is None or 0 in sizes:
        return None
    return NodeRewrite(op="Reshape", inputs=[source, np.asarray(sizes, dtype=np.int64)])


def _constant_reshape(node: ir.Node, contents: ShapeContents) -> Simpler | None:
    """A shape that is computed but could be constant: with 0 for a size that is copied, or -1 for the one open size."""
    if ints_of(node.inputs[1]) is not None or node.inputs[0] is None:
        return None
    sizes = _resolve(contents.of(node.inputs[1]), dims_of(node.outputs[0]))
    source = dims_of(node.inputs[0])
    if sizes is None or any(size == 0 for size in sizes):
        return None
    copied = [_copied_size(axis, size, source) for axis, size in enumerate(sizes)]
    if None in copied:  # an open size beside copied ones could be told apart from no size at all only by luck
        copied = [size if isinstance(size, int) else None for size in sizes]
        if copied.count(None) != 1 or -1 in copied:
            return None
    numbers = [-1 if size is None else size for size in copied]
    return NodeRewrite(op="Reshape", inputs=[node.inputs[0], np.asarray(numbers, dtype=np.int64)])


def _resolve(sizes: Sequence[Dim] | None, dims: Sequence[Dim] | None) -> list[Dim] | None:
    """The sizes asked for, with numbers where the result is known to have them."""
    if sizes is None:
        return None
    if dims is None or len(dims) != len(sizes):
        return list(sizes)
    return [
        dim if isinstance(dim, int) and (size == -1 or not isinstance(size, int)) else size
        for size, dim in zip(sizes, dims, strict=True)
    ]


def _copied_size(axis: int, size: Dim, source: Sequence[Dim] | None) -> int | None:
    if isinstance(size, int):
        return size
    return 0 if source is not None and axis < len(source) and is_named(size) and source[axis] == size else None


def _constant_expand(node: ir.Node, contents: ShapeContents) -> Simpler | None:
    """Sizes that the input has already need not be asked for."""
    source, sizes = dims_of(node.inputs[0]), contents.of(node.inputs[1])
    if source is None or sizes is None or node.inputs[0] is None or ints_of(node.inputs[1]) is not None:
        return None
    offset = len(sizes) - len(source)
    numbers = [_expanded_size(source[axis - offset] if axis >= offset else 1, size) for axis, size in enumerate(sizes)]
    if None in numbers:
        return None
    return NodeRewrite(op="Expand", inputs=[node.inputs[0], np.asarray(numbers, dtype=np.int64)])


def _expanded_size(had: Dim, size: Dim) -> int | None:
    if isinstance(size, int):
        return size
    return 1 if is_named(size) and had == size else None


def _transposed_in_stack(node: ir.Node, _contents: ShapeContents) -> Simpler | None:
    """Matrices that are transposed as one stack, between a reshape that merges the axes before and one that parts them.

    That is the last two axes transposed.
    """
    transpose = producer_of(node.inputs[0], "Transpose")
    stack = None if transpose is None else producer_of(transpose.inputs[0], "Reshape")
    result, merged = dims_of(node.outputs[0]), None if stack is None else dims_of(stack.outputs[0])
    if transpose is None or stack is None or result is None or merged is None or stack.inputs[0] is None:
        return None
    if ints_attribute(transpose, "perm") != [0, 2, 1] or len(result) < 3 or not same_dims(result[:-3:-1], merged[1:]):
        return None
    wanted = (*result[:-2], *merged[1:])
    order = list(range(len(result)))
    order[-2:] = order[:-3:-1]
    if same_dims(dims_of(stack.inputs[0]), wanted):
        return NodeRewrite(op="Transpose", inputs=[stack.inputs[0]], perm=order)
    if not all(isinstance(size, int) for size in wanted):
        return None
    return NodeRewrite(op="Transpose", inputs=[stack.inputs[0]], perm=order, reshape=np.asarray(wanted, dtype=np.int64))


Rule = Callable[[ir.Node, ShapeContents], Simpler | None]

_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "Identity": (_identity,),
    "Cast": (_casts,),
    "Concat": (_lone_concat,),
    "Expand": (_useless_expand, _constant_expand),
    "Flatten": (_counted_back,),
    "Reshape": (_counted_back, _transposed_in_stack, _constant_reshape, _reshape_chain),
    "Slice": (_whole_slice,),
    "Squeeze": (_counted_back, _opposite_axes),
    "Transpose": (_transposes,),
    "Unsqueeze": (_counted_back, _opposite_axes),
}
