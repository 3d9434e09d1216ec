"""The nodes of a message in an order in which each comes after what it reads, where the file has them otherwise.

Tools write nodes in the order they were added. The specification asks for a sorted list, but nothing is lost when it
is not: what a node reads tells where it belongs. Nodes that go round in a circle are left as they are.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from typing import Any, Final

import onnx

__all__ = ["sort_nodes"]

_MAX_DEPTH: Final = 64
"""Bodies inside bodies; the check of the form refuses more."""

_Unsorted = Generator[tuple[Any, list[int]], None, set[str]]
"""Lists of nodes that are not sorted, each with the order to bring it into, inner ones first; in the end the names that
are read from outside."""


def sort_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with sorted nodes, bodies and functions included: itself where it is sorted, else a copy."""
    if next(_find_unsorted(model), None) is None:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for nodes, order in _find_unsorted(copy):
        given = list(nodes)
        ordered = [given[index] for index in order]
        del nodes[:]
        nodes.extend(ordered)
    return copy


def _find_unsorted(model: onnx.ModelProto) -> _Unsorted:
    yield from _walk_graph(model.graph, 0)
    for function in model.functions:
        yield from _walk_nodes(function.node, 0)
    return set()


def _walk_graph(graph: onnx.GraphProto, depth: int) -> _Unsorted:
    read = yield from _walk_nodes(graph.node, depth)
    read |= {info.name for info in graph.output}
    made = {name for node in graph.node for name in node.output}
    return read - made - {info.name for info in graph.input} - {tensor.name for tensor in graph.initializer}


def _walk_nodes(nodes: Any, depth: int) -> _Unsorted:
    reads: list[set[str]] = []
    for node in nodes:
        read = {name for name in node.input if name}
        for attribute in node.attribute if depth < _MAX_DEPTH else ():
            bodies = [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs
            for body in bodies:
                read |= yield from _walk_graph(body, depth + 1)
        reads.append(read)
    order = _find_order([list(node.output) for node in nodes], reads)
    if order is not None:
        yield nodes, order
    return set().union(*reads)


def _find_order(outputs: Sequence[Sequence[str]], reads: Sequence[set[str]]) -> list[int] | None:
    """The order that keeps as much as possible of the given one; None when that is sorted, or when there is none.

    >>> _find_order([["y"], ["t"]], [{"t"}, {"x"}]), _find_order([["t"], ["y"]], [{"x"}, {"t"}])
    ([1, 0], None)
    """
    maker = {name: index for index, names in enumerate(outputs) for name in names if name}
    before = [{maker[name] for name in names if name in maker} for names in reads]
    if all(max(makers, default=-1) < index for index, makers in enumerate(before)):
        return None
    after: list[list[int]] = [[] for _ in outputs]
    for index, makers in enumerate(before):
        for made_by in makers:
            after[made_by].append(index)
    missing = [len(makers) for makers in before]
    ready = [index for index, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in after[index]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    return order if len(order) == len(outputs) else None
