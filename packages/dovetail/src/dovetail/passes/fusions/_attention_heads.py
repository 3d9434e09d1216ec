"""How attention heads lie in a tensor: on an axis of their own, side by side, or shared by a group of queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from dovetail.passes._match import (
    Dim,
    dims_of,
    int_attribute,
    ints_attribute,
    ints_of,
    one_reader,
    producer_of,
    same_dims,
)

__all__ = [
    "KEYS_FROM_ROWS",
    "SWAP_HEADS",
    "HeadLayout",
    "HeadSource",
    "Joined",
    "count_heads",
    "flatten_heads",
    "join_heads",
    "ungroup",
]

SWAP_HEADS: Final = [0, 2, 1, 3]
"""Between batch, sequence, heads, features and batch, heads, sequence, features."""
KEYS_FROM_ROWS: Final = [0, 2, 3, 1]
"""From batch, sequence, heads, features to batch, heads, features, sequence."""


@dataclass(frozen=True)
class HeadLayout:
    """A tensor of heads: batch, heads, sequence, features, or with sequence and heads the other way round."""

    value: ir.Value
    is_rows: bool

    def dims(self) -> tuple[Dim, ...] | None:
        """The sizes with heads before the sequence."""
        dims = dims_of(self.value)
        if dims is None or not self.is_rows or len(dims) != 4:
            return dims
        return tuple(dims[axis] for axis in SWAP_HEADS)


@dataclass(frozen=True)
class HeadSource:
    """What a tensor of heads is made from, and the nodes that make it."""

    layout: HeadLayout
    nodes: tuple[ir.Node, ...]


@dataclass(frozen=True)
class Joined:
    """Where the heads of a result are side by side again."""

    root: ir.Node
    nodes: tuple[ir.Node, ...]
    shape: ir.Shape


def count_heads(layout: HeadLayout) -> int:
    """How many heads there are; the caller has checked that it is a number."""
    dims = layout.dims() or (0, 0)
    return dims[1] if isinstance(dims[1], int) else 0


def ungroup(layout: HeadLayout) -> HeadSource | None:
    """Keys or values before each of their heads was repeated for the queries of its group."""
    reshape = None if layout.is_rows else producer_of(layout.value, "Reshape")
    expand = None if reshape is None else producer_of(reshape.inputs[0], "Expand")
    insert = None if expand is None else producer_of(expand.inputs[0], "Unsqueeze", "Reshape")
    source = None if insert is None else insert.inputs[0]
    dims, wide, repeated = dims_of(source), dims_of(expand.outputs[0] if expand else None), layout.dims()
    if dims is None or wide is None or repeated is None or len(dims) != 4 or len(wide) != 5 or len(repeated) != 4:
        return None
    batch, heads, sequence, features = dims
    group = wide[2]
    if not isinstance(heads, int) or not isinstance(group, int) or source is None:
        return None
    before = dims_of(expand.inputs[0] if expand else None)
    if not same_dims(before, (batch, heads, 1, sequence, features)) or not same_dims(wide, _repeat(dims, group)):
        return None
    if not same_dims(repeated, (batch, heads * group, sequence, features)):
        return None
    nodes = tuple(node for node in (reshape, expand, insert) if node is not None)
    return HeadSource(HeadLayout(source, False), nodes)


def _repeat(dims: tuple[Dim, ...], group: int) -> tuple[Dim, ...]:
    return (*dims[:2], group, *dims[2:])


def flatten_heads(layout: HeadLayout) -> HeadSource | None:
    """A tensor of heads before its heads were parted: batch, sequence, all features."""
    transpose = None if layout.is_rows else producer_of(layout.value, "Transpose")
    if not layout.is_rows and (transpose is None or ints_attribute(transpose, "perm") != SWAP_HEADS):
        return None
    rows = layout.value if transpose is None else transpose.inputs[0]
    reshape = producer_of(rows, "Reshape")
    source = None if reshape is None else reshape.inputs[0]
    flat, dims = dims_of(source), dims_of(rows)
    if reshape is None or source is None or flat is None or dims is None or len(dims) != 4:
        return None
    heads, features = dims[2:]
    if not isinstance(heads, int) or not isinstance(features, int):
        return None
    if not same_dims(flat, (*dims[:2], heads * features)):
        return None
    return HeadSource(HeadLayout(source, False), (reshape,) if transpose is None else (reshape, transpose))


def join_heads(product: ir.Node) -> Joined | None:
    """Where the heads of a product go side by side: a transpose, and a reshape unless that does more."""
    transpose = one_reader(product.outputs[0], "Transpose")
    dims = None if transpose is None else dims_of(transpose.outputs[0])
    if transpose is None or dims is None or len(dims) != 4 or ints_attribute(transpose, "perm") != SWAP_HEADS:
        return None
    heads, features = dims[2:]
    reshape = one_reader(transpose.outputs[0], "Reshape")
    if reshape is None or not isinstance(heads, int) or not isinstance(features, int):
        return None
    flat = (*dims[:2], heads * features)
    if same_dims(dims_of(reshape.outputs[0]), flat):
        return Joined(reshape, (transpose, reshape), ir.Shape(flat))
    sizes = ints_of(reshape.inputs[1])
    if sizes is None or (0 in sizes and not int_attribute(reshape, "allowzero", 0)):
        return None  # a size that is copied from the axis of the heads would be another afterwards
    return Joined(transpose, (transpose,), ir.Shape(flat))
