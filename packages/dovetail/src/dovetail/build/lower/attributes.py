"""Attributes of ONNX nodes as plain values, and as records of a plan."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from dovetail.build.lower.blobs import BlobTable
from dovetail.errors import UnsupportedOpError
from dovetail.network.value_types import describe_type
from dovetail.plan.attributes import encode_attribute
from dovetail.plan.manifest import AttributeRecord

__all__ = ["attribute_records", "attribute_values"]

_PLAIN = {
    ir.AttributeType.INT: int,
    ir.AttributeType.FLOAT: float,
    ir.AttributeType.STRING: str,
}
_LISTS = {
    ir.AttributeType.INTS: int,
    ir.AttributeType.FLOATS: float,
    ir.AttributeType.STRINGS: str,
}


def attribute_values(node: ir.Node) -> dict[str, Any]:
    """Name -> value of every attribute that is not a graph; tensors stay onnx-ir tensors, types become text."""
    return {
        name: _value(node, attribute)
        for name, attribute in node.attributes.items()
        if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    }


def _value(node: ir.Node, attribute: ir.Attr) -> Any:
    if attribute.type in _PLAIN:
        return _PLAIN[attribute.type](attribute.value)
    if attribute.type in _LISTS:
        return [_LISTS[attribute.type](item) for item in attribute.value]
    if attribute.type == ir.AttributeType.TENSOR:
        return attribute.value
    if attribute.type == ir.AttributeType.TYPE_PROTO and attribute.value.type is not None:
        return describe_type(attribute.value.type)
    raise UnsupportedOpError(
        f"attribute '{attribute.name}' has the type {attribute.type}", where=f"node '{node.name}' ({node.op_type})"
    )


def attribute_records(node: ir.Node, blobs: BlobTable) -> list[AttributeRecord]:
    """The records a step stores; tensors become blobs."""
    records = []
    for name, value in attribute_values(node).items():
        if isinstance(value, ir.TensorProtocol):
            blob = blobs.add_constant(f"{node.name}.{name}", value)
            records.append(AttributeRecord(name=name, type="tensor", value=blob))
        else:
            records.append(encode_attribute(name, value))
    return records
