"""How a method uses the descriptors it is given, rewritten for what the newer contract gives it.

A descriptor is an element of a parameter (``in_out[pos]``), a name for one (``desc = in_out[pos]``), or what a loop
over the parameter gives.
"""

# ruff: noqa: D102, N802 - libcst names its callbacks after the classes of its nodes

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import libcst as cst
import libcst.matchers as m

__all__ = ["DescriptorUses", "rewrite_attributes", "rewrite_elements"]


class DescriptorUses(cst.CSTVisitor):
    """Finds the descriptors of a method.

    Args:
        params: The parameters that are lists of descriptors.

    Attributes:
        names: Names bound to a descriptor by an assignment.
        loop_names: Names that loops over a parameter bind.
        whole: Uses of a whole list other than indexing it, looping over it and asking for its length.
        passed: Descriptors that are used otherwise than by an attribute.
    """

    def __init__(self, params: Collection[str]) -> None:
        self._params = params
        self.names: set[str] = set()
        self.loop_names: set[str] = set()
        self.whole: list[cst.CSTNode] = []
        self.passed: list[cst.CSTNode] = []
        self._known: set[int] = set()

    def is_list(self, node: cst.CSTNode) -> bool:
        """Whether an expression is a list of descriptors: a parameter, or a slice of one."""
        if m.matches(node, m.Subscript(slice=[m.SubscriptElement(m.Slice())])):
            return self.is_list(cst.ensure_type(node, cst.Subscript).value)
        return isinstance(node, cst.Name) and node.value in self._params

    def is_element(self, node: cst.CSTNode) -> bool:
        """Whether an expression is an element of a list of descriptors."""
        if not m.matches(node, m.Subscript(slice=[m.SubscriptElement(m.Index())])):
            return False
        return self.is_list(cst.ensure_type(node, cst.Subscript).value)

    def _expect(self, node: cst.CSTNode) -> None:
        """Take a use of a list as one that is understood."""
        while isinstance(node, cst.Subscript):
            self._known.add(id(node))
            node = node.value
        self._known.add(id(node))

    def visit_Assign(self, node: cst.Assign) -> None:
        target = node.targets[0].target
        if len(node.targets) == 1 and isinstance(target, cst.Name) and self.is_element(node.value):
            self.names.add(target.value)
            self._known.add(id(node.value))

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if self.is_element(node.value):
            self._known.add(id(node.value))

    def visit_Subscript(self, node: cst.Subscript) -> None:
        if self.is_element(node):
            if id(node) not in self._known:
                self.passed.append(node)
            self._expect(node.value)

    def visit_For(self, node: cst.For) -> None:
        self._loop(node.target, node.iter)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self._loop(node.target, node.iter)

    def _loop(self, target: cst.BaseExpression, iterable: cst.BaseExpression) -> None:
        element: Any = target
        if m.matches(iterable, m.Call(func=m.Name("enumerate"))):
            iterable = cst.ensure_type(iterable, cst.Call).args[0].value
            element = target.elements[1].value if isinstance(target, cst.Tuple) and len(target.elements) == 2 else None
        if self.is_list(iterable) and isinstance(element, cst.Name):
            self.loop_names.add(element.value)
            self._expect(iterable)

    def visit_Call(self, node: cst.Call) -> None:
        if m.matches(node.func, m.Name("len")) and node.args and self.is_list(node.args[0].value):
            self._expect(node.args[0].value)

    def visit_Param(self, node: cst.Param) -> None:
        self._known.add(id(node.name))

    def visit_Name(self, node: cst.Name) -> None:
        if node.value in self._params and id(node) not in self._known:
            self.whole.append(node)


class _Elements(cst.CSTTransformer):
    """Puts an attribute after every descriptor."""

    def __init__(self, uses: DescriptorUses, attribute: str) -> None:
        self._uses, self._attribute = uses, attribute

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        if self._uses.is_element(original_node):
            return cst.Attribute(updated_node, cst.Name(self._attribute))
        return updated_node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        value = original_node.value
        if isinstance(value, cst.Name) and value.value in self._uses.loop_names:
            return updated_node.with_changes(value=cst.Attribute(value, cst.Name(self._attribute)))
        return updated_node


class _Attributes(cst.CSTTransformer):
    """Replaces attributes of descriptors by others."""

    def __init__(self, uses: DescriptorUses, replacements: Mapping[str, str]) -> None:
        self._uses, self._replacements = uses, replacements
        self._names = uses.names | uses.loop_names

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        replacement = self._replacements.get(original_node.attr.value)
        if replacement is None or not self._is_descriptor(original_node.value):
            return updated_node
        if not replacement:
            return updated_node.value
        text = cst.Module([]).code_for_node(updated_node.value)
        return cst.parse_expression(f"{text}.{replacement}")

    def _is_descriptor(self, node: cst.BaseExpression) -> bool:
        return self._uses.is_element(node) or (isinstance(node, cst.Name) and node.value in self._names)


def rewrite_elements(method: cst.FunctionDef, uses: DescriptorUses, attribute: str) -> cst.FunctionDef:
    """The method with ``in_out[i]`` read as ``in_out[i].desc``, for the attribute ``desc``."""
    return cst.ensure_type(method.visit(_Elements(uses, attribute)), cst.FunctionDef)


def rewrite_attributes(
    method: cst.FunctionDef, uses: DescriptorUses, replacements: Mapping[str, str]
) -> cst.FunctionDef:
    """The method with attributes of descriptors replaced; an empty replacement leaves the attribute out."""
    return cst.ensure_type(method.visit(_Attributes(uses, replacements)), cst.FunctionDef)
