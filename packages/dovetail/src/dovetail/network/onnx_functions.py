"""Model functions, expanded where they are called, so that every later stage sees plain nodes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from dovetail.errors import ModelError
from dovetail.network.problems import Problems, quote
from dovetail.network.tensors import walk_graphs

__all__ = ["PLUGIN_CALL", "inline_functions"]

PLUGIN_CALL: Final = "dovetail.plugin"
"""The overload a node gets that is a plugin although a function has its name; no function has this overload."""

_MAX_NODES: Final = 2_000_000
"""A few functions that call each other twice would otherwise expand without end."""


def inline_functions(model: ir.Model, is_plugin: Callable[[ir.Node], bool], problems: Problems) -> None:
    """Expand every call in place and drop the functions.

    Args:
        model: Changed in place.
        is_plugin: Says which nodes are plugins although a function has their name.
        problems: Functions that cannot be expanded; then the model is left half done and must not be used.
    """
    functions = model.functions
    if not functions:
        return
    for graph in _all_graphs(model):
        for node in graph:
            if node.op_identifier() in functions and is_plugin(node):
                node.overload = PLUGIN_CALL
    _check_functions(model, problems)
    problems.raise_if_any()
    for function in functions.values():
        _separate_outputs(function)
    _forget_empty_names(model)
    try:
        InlinePass()(model)
    except ValueError as error:
        raise ModelError(f"a function cannot be expanded: {error}", where="model") from error
    functions.clear()


def _all_graphs(model: ir.Model) -> list[ir.Graph]:
    graphs = [*walk_graphs(model.graph)]
    for function in model.functions.values():
        graphs += walk_graphs(function.graph)
    return graphs


def _check_functions(model: ir.Model, problems: Problems) -> None:
    for function in model.functions.values():
        for domain, version in function.opset_imports.items():
            expected = model.opset_imports.get(domain, version)
            if version != expected:
                problems.add(
                    f"it imports version {version} of operator set {quote(domain)}, the model version {expected}",
                    where=f"function {quote(function.name)}",
                    fix="convert the model to one version",
                )
    _SizeCheck(model, problems).check()


class _SizeCheck:
    """Counts the nodes a model would have, and finds functions that call themselves."""

    def __init__(self, model: ir.Model, problems: Problems) -> None:
        self._model = model
        self._problems = problems
        self._sizes: dict[ir.OperatorIdentifier, int] = {}
        self._open: list[ir.OperatorIdentifier] = []

    def check(self) -> None:
        total = sum(self._cost(node) for graph in walk_graphs(self._model.graph) for node in graph)
        if total > _MAX_NODES:
            self._problems.add(f"its functions expand to more than {_MAX_NODES} nodes", where="model")
        for name in self._model.functions:
            self._size(name)

    def _cost(self, node: ir.Node) -> int:
        name = node.op_identifier()
        return self._size(name) if name in self._model.functions else 1

    def _size(self, name: ir.OperatorIdentifier) -> int:
        if name in self._open:
            cycle = " -> ".join(quote(part[1]) for part in [*self._open[self._open.index(name) :], name])
            self._problems.add(f"it calls itself: {cycle}", where=f"function {quote(name[1])}")
            return 0
        if name not in self._sizes:
            self._open.append(name)
            body = self._model.functions[name].graph
            self._sizes[name] = sum(self._cost(node) for graph in walk_graphs(body) for node in graph)
            self._open.pop()
        return self._sizes[name]


def _separate_outputs(function: ir.Function) -> None:
    """Give every output a value of its own.

    The expansion renames what a function returns to what its caller expects; a parameter that is returned, or a value
    that is returned twice, would drag the caller's own names along.
    """
    seen = set(function.inputs)
    for index, value in enumerate(list(function.outputs)):
        if value in seen:
            node = ir.Node("", "Identity", [value], num_outputs=1, name=f"{value.name}_returned")
            node.outputs[0].name = f"{value.name}_returned_{index}"
            function.append(node)
            function.outputs[index] = value = node.outputs[0]
        seen.add(value)


def _forget_empty_names(model: ir.Model) -> None:
    """Outputs that a call leaves out have an empty name, which must not spread to the function's own values."""
    for graph in _all_graphs(model):
        for node in graph:
            if node.op_identifier() in model.functions:
                for value in node.outputs:
                    value.name = value.name or None
