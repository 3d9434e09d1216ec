"""Small edits of methods: templates, renames, returns, and what a body does."""

# ruff: noqa: N802 - libcst names its callbacks after the classes of its nodes

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Final

import libcst as cst
import libcst.matchers as m

__all__ = [
    "add_before",
    "body_statements",
    "find_calls",
    "find_super_calls",
    "has_name",
    "is_trivial",
    "make_method",
    "make_statements",
    "parameter_names",
    "rename_method",
    "with_block",
    "with_statements",
    "wrap_returns",
]

_TRIVIAL: Final = m.SimpleStatementLine(
    [m.Pass() | m.Return(value=None) | m.Return(m.Name("None") | m.Integer("0")) | m.Expr(m.Ellipsis())]
)
_DOCSTRING: Final = m.SimpleStatementLine([m.Expr(m.SimpleString() | m.ConcatenatedString())])


def make_statements(text: str) -> list[cst.BaseStatement]:
    """Statements from a template."""
    return list(cst.parse_module(textwrap.dedent(text).strip("\n") + "\n").body)


def make_method(text: str) -> cst.FunctionDef:
    """A method from a template, set off by an empty line."""
    method = cst.ensure_type(make_statements(text)[0], cst.FunctionDef)
    return method.with_changes(leading_lines=[cst.EmptyLine(indent=False)])


def body_statements(method: cst.FunctionDef) -> list[cst.BaseStatement]:
    """The statements of a method; those of a body on the line of its header get a line each."""
    if isinstance(method.body, cst.IndentedBlock):
        return list(method.body.body)
    return [cst.SimpleStatementLine([part]) for part in cst.ensure_type(method.body, cst.SimpleStatementSuite).body]


def with_statements(method: cst.FunctionDef, statements: Sequence[cst.BaseStatement]) -> cst.FunctionDef:
    """The method with another body."""
    block = method.body if isinstance(method.body, cst.IndentedBlock) else cst.IndentedBlock([])
    return method.with_changes(body=block.with_changes(body=list(statements) or make_statements("pass")))


def with_block(node: cst.ClassDef) -> cst.ClassDef:
    """The class with a body on lines of its own."""
    if isinstance(node.body, cst.IndentedBlock):
        return node
    parts = cst.ensure_type(node.body, cst.SimpleStatementSuite).body
    return node.with_changes(body=cst.IndentedBlock([cst.SimpleStatementLine([part]) for part in parts]))


def add_before(method: cst.FunctionDef, statements: Sequence[cst.BaseStatement]) -> cst.FunctionDef:
    """The method with statements before its own, after its docstring."""
    own = body_statements(method)
    start = 1 if own and m.matches(own[0], _DOCSTRING) else 0
    return with_statements(method, [*own[:start], *statements, *own[start:]])


def is_trivial(method: cst.FunctionDef | None) -> bool:
    """Whether a method is missing or does nothing."""
    if method is None:
        return True
    own = body_statements(method)
    rest = own[1:] if own and m.matches(own[0], _DOCSTRING) else own
    return all(m.matches(statement, _TRIVIAL) for statement in rest)


def rename_method(method: cst.FunctionDef, name: str) -> cst.FunctionDef:
    """The method under another name."""
    return method.with_changes(name=cst.Name(name))


def parameter_names(method: cst.FunctionDef) -> list[str]:
    """The names of the positional parameters, ``self`` first."""
    params = method.params
    return [param.name.value for param in (*params.posonly_params, *params.params)]


def has_name(node: cst.CSTNode, name: str) -> bool:
    """Whether a name is used anywhere in a node."""
    return bool(m.findall(node, m.Name(name)))


def find_calls(node: cst.CSTNode, method: str) -> Sequence[cst.CSTNode]:
    """The calls of a method of any object."""
    return m.findall(node, m.Call(func=m.Attribute(attr=m.Name(method))))


def find_super_calls(node: cst.CSTNode, method: str) -> Sequence[cst.CSTNode]:
    """The calls of a method of the base."""
    base = m.Call(func=m.Name("super"))
    return m.findall(node, m.Call(func=m.Attribute(value=base, attr=m.Name(method))))


class _ReturnWrapper(cst.CSTTransformer):
    """Changes what a function returns, and not what functions inside it return."""

    def __init__(self, wrap: Callable[[cst.BaseExpression], cst.BaseExpression]) -> None:
        self._wrap = wrap
        self._depth = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._depth += 1

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._depth -= 1
        return updated_node

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:
        if self._depth != 1 or updated_node.value is None:
            return updated_node
        return updated_node.with_changes(value=self._wrap(updated_node.value))


def wrap_returns(method: cst.FunctionDef, wrap: Callable[[cst.BaseExpression], cst.BaseExpression]) -> cst.FunctionDef:
    """The method with every value that it returns wrapped."""
    return cst.ensure_type(method.visit(_ReturnWrapper(wrap)), cst.FunctionDef)
