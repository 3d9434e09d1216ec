"""Calls of methods that are private in V3, in the class that has them: on itself, on its base and on its twins."""

# ruff: noqa: N802 - libcst names its callbacks after the classes of its nodes

from __future__ import annotations

from typing import Final

import libcst as cst
import libcst.matchers as m

__all__ = ["rename_hooks"]

_OF_TWINS: Final = frozenset(("initialize", "terminate", "attach_to_context", "detach_from_context"))
_OF_ITSELF: Final = _OF_TWINS | {"serialize"}
_KEPT: Final = "attach_to_context"
"""V3 has a method of this name too, with one argument."""


def rename_hooks(node: cst.ClassDef) -> cst.ClassDef:
    """The class with its calls of V2 hooks renamed; calls on other objects, such as a pool, stay."""
    own = {part.name.value for part in node.body.body if isinstance(part, cst.FunctionDef)}
    targets = [cst.ensure_type(found, cst.AssignTarget).target for found in m.findall(node, m.AssignTarget(m.Name()))]
    variables = {target.value for target in targets if isinstance(target, cst.Name)}
    return cst.ensure_type(node.visit(_HookCalls(variables, own)), cst.ClassDef)


class _HookCalls(cst.CSTTransformer):
    def __init__(self, variables: set[str], own: set[str]) -> None:
        self._variables, self._own = variables, own

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        func = updated_node.func
        if not isinstance(func, cst.Attribute) or not self._is_hook(func, len(updated_node.args)):
            return updated_node
        return updated_node.with_changes(func=func.with_changes(attr=cst.Name(f"_{func.attr.value}")))

    def _is_hook(self, func: cst.Attribute, num_args: int) -> bool:
        name, receiver = func.attr.value, func.value
        if name == _KEPT and num_args != 3:
            return False
        is_base = m.matches(receiver, m.Call(func=m.Name("super")))
        if m.matches(receiver, m.Name("self")) or is_base:
            return name in _OF_ITSELF and (is_base or f"_{name}" in self._own)
        is_twin = isinstance(receiver, cst.Name) and receiver.value in self._variables
        return is_twin and name in _OF_TWINS and f"_{name}" in self._own
