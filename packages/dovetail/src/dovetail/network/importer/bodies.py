"""Operators that ONNX defines by other operators, expanded where nobody has a kernel for them.

A schema may hold a function body, or make one from a node and the types of its inputs. The body is written for some
version of the operator set; it is used where its operators mean the same at the model's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import onnx
import onnx_ir as ir

from dovetail.errors import DovetailError, ResourceError
from dovetail.growth import DEFAULT_GROWTH, NODES_FIX, GrowthLimits
from dovetail.network.importer.functions import expand_calls
from dovetail.network.importer.problems import Problems, mark_function
from dovetail.network.importer.tensors import walk_graphs
from dovetail.network.inference.shapes import ShapeInference
from dovetail.network.onnx_schema import find_schema, opset_of
from dovetail.network.opsets.versions import has_same_meaning
from dovetail.network.plugins import entry_of

__all__ = ["expand_bodies"]

_DOMAIN: Final = "dovetail.body"
_MAX_ROUNDS: Final = 8
"""Bodies may have operators with bodies; ONNX nests three deep."""


def expand_bodies(
    model: ir.Model,
    has_kernel: Callable[[ir.Node], bool],
    problems: Problems,
    limits: GrowthLimits = DEFAULT_GROWTH,
) -> list[str]:
    """Replace every node that has a body and no kernel, again and again, until no more can be.

    Args:
        model: Changed in place, bodies of control flow included. Its values must have types, because some bodies
            depend on them; new values get types too.
        has_kernel: Says which nodes can run as they are.
        problems: Bodies that cannot be put in place.
        limits: How many nodes the model may have in the end.

    Returns:
        Lines that say what was expanded, and how often.
    """
    counts: Counter[str] = Counter()
    allowed = limits.nodes_for(_count_nodes(model))
    for _ in range(_MAX_ROUNDS):
        calls = _make_calls(model, has_kernel)
        if not calls:
            break
        counts.update(label for label, _, _ in calls)
        total = _count_nodes(model) + sum(len(list(function.all_nodes())) for _, _, function in calls)
        if total > allowed:
            what = f"operators that no provider has expand to {total} nodes; expected at most {allowed}"
            problems.add(what, where="model", kind=ResourceError, fix=NODES_FIX)
            break
        try:
            _expand(model, calls)
            ShapeInference(model.opset_imports).infer_graph(model.graph)
        except DovetailError as error:
            problems.add_error(error, where=f"the bodies of {', '.join(sorted({label for label, _, _ in calls}))}")
            break
    return [f"expanded {count} node(s) of {label}" for label, count in sorted(counts.items())]


def _count_nodes(model: ir.Model) -> int:
    return sum(1 for _ in model.graph.all_nodes())


_Call = tuple[str, ir.Node, ir.Function]


def _make_calls(model: ir.Model, has_kernel: Callable[[ir.Node], bool]) -> list[_Call]:
    calls: list[_Call] = []
    for node in model.graph.all_nodes():
        if entry_of(node) is not None or has_kernel(node):
            continue
        opset = opset_of(model.opset_imports, node.domain)
        schema = None if opset is None else find_schema(node.op_type, node.domain, opset)
        proto = None if schema is None else _find_body(node, schema, model.opset_imports)
        if proto is not None:
            label = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            calls.append((f"{label} (opset {opset})", node, _make_function(node, proto, schema, len(calls))))
    return calls


def _expand(model: ir.Model, calls: Iterable[_Call]) -> None:
    for _, node, function in calls:
        model.functions[function.identifier()] = function
        function.opset_imports.update(model.opset_imports)
        node.domain, node.op_type, node.overload = function.identifier()
    expand_calls(model)


# finding the body


def _find_body(node: ir.Node, schema: Any, opsets: dict[str, int]) -> onnx.FunctionProto | None:
    """The body whose operators mean the same in the model as where it was written; the nearest version first."""
    opset = opset_of(opsets, node.domain) or 1
    own = _own_names(node)
    for version, make in sorted(_versions(node, schema), key=lambda pair: (pair[0] > opset, abs(pair[0] - opset))):
        proto = make(version)
        if proto is not None and _fits(_trim(proto, len(node.outputs)), own, opsets):
            return proto
    return None


def _trim(proto: onnx.FunctionProto, count: int) -> onnx.FunctionProto:
    """Leave out results that the node does not have; one in between that the body does not make becomes a constant."""
    del proto.output[count:]
    made = {*proto.input, *(name for node in proto.node for name in node.output)}
    for name in [name for name in proto.output if name not in made]:
        proto.node.append(onnx.helper.make_node("Constant", [], [name], value_float=0.0))
    return proto


def _versions(node: ir.Node, schema: Any) -> Iterator[tuple[int, Callable[[int], onnx.FunctionProto | None]]]:
    if schema.has_function:
        for version in schema.function_opset_versions:
            yield version, lambda v: _parse(schema.get_function_with_opset_version(v))
    if getattr(schema, "has_context_dependent_function", False):
        for version in schema.context_dependent_function_opset_versions:
            yield version, lambda v: _make_dependent(node, schema, v)


def _make_dependent(node: ir.Node, schema: Any, version: int) -> onnx.FunctionProto | None:
    types = [_type_proto(value).SerializeToString() for value in node.inputs]
    proto = ir.serde.serialize_node(node).SerializeToString()
    try:
        return _parse(schema.get_context_dependent_function_with_opset_version(version, proto, types))
    except (RuntimeError, ValueError):  # it says so in either way that the types do not do
        return None


def _parse(data: bytes) -> onnx.FunctionProto | None:
    if not data:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(data)
    return proto


def _type_proto(value: ir.Value | None) -> onnx.TypeProto:
    if value is None or value.type is None:
        return onnx.TypeProto()
    proto = ir.serde.serialize_type(value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(proto, value.shape)
    return proto


def _own_names(node: ir.Node) -> frozenset[str]:
    """What the nodes make that the author of the model wrote; they are of the model's opset already."""
    graphs = [graph for attribute in node.attributes.values() for graph in _graphs(attribute)]
    nodes = [inner for graph in graphs for inner in graph.all_nodes()]
    return frozenset(value.name for inner in nodes for value in inner.outputs if value.name)


def _graphs(attribute: ir.Attr) -> list[ir.Graph]:
    return [attribute.as_graph()] if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref() else []


def _fits(proto: onnx.FunctionProto, own: frozenset[str], opsets: dict[str, int]) -> bool:
    written = {opset.domain: opset.version for opset in proto.opset_import}
    if "" not in written and "ai.onnx" not in written and "" in opsets:
        written[""] = opsets[""]  # ONNX's bodies of operators in other domains do not say it
    function = ir.serde.deserialize_function(_closed(proto)[0])
    for graph in walk_graphs(function.graph):
        for node in graph:
            if any(value.name in own for value in node.outputs):
                continue
            source, target = opset_of(written, node.domain), opset_of(opsets, node.domain)
            if source is None or target is None or not has_same_meaning(node, source, target):
                return False
    return True


# making the call


def _make_function(node: ir.Node, proto: onnx.FunctionProto, schema: Any, index: int) -> ir.Function:
    """The body as a function of its own; the node is changed so that it fits as its call."""
    closed, captured = _closed(proto)
    function = ir.serde.deserialize_function(closed)
    values = _captured_values(node)
    inputs = [*node.inputs, *[None] * (len(proto.input) - len(node.inputs)), *(values[name] for name in captured)]
    node.resize_inputs(len(inputs))
    for position, value in enumerate(inputs):
        node.replace_input_with(position, value)
    for name, attribute in list(node.attributes.items()):
        if _graphs(attribute):
            del node.attributes[name]
    for name, known in schema.attributes.items():
        if known.default_value.type and name not in node.attributes:
            node.attributes[name] = ir.serde.deserialize_attribute(known.default_value)
    _rename(function, node.name or node.op_type)
    for inner in function.all_nodes():
        mark_function(inner, node.op_type)
    return ir.Function(_DOMAIN, f"{node.op_type}_{index}", graph=function.graph, attributes=[])


def _rename(function: ir.Function, prefix: str) -> None:
    """Names that say where they come from, and that the rest of the model does not have."""
    inputs = set(function.inputs)
    for graph in walk_graphs(function.graph):
        values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
        for value in values:
            if value not in inputs and value.name:
                value.name = f"{prefix}/{value.name}"
        for node in graph:
            node.name = f"{prefix}/{node.name or node.op_type}"


def _closed(proto: onnx.FunctionProto) -> tuple[onnx.FunctionProto, list[str]]:
    """A function that takes the outer values that it uses as further inputs, and the names of those."""
    captured = list(_free_names(proto.node, set(proto.input)))
    if not captured:
        return proto, []
    closed = onnx.FunctionProto()
    closed.CopyFrom(proto)
    closed.input.extend(captured)
    return closed, captured


def _free_names(nodes: Iterable[onnx.NodeProto], known: set[str]) -> dict[str, None]:
    found: dict[str, None] = {}
    for node in nodes:
        found |= {name: None for name in node.input if name and name not in known}
        for attribute in node.attribute:
            graph = attribute.g
            inner = known | {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            found |= _free_names(graph.node, inner)
        known |= set(node.output)
    return found


def _captured_values(node: ir.Node) -> dict[str, ir.Value]:
    graphs = [graph for attribute in node.attributes.values() for graph in _graphs(attribute)]
    nodes = [inner for graph in graphs for inner in graph.all_nodes()]
    return {value.name: value for inner in nodes for value in inner.inputs if value is not None and value.name}
