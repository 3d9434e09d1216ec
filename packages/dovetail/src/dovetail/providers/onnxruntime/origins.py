"""Which nodes of one graph a node of its optimised form was made of.

ONNX Runtime keeps no such list. It keeps the names of most tensors, so what lies between the inputs and the output of
an optimised node in the original graph is what it was made of. Where a layout is changed tensors get new names; then
the name of the node, which begins with that of a node or tensor of before, says where it belongs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail.protobuf import Field, MalformedMessageError, read_fields

__all__ = ["GraphNode", "find_makers", "read_nodes", "trace_origins"]

_GRAPH: Final = 7
_NODE: Final = 1
_INPUT, _OUTPUT, _NAME, _OP, _ATTRIBUTE = 1, 2, 3, 4, 5
_ATTRIBUTE_GRAPHS: Final = (6, 11)
_FIRST_BODY: Final = b"then_branch"
_MAX_DEPTH: Final = 32
_SAME: Final = frozenset(("ReorderInput", "ReorderOutput", "Identity"))
"""Operators whose output is their input in another layout."""
_LAYOUT_MARK: Final = re.compile(r"(.+)(?:_nchwc|_token_\d+)")
"""What ends the names of nodes whose layout was changed: blocks of channels, or channels last."""


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """What tells a node's place in its graph."""

    name: str
    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    bodies: Sequence[Sequence[GraphNode]] = ()


def read_nodes(model: bytes | memoryview) -> list[GraphNode]:
    """The nodes of a model's graph in the order they are stored, each with its bodies; none of what is no model."""
    data = memoryview(model)
    try:
        graphs = [field for field in read_fields(data) if field.number == _GRAPH and field.has_length]
        return [node for graph in graphs for node in _read_graph(data, graph, 0)]
    except MalformedMessageError:
        return []


def _read_graph(data: memoryview, graph: Field, depth: int) -> list[GraphNode]:
    if depth > _MAX_DEPTH:
        raise MalformedMessageError
    fields = read_fields(data, graph.content, graph.end)
    return [_read_node(data, each, depth) for each in fields if each.number == _NODE and each.has_length]


def _read_node(data: memoryview, node: Field, depth: int) -> GraphNode:
    texts: dict[int, list[str]] = {}
    bodies: list[tuple[bool, list[GraphNode]]] = []
    for part in read_fields(data, node.content, node.end):
        if part.has_length and part.number <= _OP:
            texts.setdefault(part.number, []).append(bytes(data[part.content : part.end]).decode(errors="replace"))
        elif part.has_length and part.number == _ATTRIBUTE:
            inner = [each for each in read_fields(data, part.content, part.end) if each.has_length]
            is_first = any(each.number == 1 and bytes(data[each.content : each.end]) == _FIRST_BODY for each in inner)
            graphs = [each for each in inner if each.number in _ATTRIBUTE_GRAPHS]
            bodies += [(not is_first, _read_graph(data, each, depth + 1)) for each in graphs]
    name, op = (next(iter(texts.get(number, ())), "") for number in (_NAME, _OP))
    # Attributes have no order, and the body for true comes first.
    ordered = [body for _, body in sorted(bodies, key=lambda each: each[0])]
    return GraphNode(name=name, op=op, inputs=texts.get(_INPUT, []), outputs=texts.get(_OUTPUT, []), bodies=ordered)


def trace_origins(nodes: Sequence[GraphNode], sources: Sequence[GraphNode]) -> list[list[int]]:
    """For each optimised node the numbers of the original nodes that it was made of, in their order.

    >>> before = [GraphNode(name="c", op="Conv", inputs=["x"], outputs=["t"]),
    ...           GraphNode(name="r", op="Relu", inputs=["t"], outputs=["y"])]
    >>> after = [GraphNode(name="fused", op="FusedConv", inputs=["x"], outputs=["y"])]
    >>> trace_origins(after, before)
    [[0, 1]]
    """
    tracer = _Tracer(sources)
    for node in nodes:
        tracer.name_outputs(node)
    return [tracer.trace(node) for node in nodes]


def find_makers(nodes: Sequence[GraphNode]) -> list[list[int]]:
    """For each node the nodes before it that make what it reads."""
    makers: dict[str, int] = {}
    found = []
    for number, node in enumerate(nodes):
        found.append(sorted({makers[name] for name in node.inputs if name in makers}))
        makers.update({name: number for name in node.outputs if name})
    return found


@dataclass
class _Tracer:
    """Follows tensors of the optimised graph through the original one."""

    sources: Sequence[GraphNode]
    _makers: Mapping[str, int] = field(init=False)
    """Tensor of the original graph -> the node that makes it."""
    _by_name: Mapping[str, int] = field(init=False)
    _tensors: dict[str, str] = field(default_factory=dict, init=False)
    """Tensor of the optimised graph -> the original tensor that it stands for."""

    def __post_init__(self) -> None:
        self._makers = {name: i for i, node in enumerate(self.sources) for name in node.outputs if name}
        self._by_name = {node.name: i for i, node in enumerate(self.sources) if node.name}

    def name_outputs(self, node: GraphNode) -> None:
        """Find out what the outputs of an optimised node stand for."""
        known = [name for name in node.outputs if name in self._makers]
        self._tensors.update({name: name for name in known})
        if not known and node.outputs:
            if node.op in _SAME and node.inputs:
                origin: str | None = self._tensors.get(node.inputs[0], node.inputs[0])
            else:
                origin = self._guess_output(node.name)
            if origin is not None:
                self._tensors[node.outputs[0]] = origin

    def _guess_output(self, name: str) -> str | None:
        """The original tensor that the name of an optimised node belongs to."""
        for base in _shorten(name):
            if base in self._makers:
                return base
            if base in self._by_name:
                return next(iter(self.sources[self._by_name[base]].outputs), None)
        return None

    def trace(self, node: GraphNode) -> list[int]:
        """The original nodes between the inputs and the outputs of an optimised one."""
        if node.op in _SAME and all(name not in self._makers for name in node.outputs):
            return []
        ends = {self._tensors[name] for name in node.outputs if name in self._tensors}
        inputs = {self._tensors.get(name, name) for name in node.inputs}
        # What other optimised nodes make is theirs, whether or not this one still reads it.
        others = set(self._tensors.values()) - ends
        return sorted(self._walk_back(ends - inputs, inputs | others))

    def _walk_back(self, ends: Iterable[str], stops: set[str]) -> set[int]:
        found: set[int] = set()
        left = [self._makers[name] for name in ends if name in self._makers]
        while left:
            number = left.pop()
            if number not in found:
                found.add(number)
                inputs = (name for name in self.sources[number].inputs if name not in stops)
                left += [self._makers[name] for name in inputs if name in self._makers]
        return found


def _shorten(name: str) -> Iterator[str]:
    """A name, then what is left of it without marks of layouts, then its scopes.

    >>> list(_shorten("body/conv_token_1_token_12"))
    ['body/conv_token_1_token_12', 'body/conv_token_1', 'body/conv', 'body']
    """
    yield name
    while marked := _LAYOUT_MARK.match(name):
        name = marked[1]
        yield name
    while name := name.rpartition("/")[0]:
        yield name
