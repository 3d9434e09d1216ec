"""The layers of a graph in order, each with the provider that runs it: what the rest of the builder works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import onnx_ir as ir

from dovetail.build.assign.shape_sources import (
    body_graphs,
    is_constant_node,
    is_constant_value,
    is_of_shapes,
    needs_run,
)
from dovetail.build.lower.attributes import attribute_values
from dovetail.network.inference.symbols import is_told_by_run
from dovetail.network.onnx_schema import find_schema
from dovetail.network.plugins import PluginEntry, entry_of
from dovetail.network.value_types import describe_type, has_no_shape
from dovetail.provider.interfaces import NodeView

__all__ = ["ASSIGNED_KEY", "CONTROL_FLOW", "NodeLayer", "body_graphs", "is_constant_node", "layer_name", "opset_of"]

ASSIGNED_KEY: Final = "dovetail.provider"
"""Where a node's metadata names the provider it was given to."""
CONTROL_FLOW: Final = frozenset(("If", "Loop", "Scan"))


@dataclass(frozen=True)
class NodeLayer:
    """A node as providers see it, and what kind of step it becomes."""

    node: ir.Node
    provider: str
    opsets: Mapping[str, int]
    """What the model imports."""

    @property
    def opset(self) -> int:
        """The opset version of the node's operator."""
        return opset_of(self.opsets, self.domain)

    @property
    def name(self) -> str:
        """The layer's name."""
        return layer_name(self.node)

    @property
    def op(self) -> str:
        """The operator."""
        return self.node.op_type

    @property
    def domain(self) -> str:
        """The operator's domain; the ONNX domain is empty."""
        return "" if self.node.domain == "ai.onnx" else self.node.domain

    @property
    def entry(self) -> PluginEntry | None:
        """The plugin, when the layer is one."""
        return entry_of(self.node)

    @property
    def is_control(self) -> bool:
        """Whether the layer has bodies."""
        return self.domain == "" and self.op in CONTROL_FLOW

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes by name."""
        return attribute_values(self.node)

    @property
    def input_types(self) -> Sequence[str | None]:
        """NumPy names of the input types; sequences and optionals as ONNX writes them."""
        return [_type_name(value) for value in self.node.inputs]

    @property
    def output_types(self) -> Sequence[str | None]:
        """The same for outputs."""
        return [_type_name(value) for value in self.node.outputs]

    @property
    def input_shapes(self) -> Sequence[Sequence[int | str] | None]:
        """For each input its dims, numbers or texts that are equal where the dims are; None where unknown."""
        return [_shape(value) for value in self.node.inputs]

    @property
    def types(self) -> Mapping[str, str]:
        """The types of inputs and outputs by the constraint of the schema they are under."""
        schema = find_schema(self.op, self.domain, self.opset)
        found: dict[str, str] = {}
        if schema is not None:
            for formals, names in ((schema.inputs, self.input_types), (schema.outputs, self.output_types)):
                for position, name in enumerate(names):
                    formal = formals[min(position, len(formals) - 1)] if formals else None
                    if formal is not None and formal.is_homogeneous and name is not None:
                        found.setdefault(formal.type_str, name)
        return found

    @property
    def constants(self) -> frozenset[int]:
        """The positions of inputs that are weights."""
        inputs = enumerate(self.node.inputs)
        return frozenset(i for i, value in inputs if value is not None and is_constant_value(value))

    @property
    def shape_inputs(self) -> frozenset[int]:
        """The positions of inputs that are computed of shapes and weights alone."""
        return frozenset(i for i, v in enumerate(self.node.inputs) if v is not None and is_of_shapes(v))

    def read_constant(self, position: int) -> Any:
        """The array of an input that is a weight; None of another."""
        value = self.node.inputs[position] if position < len(self.node.inputs) else None
        tensor = None if value is None else ir.convenience.get_const_tensor(value)
        return None if tensor is None else tensor.numpy()

    @property
    def bodies(self) -> Sequence[Sequence[NodeView]]:
        """The nodes of each body of control flow."""
        return [
            [NodeLayer(node, self.provider, self.opsets) for node in graph if not is_constant_node(node)]
            for graph in body_graphs(self.node)
        ]

    @property
    def is_assigned(self) -> bool:
        """Whether an earlier round gave the node to its provider."""
        return self.node.metadata_props.get(ASSIGNED_KEY) == self.provider


def _type_name(value: ir.Value | None) -> str | None:
    if value is None or value.dtype is None:
        return None
    return describe_type(value.type) if has_no_shape(value) and value.type is not None else _numpy_name(value.dtype)


@cache
def _numpy_name(dtype: ir.DataType) -> str:
    return dtype.numpy().name


def _shape(value: ir.Value | None) -> list[int | str] | None:
    if value is None or value.shape is None:
        return None
    # A dim without a name is like no other.
    dims = [d if isinstance(d, int) else str(d.value or f"?{id(d)}") for d in value.shape.dims]
    told = [isinstance(dim, str) and is_told_by_run(dim) for dim in dims]
    if any(told) and needs_run(value):
        return [f"?{dim}" if is_told else dim for dim, is_told in zip(dims, told, strict=True)]
    return dims


def layer_name(node: ir.Node) -> str:
    """The name users know a node by."""
    return node.metadata_props.get("dovetail.layer") or node.name or node.op_type


def opset_of(opsets: Mapping[str, int], domain: str) -> int:
    """The opset version that a model imports of a domain."""
    return opsets.get(domain, opsets.get("ai.onnx", 1) if domain == "" else 1)
