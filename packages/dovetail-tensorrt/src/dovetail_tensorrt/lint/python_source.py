"""Facts about plugins in Python sources, read with ``ast``; nothing is imported and nothing runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dovetail.errors import InputError
from dovetail_tensorrt.lint.comments import find_silenced
from dovetail_tensorrt.lint.facts import (
    BranchFacts,
    CallFacts,
    ClassFacts,
    FileFacts,
    Language,
    MethodFacts,
    ReturnFacts,
    StoreFacts,
    WriteFacts,
)

__all__ = ["read_python"]

_LAUNCHERS: Final = ("launch", "launch_kernel", "RawKernel", "cuLaunchKernel", "cuda_launch_kernel")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def read_python(path: Path, source: str) -> FileFacts:
    """The facts of one file.

    Raises:
        InputError: It is no Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InputError(f"this is no Python: {error.args[0]}", where=f"{path}:{line}") from None
    classes = {node.name: _read_class(path, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return FileFacts(
        path=path,
        language=Language.PYTHON,
        classes=classes,
        calls=tuple(_find_calls(tree)),
        modules=frozenset(_find_modules(tree)),
        silenced=find_silenced(source),
        functions={node.name: node.lineno for node in tree.body if isinstance(node, Function)},
    )


def _find_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _read_class(path: Path, node: ast.ClassDef) -> ClassFacts:
    methods = {part.name: _read_method(path, part) for part in node.body if isinstance(part, Function)}
    return ClassFacts(
        name=node.name,
        path=path,
        line=node.lineno,
        language=Language.PYTHON,
        bases=tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases),
        methods=methods,
        declared={*methods, *_find_attributes(node)},
    )


def _find_attributes(node: ast.ClassDef) -> Iterator[str]:
    """The attributes that a class or its methods set."""
    for part in node.body:
        if isinstance(part, ast.Assign | ast.AnnAssign):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            yield inner.attr


def _read_method(path: Path, node: Function) -> MethodFacts:
    return MethodFacts(
        name=node.name,
        path=path,
        line=node.lineno,
        params=tuple(arg.arg for arg in (*node.args.posonlyargs, *node.args.args)),
        calls=tuple(_find_calls(node)),
        stores=tuple(_find_stores(node)),
        writes=tuple(_find_writes(node)),
        returns=tuple(_find_returns(node)),
        branches=tuple(_find_branches(node)),
        text=ast.unparse(node),
    )


def _find_calls(node: ast.AST) -> Iterator[CallFacts]:
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            args = [ast.unparse(arg) for arg in part.args]
            args += [f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in part.keywords]
            yield CallFacts(ast.unparse(part.func), tuple(args), part.lineno, _is_launch(part))


def _is_launch(call: ast.Call) -> bool:
    """Whether a call starts a kernel: ``kernel[grid](...)``, or a launcher of one of the libraries."""
    if isinstance(call.func, ast.Subscript):
        return True
    return ast.unparse(call.func).rpartition(".")[2] in _LAUNCHERS


def _find_stores(node: ast.AST) -> Iterator[StoreFacts]:
    for part in ast.walk(node):
        if isinstance(part, ast.Assign):
            for target in part.targets:
                yield from _pair(target, part.value)
        elif isinstance(part, ast.AnnAssign) and part.value is not None:
            yield from _pair(part.target, part.value)


def _pair(target: ast.expr, value: ast.expr) -> Iterator[StoreFacts]:
    """Each name with its value; names that are unpacked from one value all get that."""
    if isinstance(target, ast.Tuple | ast.List):
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] * len(target.elts)
        for part, own in zip(target.elts, values, strict=False):
            yield from _pair(part, own)
    elif isinstance(target, ast.Name | ast.Attribute):
        yield StoreFacts(ast.unparse(target), ast.unparse(value), target.lineno, isinstance(target, ast.Name))


def _find_writes(node: ast.AST) -> Iterator[WriteFacts]:
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store):
            yield WriteFacts(ast.unparse(part.value), part.lineno)
        elif isinstance(part, ast.keyword) and part.arg == "out":
            yield WriteFacts(ast.unparse(part.value), part.value.lineno)
        elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            yield WriteFacts(part.target.id, part.lineno)


def _find_returns(node: Function) -> Iterator[ReturnFacts]:
    for part in ast.walk(node):
        if isinstance(part, ast.Return) and part.value is not None:
            yield ReturnFacts(ast.unparse(part.value), part.lineno)


def _find_branches(node: ast.AST) -> Iterator[BranchFacts]:
    for part in ast.walk(node):
        if isinstance(part, ast.If) and part.orelse:
            yield BranchFacts(ast.unparse(part.test), (_kernels(part.body), _kernels(part.orelse)), part.lineno)
        elif isinstance(part, ast.Match):
            kernels = tuple(_kernels(case.body) for case in part.cases)
            yield BranchFacts(ast.unparse(part.subject), kernels, part.lineno)


def _kernels(body: list[ast.stmt]) -> tuple[str, ...]:
    return tuple(call.callee.partition("[")[0] for part in body for call in _find_calls(part) if call.is_launch)
