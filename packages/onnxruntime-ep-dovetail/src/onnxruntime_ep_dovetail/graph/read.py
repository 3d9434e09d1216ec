"""ONNX Runtime's graph as an onnx-ir model: names, types, attributes, bodies, and weights as views of its memory.

What is read lives as long as ONNX Runtime's graph, so as long as the call that brought it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import onnx_ir as ir

from onnxruntime_ep_dovetail.abi import OrtError, OrtRuntime, read_pointers, read_text
from onnxruntime_ep_dovetail.graph.attributes import read_attribute
from onnxruntime_ep_dovetail.graph.values import is_number, kind_of, tensor_array

__all__ = [
    "NHWC_DOMAIN",
    "IsGiven",
    "ReadGraph",
    "read_border",
    "read_graph",
    "read_node",
    "read_tensor_type",
    "read_type",
]


IsGiven = Callable[[str], bool]
"""Whether the session brings the value of a weight, by its name."""

NHWC_DOMAIN: Final = "com.ms.internal.nhwc"
"""ONNX's operators with their channels last; ONNX Runtime rewrites nodes to it."""


class _ValueKind(IntEnum):
    """What a type is, by ONNX Runtime's numbers."""

    TENSOR = 1
    SEQUENCE = 2
    OPTIONAL = 6


@dataclass(kw_only=True)
class ReadGraph:
    """A graph that was read, and where its nodes are in ONNX Runtime."""

    model: ir.Model
    addresses: dict[ir.Node, int]
    """The ``OrtNode`` of each node of the outermost graph."""
    given: Set[ir.Value] = field(default=frozenset())
    """Weights whose values the session brings: inputs of the outermost graph."""
    gaps: Mapping[ir.Node, str] = field(default_factory=dict)
    """Nodes, those in bodies too, of which not everything could be read, and what that is."""


def read_graph(runtime: OrtRuntime, graph: int, is_given: IsGiven = lambda _name: False) -> ReadGraph:
    """Read a graph with everything in it.

    Args:
        runtime: The ONNX Runtime that has the graph.
        graph: The ``OrtGraph``.
        is_given: Whether the session brings the value of a weight, so that the graph's is not the true one.
    """
    return _GraphReader(runtime, is_given).read(graph)


def read_node(runtime: OrtRuntime, node: int, is_given: IsGiven = lambda _name: False) -> ReadGraph:
    """Read one node, with its bodies, as a graph of its own; see ``read_graph``."""
    return _GraphReader(runtime, is_given).read_alone(node)


def read_border(runtime: OrtRuntime, node: int) -> tuple[list[str], list[str]]:
    """The names of what a node reads and of what it makes, empty for what it leaves out."""
    return _GraphReader(runtime).border(node)


def read_tensor_type(runtime: OrtRuntime, info: int) -> tuple[ir.TensorType, ir.Shape | None]:
    """Read an ``OrtTensorTypeAndShapeInfo``."""
    return _GraphReader(runtime).tensor_type(info)


def read_type(runtime: OrtRuntime, info: int) -> tuple[ir.TypeProtocol | None, ir.Shape | None]:
    """Read an ``OrtTypeInfo``; None for a kind that Dovetail does not know."""
    return _GraphReader(runtime).any_type(info)


class _GraphReader:
    def __init__(self, runtime: OrtRuntime, is_given: IsGiven = lambda _name: False) -> None:
        self._runtime = runtime
        self._api = runtime.api
        self._is_given = is_given
        self._outer: dict[str, ir.Value] = {}
        self._weights: dict[str, ir.Value] = {}
        """Weights of graphs around the one that is read."""
        self._given: set[ir.Value] = set()
        self._gaps: dict[ir.Node, str] = {}

    def read(self, graph: int) -> ReadGraph:
        addresses: dict[ir.Node, int] = {}
        read = self._read_graph(graph, {}, addresses)
        read.inputs.extend(self._outer.values())
        for value in self._weights.values():
            read.register_initializer(value)
        read.opset_imports.update(self._opsets(graph, read.all_nodes()))
        model = ir.Model(read, ir_version=self._number(self._api.Graph_GetOnnxIRVersion, graph))
        return self._result(model, addresses)

    def read_alone(self, node: int) -> ReadGraph:
        addresses: dict[ir.Node, int] = {}
        read = self._node(node, {}, addresses)
        outputs = [value for value in read.outputs if value.name]
        graph = ir.Graph(list(self._outer.values()), outputs, nodes=[read], initializers=list(self._weights.values()))
        graph.opset_imports.update(self._opsets_around(node, graph.all_nodes()))
        return self._result(ir.Model(graph, ir_version=10), addresses)

    def _result(self, model: ir.Model, addresses: dict[ir.Node, int]) -> ReadGraph:
        return ReadGraph(model=model, addresses=addresses, given=self._given, gaps=self._gaps)

    def border(self, node: int) -> tuple[list[str], list[str]]:
        return self._names("Inputs", node), self._names("Outputs", node)

    def _names(self, what: str, node: int) -> list[str]:
        return [self._name(info) for info in self._pointers("Node", what, node)]

    def _opsets_around(self, node: int, nodes: Iterable[ir.Node]) -> dict[str, int]:
        """The opsets of a node's graph where they can be seen: those of a body, else what the operator says."""
        bodies = self._subgraphs(node)
        if bodies:
            return self._opsets(bodies[0][1], nodes)
        return {"": 1} | {one.domain: self._int(self._api.Node_GetSinceVersion, node) for one in nodes}

    def _read_graph(self, graph: int, around: dict[str, ir.Value], addresses: dict[ir.Node, int] | None) -> ir.Graph:
        scope = dict(around)
        weights = self._initializers(graph)
        inputs = self._inputs(graph, weights)
        if addresses is not None:
            inputs += self._take_given(weights)
        scope |= {value.name: value for value in inputs if value.name} | weights
        nodes = [self._node(address, scope, addresses) for address in self._pointers("Graph", "Nodes", graph)]
        outputs = [scope[self._name(info)] for info in self._pointers("Graph", "Outputs", graph)]
        return ir.Graph(inputs, outputs, nodes=nodes, initializers=list(weights.values()), name="graph")

    def _initializers(self, graph: int) -> dict[str, ir.Value]:
        read = [self._initializer(info) for info in self._pointers("Graph", "Initializers", graph)]
        return {value.name: value for value in read if value.name}

    def _inputs(self, graph: int, weights: dict[str, ir.Value]) -> list[ir.Value]:
        """The inputs of a graph, without weights; one that a run may bring in place of the model's is no weight."""
        inputs = []
        for info in self._pointers("Graph", "Inputs", graph):
            name = self._name(info)
            if name not in weights or self._flag(self._api.ValueInfo_IsOptionalGraphInput, info):
                weights.pop(name, None)
                inputs.append(self._value(info))
                self._note_given(info, inputs[-1])
        return inputs

    def _note_given(self, info: int, value: ir.Value) -> None:
        """Remember a weight that the session brings; an input that has a value in the model is none."""
        if self._flag(self._api.ValueInfo_IsConstantInitializer, info) and self._is_given(value.name or ""):
            self._given.add(value)

    def _take_given(self, weights: dict[str, ir.Value]) -> list[ir.Value]:
        """Take from the weights those whose values the session brings."""
        taken = [weights.pop(name) for name in list(weights) if self._is_given(name)]
        self._given.update(taken)
        return taken

    def _node(self, address: int, scope: dict[str, ir.Value], addresses: dict[ir.Node, int] | None) -> ir.Node:
        api = self._api
        inputs = [self._read_value(info, scope) for info in self._pointers("Node", "Inputs", address)]
        for info in self._pointers("Node", "ImplicitInputs", address):
            self._read_value(info, scope)
        outputs = [self._made(info, scope) for info in self._pointers("Node", "Outputs", address)]
        attributes, gap = self._attributes(address, outputs)
        bodies = self._subgraphs(address)
        node = ir.Node(
            self._text(api.Node_GetDomain, address),
            self._text(api.Node_GetOperatorType, address),
            inputs,
            attributes + self._bodies(bodies, scope),
            outputs=outputs,
            name=self._text(api.Node_GetName, address) or None,
        )
        gap = gap or self._find_given_inside(bodies)
        if gap:
            self._gaps[node] = gap
        if addresses is not None:
            addresses[node] = address
        return node

    def _find_given_inside(self, bodies: Sequence[tuple[str, int]]) -> str:
        """Which weight of a node's own bodies the session brings: ONNX Runtime hands it over to nobody else."""
        for _, graph in bodies:
            for info in self._pointers("Graph", "Initializers", graph):
                name = self._name(info)
                if self._is_given(name):
                    return f"the session brings the value of weight '{name}' in its body"
        return ""

    def _read_value(self, info: int | None, scope: dict[str, ir.Value]) -> ir.Value | None:
        name = self._name(info)
        if not info or not name:
            return None
        if name not in scope:
            scope[name] = self._outside(info, name)
        return scope[name]

    def _outside(self, info: int, name: str) -> ir.Value:
        """A value of a graph around this one: a weight of it, or else an input."""
        if name not in self._weights and name not in self._outer:
            is_weight = self._flag(self._api.ValueInfo_IsConstantInitializer, info) and not self._is_given(name)
            try:
                self._note_outside(info, name, is_weight=is_weight)
            except OrtError:
                # In a body ONNX Runtime does not find the file of a weight around it: a run brings the value.
                value = self._outer[name] = self._value(info)
                self._given.add(value)
        return self._weights[name] if name in self._weights else self._outer[name]

    def _note_outside(self, info: int, name: str, *, is_weight: bool) -> None:
        known = self._weights if is_weight else self._outer
        known[name] = self._initializer(info) if is_weight else self._value(info)
        self._note_given(info, known[name])

    def _made(self, info: int | None, scope: dict[str, ir.Value]) -> ir.Value:
        name = self._name(info)
        if not info or not name:
            return ir.Value(name="")
        value = scope[name] = self._value(info)
        return value

    def _bodies(self, bodies: Sequence[tuple[str, int]], scope: dict[str, ir.Value]) -> list[ir.Attr]:
        return [ir.AttrGraph(name, self._read_graph(graph, scope, None)) for name, graph in bodies]

    def _subgraphs(self, node: int) -> list[tuple[str, int]]:
        count = self._size(self._api.Node_GetNumSubgraphs, node)
        graphs, names = (ctypes.c_void_p * count)(), (ctypes.c_void_p * count)()
        if count:
            self._api.Node_GetSubgraphs(node, ctypes.addressof(graphs), count, ctypes.addressof(names))
        return [(read_text(name), graph or 0) for name, graph in zip(names, graphs, strict=True)]

    # values

    def _name(self, info: int | None) -> str:
        return self._text(self._api.GetValueInfoName, info) if info else ""

    def _initializer(self, info: int) -> ir.Value:
        value, data = self._value(info), ctypes.c_void_p()
        if self._is_given(value.name or ""):
            return value
        self._api.ValueInfo_GetInitializerValue(info, ctypes.addressof(data))
        # Strings are objects of C++: a weight of them has no value here, and whoever reads it is left to ONNX Runtime.
        if data.value and is_number(value.dtype):
            value.const_value = self._tensor(data.value, value.name)
        return value

    def _tensor(self, data: int, name: str | None) -> ir.Tensor[Any]:
        array = tensor_array(self._api, data)
        return ir.Tensor(array, dtype=ir.DataType.from_numpy(array.dtype), shape=ir.Shape(array.shape), name=name)

    def _value(self, info: int) -> ir.Value:
        """A value; without a type where there is none yet, as in a function that was put into a body just now."""
        value, kind = ir.Value(name=self._name(info)), ctypes.c_void_p()
        try:
            self._api.GetValueInfoTypeInfo(info, ctypes.addressof(kind))
        except OrtError:
            return value
        if kind.value:
            value.type, value.shape = self.any_type(kind.value)
        return value

    def any_type(self, info: int) -> tuple[Any, ir.Shape | None]:
        api, kind = self._api, self._int(self._api.GetOnnxTypeFromTypeInfo, info)
        if kind == _ValueKind.TENSOR:
            return self.tensor_type(self._pointer(api.CastTypeInfoToTensorInfo, info))
        if kind == _ValueKind.SEQUENCE:
            sequence = self._pointer(api.CastTypeInfoToSequenceTypeInfo, info)
            element = self._inner_type(api.GetSequenceElementType, sequence)
            # Maps have no type here: a sequence of them has none either.
            return None if element is None else ir.SequenceType(element), None
        if kind == _ValueKind.OPTIONAL:
            optional = self._pointer(api.CastTypeInfoToOptionalTypeInfo, info)
            return ir.OptionalType(self._inner_type(api.GetOptionalContainedTypeInfo, optional)), None
        return None, None

    def _inner_type(self, function: Callable[..., Any], outer: int) -> Any:
        """The type inside of another one, of which ONNX Runtime makes a copy for us; other types are its own."""
        copy = self._pointer(function, outer)
        try:
            return self.any_type(copy)[0]
        finally:
            self._api.ReleaseTypeInfo(copy)

    def tensor_type(self, tensor: int) -> tuple[ir.TensorType, ir.Shape | None]:
        kind = kind_of(self._int(self._api.GetTensorElementType, tensor))
        return ir.TensorType(kind), self._shape(tensor)

    def _shape(self, tensor: int) -> ir.Shape | None:
        api = self._api
        if not api.TensorTypeAndShape_HasShape(tensor):
            return None
        rank = self._size(api.GetDimensionsCount, tensor)
        sizes, names = (ctypes.c_int64 * rank)(), (ctypes.c_void_p * rank)()
        if rank:
            api.GetDimensions(tensor, ctypes.addressof(sizes), rank)
            api.GetSymbolicDimensions(tensor, ctypes.addressof(names), rank)
        named = (read_text(name) or None for name in names)
        return ir.Shape([size if size >= 0 else name for size, name in zip(sizes, named, strict=True)])

    # attributes

    def _attributes(self, node: int, outputs: Sequence[ir.Value]) -> tuple[list[ir.Attr], str]:
        """The attributes of a node, without bodies, and what of them cannot be read."""
        found, gap = [], ""
        for attribute in self._pointers("Node", "Attributes", node):
            try:
                found.append(self._attribute_of(attribute, outputs))
            except OrtError as error:
                gap = f"attribute '{self._text(self._api.OpAttr_GetName, attribute)}' cannot be read: {error}"
        return [one for one in found if one is not None], gap

    def _attribute_of(self, attribute: int, outputs: Sequence[ir.Value]) -> ir.Attr | None:
        """An attribute of a node; one that is a type, which ONNX Runtime does not give, is that of the result."""
        try:
            return read_attribute(self._runtime, attribute)
        except OrtError:
            kind = outputs[0].type if outputs else None
            if not isinstance(kind, ir.OptionalType):
                raise
            return ir.AttrTypeProto(
                self._text(self._api.OpAttr_GetName, attribute), ir.TypeAndShape(kind.elem_type, None)
            )

    # the usual forms of calls

    def _opsets(self, graph: int, nodes: Iterable[ir.Node]) -> dict[str, int]:
        api, count = self._api, self._size(self._api.Graph_GetNumOperatorSets, graph)
        domains, versions = (ctypes.c_void_p * count)(), (ctypes.c_int64 * count)()
        api.Graph_GetOperatorSets(graph, ctypes.addressof(domains), ctypes.addressof(versions), count)
        used = {"" if node.domain == "ai.onnx" else node.domain for node in nodes}
        found = {read_text(domain): int(version) for domain, version in zip(domains, versions, strict=True)}
        found.setdefault("", found.pop("ai.onnx", 1))
        found[NHWC_DOMAIN] = found[""]  # these are ONNX's operators with their channels last
        return {domain: found.get(domain, 1) for domain in (*used, "")}

    def _pointers(self, owner: str, what: str, address: int) -> list[Any]:
        api = self._api
        return read_pointers(getattr(api, f"{owner}_GetNum{what}"), getattr(api, f"{owner}_Get{what}"), address)

    def _pointer(self, function: Callable[..., Any], owner: int) -> int:
        place = ctypes.c_void_p()
        function(owner, ctypes.addressof(place))
        return place.value or 0

    def _text(self, function: Callable[..., Any], owner: int) -> str:
        return read_text(self._pointer(function, owner))

    def _int(self, function: Callable[..., Any], owner: int) -> int:
        place = ctypes.c_int()
        function(owner, ctypes.addressof(place))
        return place.value

    def _size(self, function: Callable[..., Any], owner: int) -> int:
        place = ctypes.c_size_t()
        function(owner, ctypes.addressof(place))
        return place.value

    def _number(self, function: Callable[..., Any], owner: int) -> int:
        place = ctypes.c_int64()
        function(owner, ctypes.addressof(place))
        return place.value

    def _flag(self, function: Callable[..., Any], owner: int) -> bool:
        place = ctypes.c_bool()
        function(owner, ctypes.addressof(place))
        return place.value
