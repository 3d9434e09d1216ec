"""Which nodes Dovetail takes from ONNX Runtime, and in which groups. Pure planning over a graph that was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import onnx_ir as ir

import dovetail
from dovetail.build.assign.layers import body_graphs
from dovetail.provider.partition import find_partitions
from onnxruntime_ep_dovetail.claim.costs import BORDER_US
from onnxruntime_ep_dovetail.graph.values import is_dense

__all__ = ["Claims", "find_groups", "inner_nodes", "join_groups", "reads_of"]

CostOf = Callable[[ir.Node], float]
Step = Callable[[ir.Node], Iterable[ir.Node]]

_MAX_TRIALS: Final = 200
"""How many ways of joining groups are tried; each takes a pass over the graph, which must not be planned for long."""
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
    """What a node reads, and what its bodies read from around it."""
    yield from (value for value in node.inputs if value is not None)
    inside = inner_nodes(node)
    graphs = [graph for one in (node, *inside) for graph in body_graphs(one)]
    made = {value for one in inside for value in one.outputs} | {value for graph in graphs for value in graph.inputs}
    for values in (*(one.inputs for one in inside), *(graph.outputs for graph in graphs)):
        yield from (value for value in values if value is not None and value not in made)


def inner_nodes(node: ir.Node) -> list[ir.Node]:
    """Every node in the bodies of a node, and in theirs."""
    return [inner for graph in body_graphs(node) for inner in graph.all_nodes()]


def _bad_borders(group: Sequence[ir.Node]) -> Iterator[tuple[ir.Node, str]]:
    inside = {one for node in group for one in (node, *inner_nodes(node))}
    for node in group:
        for value in reads_of(node):
            if value.producer() not in inside and value.const_value is None and not is_dense(value):
                yield node, f"it reads '{value.name}', which cannot cross to another engine"
        for value in node.outputs:
            leaves = value.is_graph_output() or any(use.node not in inside for use in value.uses())
            if value.name and leaves and not is_dense(value):
                yield node, f"it makes '{value.name}', which cannot cross to another engine"


def join_groups(supports: Sequence[dovetail.Support], wanted: Set[ir.Node], extra_us: CostOf) -> Claims:
    """The groups of ``find_groups``, with nodes between them taken along where fewer groups are faster.

    Args:
        supports: Every node of the graph, in topological order.
        wanted: The nodes that are taken whatever they cost.
        extra_us: How much longer a node takes here; one that takes longer than a border is never taken along.
    """
    costs = {s.node: extra_us(s.node) for s in supports if s.provider is not None and s.node not in wanted}
    joining = _Joining(supports, wanted)
    affordable = {node: cost for node, cost in costs.items() if cost < BORDER_US}
    while joining.join(list(dict.fromkeys(_bridges(joining.claims.groups, affordable)))):
        pass  # with fewer groups there may be new bridges
    return joining.claims


class _Joining:
    """Groups that grow together over bridges: nodes between two of them, worth less than a border."""

    def __init__(self, supports: Sequence[dovetail.Support], wanted: Set[ir.Node]) -> None:
        self._supports = supports
        self._taken = set(wanted)
        self._trials_left = _MAX_TRIALS
        self.claims = find_groups(supports, wanted)

    def join(self, bridges: Sequence[frozenset[ir.Node]]) -> bool:
        """Take those bridges that each make one group less; whether there was one.

        All of them are tried together, and only if that does not do it, in halves.
        """
        if not bridges or not self._trials_left:
            return False
        self._trials_left -= 1
        added = frozenset[ir.Node]().union(*bridges)
        trial = find_groups(self._supports, self._taken | added)
        saved = len(self.claims.groups) - len(trial.groups)
        if saved >= len(bridges) and not added & trial.reasons.keys():
            self.claims = trial
            self._taken |= added
            return True
        middle = len(bridges) // 2
        halves = (bridges[:middle], bridges[middle:]) if middle else ()
        joined = [self.join(half) for half in halves]
        return any(joined)


def _bridges(groups: Sequence[Sequence[ir.Node]], affordable: Mapping[ir.Node, float]) -> Iterator[frozenset[ir.Node]]:
    """For each two groups the affordable nodes on paths between them, if these cost less than a border together."""
    group_of = {node: index for index, group in enumerate(groups) for node in group}
    for index, group in enumerate(groups):
        after = _reach(group, affordable, _readers)
        for other in {group_of[reader] for node in after for reader in _readers(node) if reader in group_of}:
            bridge = after & _reach(groups[other], affordable, _producers)
            if other != index and bridge and sum(affordable[node] for node in bridge) < BORDER_US:
                yield frozenset(bridge)


def _reach(group: Sequence[ir.Node], affordable: Mapping[ir.Node, float], step: Step) -> set[ir.Node]:
    """The affordable nodes that steps lead to from a group, each path no dearer than a border."""
    spent = dict.fromkeys(group, 0.0)
    edge = list(group)
    while edge:
        node = edge.pop()
        for following in step(node):
            cost = spent[node] + affordable.get(following, BORDER_US)
            if cost < min(BORDER_US, spent.get(following, BORDER_US)):
                spent[following] = cost
                edge.append(following)
    return spent.keys() - set(group)


def _readers(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.outputs:
        yield from (use.node for use in value.uses())
