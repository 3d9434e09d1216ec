"""The sizes that a partition usually has, and the work of its nodes at them; for what plans tell of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.provider.costs import Sizes, count_operations
from dovetail.tensors import ShapeRange

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["count_node", "find_usual_sizes", "usual_shape"]


def find_usual_sizes(model: ir.Model, shapes: Mapping[str, ShapeRange]) -> dict[str, int]:
    """The sizes that the names of dimensions usually stand for."""
    sizes: dict[str, int] = {}
    for value in model.graph.inputs:
        known = shapes.get(value.name or "")
        if known is not None and value.shape is not None and len(known.opt) == value.shape.rank():
            pairs = zip(value.shape.dims, known.opt, strict=True)
            sizes.update({str(dim.value): size for dim, size in pairs if not isinstance(dim, int) and dim.value})
    return sizes


def usual_shape(value: ir.Value, sizes: Mapping[str, int]) -> Sequence[int | None] | None:
    """The shape of a tensor, None for sizes that are not known, and where not even the rank is."""
    if value.shape is None:
        return None
    return [dim if isinstance(dim, int) else sizes.get(str(dim.value)) for dim in value.shape.dims]


def count_node(node: ir.Node, sizes: Mapping[str, int]) -> int | None:
    """The operations of a node; None where its operator or a shape that it needs is not known."""

    def measure(value: ir.Value | None) -> Sizes:
        shape = None if value is None else usual_shape(value, sizes)
        known = None if shape is None else [size for size in shape if size is not None]
        return known if shape is not None and known is not None and len(known) == len(shape) else None

    if node.domain not in ("", "ai.onnx") or not node.outputs:
        return None
    attributes = {name: each.value for name, each in node.attributes.items() if each.type.name in ("INT", "INTS")}
    return count_operations(
        node.op_type, [measure(value) for value in node.inputs], measure(node.outputs[0]), attributes
    )
