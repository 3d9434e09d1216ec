"""Parts of a model replaced by one node, so that a plugin takes their place: by the names at the cut, or by a pattern.

A thin layer over onnx-ir: the model is changed in place, and everything not in the cut stays as it is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from dovetail.errors import ModelError, UsageError
from dovetail.near_names import find_near
from dovetail.network.importer.problems import quote
from dovetail.network.importer.tensors import walk_graphs

__all__ = ["Replacement", "replace_pattern", "replace_subgraph"]


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """What one cut did to a model."""

    node: ir.Node
    """The new node."""
    removed: tuple[str, ...]
    """The names of the nodes that are gone, or their operators where they had none."""
    weights: tuple[str, ...]
    """Constants that only those nodes used, and that are gone too."""


def replace_subgraph(
    model: ir.Model,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    op: str,
    domain: str = "",
    attributes: Mapping[str, Any] | None = None,
    name: str = "",
) -> Replacement:
    """Replace everything between values by one node.

    The cut goes from the outputs back to the inputs. It must be closed: it may depend on nothing but the inputs and on
    constants, and nothing but the outputs may be used after it. A constant is taken out with the nodes that use it,
    unless it is named among the inputs.

    Args:
        model: Changed in place; left as it is when the cut is refused.
        inputs: Names of the values that the new node takes, in order.
        outputs: Names of the values that it makes, in order; they keep their names, types and shapes.
        op: The operator of the new node.
        domain: Its domain; the empty one is looked up like an ONNX operator, and then among plugins.
        attributes: Its attributes: numbers, texts, lists of these, arrays.
        name: Its name; that of the operator with a number without one.

    Raises:
        UsageError: A name is not in the model, or an attribute is of a kind that ONNX lacks.
        ModelError: The cut is not closed; the error lists the values that leak.
    """
    if not op or not outputs:
        raise UsageError("a replacement needs an operator and at least one output", where="replace_subgraph")
    cut = _SurgeryCut(model, inputs, outputs)
    cut.check()
    made = [_attribute(key, value) for key, value in (attributes or {}).items()]
    node = ir.Node(domain, op, cut.inputs, made, num_outputs=len(cut.outputs), name=name or _free_name(model, op))
    return cut.replace_by(node)


def replace_pattern(
    model: ir.Model,
    pattern: Callable[..., Any],
    *,
    op: str,
    domain: str = "",
    attributes: Mapping[str, Any] | None = None,
    condition: Callable[..., bool] | None = None,
) -> int:
    """Replace every place that looks like a pattern by one node; how many there were comes back.

    Args:
        model: Changed in place.
        pattern: A pattern of ``onnxscript.rewriter``: a function of an operator builder and values. The new node takes
            the values in the order of the parameters; a parameter that stands for an attribute becomes an attribute.
        op: The operator of the new nodes.
        domain: Its domain.
        attributes: Its attributes, besides those that the pattern has.
        condition: Called with a context and the values by name; says no to places that should stay.

    >>> def pattern(op, x): return op.Mul(x, op.Sigmoid(x))
    >>> x = ir.val("x", ir.DataType.FLOAT, (2,))
    >>> gate = ir.node("Sigmoid", [x])
    >>> result = ir.node("Mul", [x, gate.outputs[0]])
    >>> graph = ir.Graph([x], result.outputs, nodes=[gate, result], opset_imports={"": 21}, name="graph")
    >>> model = ir.Model(graph, ir_version=10)
    >>> replace_pattern(model, pattern, op="Swish"), [node.op_type for node in model.graph]
    (1, ['Swish'])
    """
    from onnxscript.rewriter import pattern as rewriting

    extra = {key: _attribute(key, value) for key, value in (attributes or {}).items()}
    order = list(inspect.signature(pattern).parameters)[1:]
    count = 1

    @functools.wraps(pattern)
    def describe(*arguments: Any) -> Any:
        nonlocal count
        results = pattern(*arguments)
        count = len(results) if isinstance(results, list | tuple) else 1
        return results

    def replace(context: Any, **bindings: Any) -> Any:
        given = {key: bindings.get(key) for key in order}
        values = [value for value in given.values() if not isinstance(value, ir.Attr)]
        found = {key: value for key, value in given.items() if isinstance(value, ir.Attr)}
        made = {key: attribute.value for key, attribute in {**found, **extra}.items()}
        return getattr(context, op)(*values, _domain=domain, _outputs=count, **made)

    rule = rewriting.RewriteRule(describe, replace, condition)
    replaced = int(rewriting.RewriteRuleSet([rule]).apply_to_model(model))
    if replaced:
        model.opset_imports.setdefault(domain, 1)
    return replaced


class _SurgeryCut:
    """The nodes between values of one graph."""

    def __init__(self, model: ir.Model, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._model = model
        known = _values_by_name(model)
        self.inputs = [_find(known, name, "input") for name in _distinct(inputs, "inputs")]
        self.outputs = [_find(known, name, "output") for name in _distinct(outputs, "outputs")]
        self._graph = self._find_graph()
        self._leaks_in: dict[str, None] = {}
        self._constants: set[ir.Value] = set()
        self._nodes = self._collect()
        self._inside = {inner for node in self._nodes for inner in (node, *_inner_nodes(node))}

    def _find_graph(self) -> ir.Graph:
        producers = [value.producer() for value in self.outputs]
        graphs = {producer.graph if producer is not None else None for producer in producers}
        graph = next(iter(graphs))
        if len(graphs) > 1 or not isinstance(graph, ir.Graph):
            raise ModelError(
                "the outputs of the cut must be made by nodes of one graph",
                where=", ".join(quote(value.name) for value in self.outputs),
            )
        return graph

    def _collect(self) -> list[ir.Node]:
        """From the outputs back to the inputs, in the order of the graph; what lies beyond is a leak."""
        stops, found, todo = set(self.inputs), set[ir.Node](), list(self.outputs)
        while todo:
            value = todo.pop()
            if value in stops:
                continue
            node = value.producer()
            if value.is_initializer() or (node is not None and node.op_type == "Constant" and not node.domain):
                self._constants.add(value)
            elif node is None or node.graph is not self._graph:
                self._leaks_in[value.name or ""] = None
            elif node not in found:
                found.add(node)
                todo += [value for value in _used_values(node) if value.producer() not in found]
        return [node for node in self._graph if node in found]

    def check(self) -> None:
        """Refuse a cut that is not closed, with the names of all values that leak."""
        leaks = [f"it also depends on {quote(name)}" for name in sorted(self._leaks_in)]
        for node in self._nodes:
            for value in node.outputs:
                if value not in self.outputs and self._is_used_outside(value):
                    leaks.append(f"{quote(value.name)} is used after it")
        made = {value for node in self._nodes for value in node.outputs}
        leaks += [f"input {quote(value.name)} is made inside it" for value in self.inputs if value in made]
        leaks += [f"input {quote(value.name)} is made from its outputs" for value in self._inputs_from_outputs(made)]
        if not self._nodes:
            leaks.append("there is nothing between its inputs and its outputs")
        if leaks:
            raise ModelError(
                f"the cut is not closed: {'; '.join(leaks)}",
                where=f"from {_listing(self.inputs)} to {_listing(self.outputs)}",
                fix="name these values among the inputs or outputs, or cut elsewhere",
            )

    def _is_used_outside(self, value: ir.Value) -> bool:
        return value.is_graph_output() or any(use.node not in self._inside for use in value.uses())

    def _inputs_from_outputs(self, made: set[ir.Value]) -> list[ir.Value]:
        """Inputs that could only be made after the new node has run."""
        late, todo = set[ir.Value](), list(self.outputs)
        while todo:
            for use in todo.pop().uses():
                fresh = [value for value in use.node.outputs if value not in late and value not in made]
                late.update(fresh)
                todo += fresh
        return [value for value in self.inputs if value in late]

    def replace_by(self, node: ir.Node) -> Replacement:
        """Put a node in the place of the cut."""
        removed = tuple(old.name or old.op_type for old in self._nodes)
        for inner in self._inside.difference(self._nodes):  # bodies go too, and must let go of what they capture
            for position in range(len(inner.inputs)):
                inner.replace_input_with(position, None)
        ir.convenience.replace_nodes_and_values(
            self._graph, self._nodes[-1], self._nodes, [node], self.outputs, node.outputs
        )
        weights = tuple(sorted(value.name or "" for value in self._constants if not self._is_needed(value)))
        for value in [value for value in self._constants if not self._is_needed(value)]:
            self._drop(value)
        self._graph.sort()
        self._model.opset_imports.setdefault(node.domain, 1)
        return Replacement(node=node, removed=removed, weights=weights)

    @staticmethod
    def _is_needed(value: ir.Value) -> bool:
        return bool(value.uses()) or value.is_graph_output()

    @staticmethod
    def _drop(value: ir.Value) -> None:
        producer = value.producer()
        if producer is not None and producer.graph is not None:
            producer.graph.remove(producer, safe=True)
        elif isinstance(value.graph, ir.Graph) and value.name is not None:
            value.graph.initializers.pop(value.name, None)


def _values_by_name(model: ir.Model) -> dict[str, ir.Value]:
    values: dict[str, ir.Value] = {}
    for graph in walk_graphs(model.graph):
        made = (value for node in graph for value in node.outputs)
        for value in [*graph.inputs, *graph.initializers.values(), *made]:
            if value.name:
                values.setdefault(value.name, value)
    return values


def _find(known: Mapping[str, ir.Value], name: str, what: str) -> ir.Value:
    value = known.get(name)
    if value is None:
        near = ", ".join(quote(other) for other in find_near(name, known))
        raise UsageError(
            f"the model has no value {quote(name)}", where=f"{what} of the cut", expected=near or "the name of a value"
        )
    return value


def _distinct(names: Sequence[str], what: str) -> list[str]:
    if isinstance(names, str):
        raise UsageError(f"the {what} of a cut are a list of names", got=quote(names))
    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise UsageError(f"{quote(twice[0])} is among the {what} twice", where="replace_subgraph")
    return list(names)


def _used_values(node: ir.Node) -> list[ir.Value]:
    """The values that a node takes, those that its bodies take from outside included."""
    values = [value for value in node.inputs if value is not None]
    inner = _inner_nodes(node)
    bodies = {inner_node.graph for inner_node in inner}
    for inner_node in inner:
        values += [value for value in inner_node.inputs if value is not None and value.graph not in bodies]
    for graph in bodies:
        values += [] if graph is None else [value for value in graph.outputs if value.graph not in bodies]
    return values


def _inner_nodes(node: ir.Node) -> list[ir.Node]:
    graphs = [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH and not a.is_ref()]
    return [inner for graph in graphs for inner in graph.all_nodes()]


def _listing(values: Iterable[ir.Value]) -> str:
    return ", ".join(quote(value.name) for value in values) or "nothing"


def _free_name(model: ir.Model, op: str) -> str:
    taken = {node.name for node in model.graph.all_nodes()}
    name, count = op, 1
    while name in taken:
        name, count = f"{op}_{count}", count + 1
    return name


def _attribute(name: str, value: Any) -> ir.Attr:
    try:
        converted = ir.tensor(value) if isinstance(value, np.ndarray) else value
        return ir.convenience.convert_attribute(name, converted)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"attribute {quote(name)} cannot be {value!r:.60}", expected="a number, a text, a list"
        ) from error
