"""Nodes against the schemas of ONNX and ONNX Runtime: counts of inputs and outputs, attributes, and element types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import onnx
import onnx_ir as ir

from dovetail.near_names import find_near
from dovetail.network.importer.problems import Problems, describe_node, quote
from dovetail.network.node_forms import find_form_problems
from dovetail.network.value_types import describe_type, has_no_shape
from dovetail.provider.schemas.contrib_schemas import find_contrib_schema

__all__ = ["SchemaCheck", "find_schema", "opset_of"]

_OPTION: Final = onnx.defs.OpSchema.FormalParameterOption


def opset_of(opsets: Mapping[str, int], domain: str) -> int | None:
    """The version of a domain that a model imports; None when it imports none."""
    return opsets.get(domain, opsets.get("ai.onnx") if domain == "" else None)


@lru_cache(maxsize=4096)
def find_schema(op: str, domain: str, opset: int) -> Any | None:
    """The schema of an operator at an opset version, ONNX's or ONNX Runtime's, or None when there is none."""
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return find_contrib_schema(op, domain, opset)


class SchemaCheck:
    """Notes what does not fit the schema of each node.

    Args:
        opsets: What the model imports.
        problems: Where to note it.
    """

    def __init__(self, opsets: Mapping[str, int], problems: Problems) -> None:
        self._opsets = opsets
        self._problems = problems

    def schema_of(self, node: ir.Node) -> Any | None:
        """The schema of a node's operator in this model."""
        opset = opset_of(self._opsets, node.domain)
        return None if opset is None else find_schema(node.op_type, node.domain, opset)

    def check(self, node: ir.Node, *, runs: bool = False) -> None:
        """Check the form of one node that has a schema; an operator that was given up is wrong unless it ``runs``."""
        schema: Any = self.schema_of(node)
        if schema.deprecated and not runs:
            self._add(node, f"the operator is deprecated since opset {schema.since_version}")
            return
        self._check_counts(node, schema)
        self._check_attributes(node, schema)
        for what in find_form_problems(node):
            self._add(node, what)

    def _check_counts(self, node: ir.Node, schema: Any) -> None:
        for what, values, low, high in (
            ("inputs", node.inputs, schema.min_input, schema.max_input),
            ("outputs", node.outputs, schema.min_output, schema.max_output),
        ):
            if not low <= len(values) <= high:
                self._add(node, f"it has {len(values)} {what}; expected {low} to {high}")
        for value, formal in zip(node.inputs, schema.inputs, strict=False):
            if value is None and formal.option == _OPTION.Single:
                self._add(node, f"input {quote(formal.name)} is required and absent")
        last = len(schema.inputs) - 1
        if last >= 0 and schema.inputs[last].option == _OPTION.Variadic:
            absent = [last + index for index, value in enumerate(node.inputs[last:]) if value is None]
            if absent:
                what = f"input {absent[0]} is absent; of {quote(schema.inputs[last].name)} none may be"
                self._add(node, what)

    def _check_attributes(self, node: ir.Node, schema: Any) -> None:
        for name, attribute in node.attributes.items():
            known = schema.attributes.get(name)
            if known is None:
                near = find_near(name, schema.attributes, count=1)
                hint = f"; did you mean {quote(near[0])}?" if near else ""
                self._add(node, f"the operator has no attribute {quote(name)}{hint}")
            elif attribute.is_ref():
                self._add(node, f"attribute {quote(name)} refers to an attribute of a function, outside of one")
            elif attribute.type.name != known.type.name:
                self._add(node, f"attribute {quote(name)} is {attribute.type.name}; expected {known.type.name}")
            elif isinstance(attribute.value, bytes):
                self._add(node, f"attribute {quote(name)} is not UTF-8")
        for name, known in schema.attributes.items():
            if known.required and name not in node.attributes:
                self._add(node, f"attribute {quote(name)} is required and absent")

    def check_types(self, node: ir.Node) -> None:
        """Check the element types of one node's inputs, once they are known, and what depends on their shapes."""
        schema = self.schema_of(node)
        if schema is None:
            return
        for what in find_form_problems(node):
            self._add(node, what)
        bound: dict[str, tuple[str, ir.Value]] = {}
        for index, value in enumerate(node.inputs):
            formal = _formal(schema.inputs, index)
            if value is None or value.type is None or formal is None:
                continue
            label = quote(value.name or formal.name)
            if describe_type(value.type) not in formal.types:
                self._add(node, f"input {label} is {_type_name(value)}, which the operator does not take")
            elif formal.is_homogeneous:
                other, first = bound.setdefault(formal.type_str, (label, value))
                if _type_name(first) != _type_name(value):
                    types = f"{_type_name(first)} and {_type_name(value)}"
                    self._add(node, f"inputs {other} and {label} must have one type; got {types}")

    def _add(self, node: ir.Node, what: str) -> None:
        self._problems.add(what, where=self._where(node))

    def _where(self, node: ir.Node) -> str:
        return describe_node(node, opset_of(self._opsets, node.domain))


def _type_name(value: ir.Value) -> str:
    """A type for messages: the element type of a tensor, else the whole."""
    if value.type is None:
        return "of no type"
    return describe_type(value.type) if has_no_shape(value) else value.type.dtype.name


def _formal(formals: Any, index: int) -> Any | None:
    """The parameter an input belongs to; a variadic one takes all that follow."""
    if index < len(formals):
        return formals[index]
    last = formals[-1] if formals else None
    return last if last is not None and last.option == _OPTION.Variadic else None
