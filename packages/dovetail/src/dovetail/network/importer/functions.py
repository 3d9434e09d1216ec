"""Model functions, expanded where they are called, so that every later stage sees plain nodes only.

A function may be written for another version of the ONNX operator set than the model. Where its operators mean the
same at both, it is taken as it is; where not, the older part is converted to the newer version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from dovetail.errors import DovetailError, ModelError, ResourceError
from dovetail.growth import DEFAULT_GROWTH, NODES_FIX, GrowthLimits
from dovetail.network.importer.problems import Problems, mark_function, quote
from dovetail.network.importer.tensors import walk_graphs
from dovetail.network.opsets.convert import convert_opset
from dovetail.network.opsets.versions import find_changed

__all__ = ["PLUGIN_CALL", "expand_calls", "inline_functions"]

PLUGIN_CALL: Final = "dovetail.plugin"
"""The overload a node gets that is a plugin although a function has its name; no function has this overload."""


def inline_functions(
    model: ir.Model, is_plugin: Callable[[ir.Node], bool], problems: Problems, limits: GrowthLimits = DEFAULT_GROWTH
) -> None:
    """Expand every call in place and drop the functions.

    Args:
        model: Changed in place.
        is_plugin: Says which nodes are plugins although a function has their name.
        problems: Functions that cannot be expanded; then all of them stay, and the model cannot be used.
        limits: How many nodes it may become: a few functions that call each other twice expand without end.
    """
    functions, found = model.functions, len(problems)
    if not functions:
        return
    for graph in _all_graphs(model):
        for node in graph:
            if node.op_identifier() in functions and is_plugin(node):
                node.overload = PLUGIN_CALL
    _SizeCheck(model, problems, limits).check()
    if len(problems) > found:
        return
    _drop_unused(model)
    for function in functions.values():
        _separate_outputs(function)
        for node in function.all_nodes():
            mark_function(node, function.name)
    _Versions(model, problems).unite()
    if len(problems) > found:
        return
    expand_calls(model)
    functions.clear()


def expand_calls(model: ir.Model) -> None:
    """Put the body of each function where it is called; the functions that were called are gone then."""
    _forget_empty_names(model)
    try:
        InlinePass(criteria=_CallNames(model))(model)
    except Exception as error:  # calls that do not fit their function fail somewhere in the copying
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        text = str(cause).splitlines()[0][:200] if str(cause) else type(cause).__name__
        raise ModelError(f"a function cannot be expanded: {text}", where="model") from error


class _CallNames:
    """Gives what a function makes other names at each call.

    The expansion keeps names apart too, but tries one number after the other from the first on: the square of the
    calls. It asks this object whether to expand a function right before it does.
    """

    def __init__(self, model: ir.Model) -> None:
        self._counts: Counter[ir.OperatorIdentifier] = Counter()
        self._unnamed = 0
        self._names = {
            identity: [(node, node.name, [value.name for value in node.outputs]) for node in function.all_nodes()]
            for identity, function in model.functions.items()
        }

    def __call__(self, function: ir.Function) -> bool:
        identity = function.identifier()
        self._counts[identity] += 1
        count = self._counts[identity]
        for node, name, outputs in self._names[identity]:
            node.name = self._number(name, count)
            for value, given in zip(node.outputs, outputs, strict=True):
                value.name = f"{given}_{count}" if given and count > 1 else given
        return True

    def _number(self, name: str | None, count: int) -> str:
        if name:
            return f"{name}_{count}" if count > 1 else name
        self._unnamed += 1
        return f"node_{self._unnamed}" if self._unnamed > 1 else "node"


def _drop_unused(model: ir.Model) -> None:
    """What nobody calls can be as it likes."""
    reached: set[ir.OperatorIdentifier] = set()
    todo = list(model.graph.all_nodes())
    while todo:
        name = todo.pop().op_identifier()
        if name in model.functions and name not in reached:
            reached.add(name)
            todo += model.functions[name].all_nodes()
    for name in model.functions.keys() - reached:
        del model.functions[name]


def _all_graphs(model: ir.Model) -> list[ir.Graph]:
    graphs = [*walk_graphs(model.graph)]
    for function in model.functions.values():
        graphs += walk_graphs(function.graph)
    return graphs


class _Versions:
    """Brings a model and its functions to one version of the ONNX operator set."""

    def __init__(self, model: ir.Model, problems: Problems) -> None:
        self._model = model
        self._problems = problems
        self._given = model.opset_imports.get("")

    def unite(self) -> None:
        """Change the model in place."""
        functions = self._functions()
        for function in functions:
            self._unite_domains(function)
        versions = {function.opset_imports[""] for function in functions if "" in function.opset_imports}
        if self._given is None:
            self._given = self._model.opset_imports[""] = max(versions, default=1)
        others = sorted(versions - {self._given}, reverse=True)
        if not others:
            return
        target = next((version for version in [self._given, *others] if self._all_mean_the_same(version)), None)
        self._move(max(self._given, *others) if target is None else target)

    def _unite_domains(self, function: ir.Function) -> None:
        """Domains other than ONNX's: no converter knows them, and most have no versions that matter."""
        for domain, version in function.opset_imports.items():
            expected = self._model.opset_imports.get(domain, version)
            if domain == "" or version == expected:
                continue
            if find_changed(_nodes(function.graph), domain, version, expected):
                self._problems.add(
                    f"it imports version {version} of operator set {quote(domain)}, the model version {expected}",
                    where=f"function {quote(function.name)}",
                    fix="convert the model to one version",
                )
            function.opset_imports[domain] = expected

    def _all_mean_the_same(self, target: int) -> bool:
        parts = [(self._model.graph, self._given), *((f.graph, f.opset_imports.get("")) for f in self._functions())]
        return all(v is None or not find_changed(_nodes(graph), "", v, target) for graph, v in parts)

    def _functions(self) -> list[ir.Function]:
        return list(self._model.functions.values())

    def _move(self, target: int) -> None:
        source = self._given or target
        if find_changed(_nodes(self._model.graph), "", source, target):
            self._try("the model", source, target, partial(_convert_graph, self._model, target))
        for name, function in list(self._model.functions.items()):
            version = function.opset_imports.get("", target)
            if find_changed(_nodes(function.graph), "", version, target):
                label = f"function {quote(function.name)}"
                self._try(label, version, target, partial(_convert_function, self._model, name, target))
            self._model.functions[name].opset_imports[""] = target
        self._model.opset_imports[""] = target

    def _try(self, label: str, source: int, target: int, convert: Callable[[], None]) -> None:
        try:
            convert()
        except DovetailError as error:
            self._problems.add(
                f"it imports version {source} of operator set '', other parts of the model version {target}, "
                f"and it cannot be converted: {error.what}",
                where=label,
                fix="convert the model to one version",
            )


def _nodes(graph: ir.Graph) -> list[ir.Node]:
    return [node for inner in walk_graphs(graph) for node in inner]


def _convert_graph(model: ir.Model, target: int) -> None:
    """Convert the main graph in place; the functions stay as they are."""
    _name_all(model.graph)
    bare = ir.Model(model.graph, ir_version=model.ir_version)
    model.graph = convert_opset(
        bare, target, lambda node: node.domain != "" or node.op_identifier() in model.functions
    ).graph


def _convert_function(model: ir.Model, name: ir.OperatorIdentifier, target: int) -> None:
    """Convert a function; nodes that take attributes from the caller must mean the same at both versions."""
    old = model.functions[name]
    source = old.opset_imports[""]
    _name_all(old.graph)

    def is_foreign(node: ir.Node) -> bool:
        takes = any(attribute.is_ref() for attribute in node.attributes.values())
        return node.domain != "" or (takes and not find_changed([node], "", source, target))

    graph = convert_opset(ir.Model(old.graph, ir_version=10), target, is_foreign).graph
    attributes = list(old.attributes.values())
    model.functions[name] = ir.Function(old.domain, old.name, old.overload, graph=graph, attributes=attributes)
    model.functions[name].opset_imports.update(old.opset_imports)


def _name_all(graph: ir.Graph) -> None:
    """Nodes come back from the converter by their names, so each needs one."""
    seen: set[str] = set()
    for index, node in enumerate(_nodes(graph)):
        if not node.name or node.name in seen:
            node.name = f"{node.name or node.op_type}_{index}"
        seen.add(node.name)


class _SizeCheck:
    """Counts the nodes a model would have, and finds functions that call themselves."""

    def __init__(self, model: ir.Model, problems: Problems, limits: GrowthLimits) -> None:
        self._model = model
        self._problems = problems
        self._limits = limits
        self._sizes: dict[ir.OperatorIdentifier, int] = {}
        self._open: list[ir.OperatorIdentifier] = []

    def check(self) -> None:
        total = sum(self._cost(node) for graph in walk_graphs(self._model.graph) for node in graph)
        allowed = self._limits.nodes_for(sum(len(graph) for graph in _all_graphs(self._model)))
        if total > allowed:
            self._problems.add(
                f"its functions expand to {total:,} nodes; expected at most {allowed:,}",
                where="model",
                kind=ResourceError,
                fix=NODES_FIX,
            )
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
