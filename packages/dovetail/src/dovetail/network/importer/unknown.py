"""The part of the error about operators that nobody has: which nodes, what they carry, and what to register."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from dovetail.errors import PluginError
from dovetail.network.importer.fields import describe_attribute, field_type_of
from dovetail.network.importer.problems import quote
from dovetail.network.opsets.versions import schema_versions
from dovetail.provider.schemas.contrib_schemas import find_contrib_schema

__all__ = ["UnknownNodes", "describe_unknown", "explain_unknown"]


@dataclass
class UnknownNodes:
    """Nodes that one creator would serve."""

    name: str
    version: str
    namespace: str
    reason: str
    error: PluginError
    control: frozenset[str]
    nodes: list[tuple[ir.Node, str]] = field(default_factory=list)
    """Each with the words that name it in messages."""


def explain_unknown(node: ir.Node, opset: int | None) -> str:
    """Why a node is nothing that Dovetail runs by itself."""
    if opset is None:
        return f"the model does not import an operator set {quote(node.domain)}"
    versions = schema_versions(node.op_type, node.domain)
    if versions and versions[0] > opset:
        return f"ONNX has the operator since version {versions[0]} of the operator set, which the model does not import"
    if find_contrib_schema(node.op_type, node.domain, opset) is not None:
        return "ONNX Runtime has the operator, and no provider here runs it"
    return "no operator set has the operator"


def describe_unknown(group: UnknownNodes) -> tuple[str, str]:
    """What is missing, and how to provide it."""
    attributes = _attributes([node for node, _ in group.nodes], group.control)
    carried = "; ".join(describe_attribute(attribute) for attribute in attributes) or "none"
    what = f"{group.reason}, and {group.error.what} (attributes: {carried}); expected {group.error.expected}"
    return what, f"{group.error.fix}; what fits is {_recipe(group, attributes)}"


def _attributes(nodes: Sequence[ir.Node], control: frozenset[str]) -> list[ir.Attr]:
    """The attributes that any of the nodes has, those that only choose the plugin left out."""
    found: dict[str, ir.Attr] = {}
    for node in nodes:
        for name, attribute in node.attributes.items():
            if name not in control:
                found.setdefault(name, attribute)
    return list(found.values())


def _recipe(group: UnknownNodes, attributes: Sequence[ir.Attr]) -> str:
    fields = ", ".join(f"{quote(a.name)} ({kind})" for a in attributes if (kind := field_type_of(a)) is not None)
    node = group.nodes[0][0]
    counts = f"{len(node.inputs)} input(s) and {len(node.outputs)} output(s)"
    return (
        f"a creator with name {quote(group.name)}, plugin_version {quote(group.version)}, "
        f"plugin_namespace {quote(group.namespace)} and field_names {fields or 'none'}, "
        f"whose plugin takes {counts}"
    )
