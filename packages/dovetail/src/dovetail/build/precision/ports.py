"""Which inputs and outputs of a node change their type when the node computes in a narrow float type.

The schema of the operator decides: a position is narrow where it is FP32 now and the operator takes the narrow type
there. An output is narrow only where an input under the same type constraint is, or where an attribute that this
package rewrites says its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx_ir as ir

from dovetail.build.assign.layers import CONTROL_FLOW, opset_of
from dovetail.network.onnx_schema import find_schema
from dovetail.network.plugins import PluginEntry, entry_of
from dovetail.network.value_types import has_no_shape
from dovetail.passes.editing import is_onnx

__all__ = ["NODE_TYPE_NAMES", "Ports", "find_ports", "is_float", "writes_type"]

NODE_TYPE_NAMES: Final = {ir.DataType.FLOAT16: "tensor(float16)", ir.DataType.BFLOAT16: "tensor(bfloat16)"}
_TYPE_ATTRIBUTES: Final = ("dtype", "output_datatype", "output_dtype")
_WIDE: Final[Mapping[str, frozenset[str]]] = {
    "Resize": frozenset(("T2",)),  # a region of interest, in coordinates
    "QuantizeLinear": frozenset(("T1", "T2", "T3")),
    "DequantizeLinear": frozenset(("T1", "T2", "T3")),
}
"""Type constraints of operators that stay in FP32."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The positions of inputs and outputs that become narrow, or why none can."""

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()
    refusal: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether the node has no FP32 tensor at all."""
        return not self.inputs and not self.outputs and not self.refusal


def is_float(value: ir.Value | None) -> bool:
    """Whether a value is a tensor of FP32."""
    return value is not None and value.dtype == ir.DataType.FLOAT and not has_no_shape(value)


def writes_type(node: ir.Node) -> bool:
    """Whether an attribute that can be rewritten says the type of the output."""
    return is_onnx(node, "Cast", "ConstantOfShape")


def find_ports(node: ir.Node, opsets: Mapping[str, int], dtype: ir.DataType) -> Ports:
    """The ports of a node for a narrow type."""
    if not any(is_float(value) for value in (*node.inputs, *node.outputs)):
        return Ports()
    entry = entry_of(node)
    if entry is not None:
        return _ports_of_plugin(node, entry)
    if is_onnx(node, *CONTROL_FLOW):
        return Ports(refusal="control flow and its bodies stay in fp32")
    if any(name in node.attributes for name in _TYPE_ATTRIBUTES):
        return Ports(refusal="an attribute says its type")
    domain = "" if node.domain == "ai.onnx" else node.domain
    schema = find_schema(node.op_type, domain, opset_of(opsets, domain))
    if schema is None:
        return Ports(refusal=f"the types that {node.op_type} takes are not known")
    return _ports_of_schema(node, schema, dtype)


def _ports_of_plugin(node: ir.Node, entry: PluginEntry) -> Ports:
    inputs = frozenset(i for i, value in enumerate(node.inputs[: entry.num_inputs]) if is_float(value))
    return Ports(inputs=inputs, outputs=frozenset(i for i, value in enumerate(node.outputs) if is_float(value)))


def _ports_of_schema(node: ir.Node, schema: Any, dtype: ir.DataType) -> Ports:
    wide = _WIDE.get(node.op_type, frozenset()) if is_onnx(node, node.op_type) else frozenset()
    inputs = {i: f for i, f in _formals(node.inputs, schema.inputs) if _takes(f, dtype) and f.type_str not in wide}
    bound = {formal.type_str for formal in inputs.values()}
    is_written = writes_type(node)
    outputs = frozenset(
        i
        for i, formal in _formals(node.outputs, schema.outputs)
        if _takes(formal, dtype) and (is_written or formal.type_str in bound)
    )
    if inputs or outputs:
        return Ports(inputs=frozenset(inputs), outputs=outputs)
    return Ports(refusal=f"{node.op_type} takes no {dtype.name.lower()}")


def _formals(values: Sequence[ir.Value | None], formals: Sequence[Any]) -> list[tuple[int, Any]]:
    """The FP32 values with what the schema says of their positions."""
    last = len(formals) - 1
    return [(i, formals[min(i, last)]) for i, value in enumerate(values) if last >= 0 and is_float(value)]


def _takes(formal: Any, dtype: ir.DataType) -> bool:
    """Whether a position takes the type; one with a fixed type has no constraint to choose from."""
    return NODE_TYPE_NAMES[dtype] in formal.types and not formal.type_str.startswith("tensor(")
