"""Which nodes Dovetail takes from ONNX Runtime, and in which groups. Pure planning over a graph that was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import onnx_ir as ir

import dovetail
from dovetail.provider.partition import find_partitions

__all__ = ["Claims", "find_groups", "is_dense", "nodes_between"]

_OURS, _THEIRS = "dovetail", "onnxruntime"


@dataclass(frozen=True, kw_only=True)
class Claims:
    """The groups that are taken, and why other nodes are not."""

    groups: list[list[ir.Node]]
    reasons: Mapping[ir.Node, str] = field(default_factory=dict)


def find_groups(supports: Sequence[dovetail.Support], wanted: Set[ir.Node]) -> Claims:
    """Divide the wanted nodes into convex groups whose borders are tensors of numbers.

    A node at whose border a value is that cannot cross, a sequence or strings, goes back to ONNX Runtime with all that
    share the value.
    """
    nodes = [support.node for support in supports]
    taken = set(wanted)
    reasons: dict[ir.Node, str] = {}
    while True:
        groups = _partition(nodes, taken)
        refused = {node: why for group in groups for node, why in _bad_borders(group)}
        if not refused:
            return Claims(groups=groups, reasons=reasons)
        reasons |= refused
        taken -= refused.keys()


def _partition(nodes: Sequence[ir.Node], taken: Set[ir.Node]) -> list[list[ir.Node]]:
    number = {node: index for index, node in enumerate(nodes)}
    owners = [_OURS if node in taken else _THEIRS for node in nodes]
    producers = [sorted({number[p] for p in _producers(node) if p in number}) for node in nodes]
    found = find_partitions(owners, producers, frozenset((_OURS, _THEIRS)))
    return [[nodes[index] for index in indices] for owner, indices in found if owner == _OURS]


def _producers(node: ir.Node) -> Iterator[ir.Node]:
    for value in reads_of(node):
        producer = value.producer()
        if producer is not None:
            yield producer


def reads_of(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads, its bodies included."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph().all_nodes():
                yield from (value for value in inner.inputs if value is not None)
            yield from attribute.as_graph().outputs


def _bad_borders(group: Sequence[ir.Node]) -> Iterator[tuple[ir.Node, str]]:
    inside = set(group)
    for node in group:
        for value in reads_of(node):
            if value.producer() not in inside and value.const_value is None and not is_dense(value):
                yield node, f"it reads '{value.name}', which cannot cross to another engine"
        for value in node.outputs:
            leaves = value.is_graph_output() or any(use.node not in inside for use in value.uses())
            if value.name and leaves and not is_dense(value):
                yield node, f"it makes '{value.name}', which cannot cross to another engine"


def is_dense(value: ir.Value) -> bool:
    """Whether a value is a tensor of numbers with whole bytes, so that it is memory and nothing else."""
    if not isinstance(value.type, ir.TensorType):
        return False
    kind = value.type.dtype
    return kind not in (ir.DataType.STRING, ir.DataType.UNDEFINED) and kind.bitwidth >= 8


def nodes_between(nodes: Sequence[ir.Node], ends: Set[ir.Node]) -> set[ir.Node]:
    """The nodes on paths from one of the ends to another; nodes are in topological order."""
    after: set[ir.Node] = set()
    for node in nodes:
        if any(producer in after or producer in ends for producer in _producers(node)):
            after.add(node)
    before: set[ir.Node] = set()
    for node in reversed(nodes):
        if node in before or node in ends:
            before.update(producer for producer in _producers(node))
    return (after & before) - ends
