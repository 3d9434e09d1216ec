"""From nodes with owners to partitions: sets of nodes that one provider runs as one step.

Pure planning over numbers. A partition is convex: no path leaves it and comes back, so partitions can run one after
the other. The count of changes of owner on the way to a node is its level; nodes of one owner and level are one
partition, which makes partitions as large as the levels allow, in time linear in the number of edges.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

__all__ = ["Partition", "find_partitions"]

Partition = list[int]
"""Numbers of nodes, in order."""
Owner = TypeVar("Owner", bound=Hashable)


def find_partitions(
    owners: Sequence[Owner], producers: Sequence[Sequence[int]], whole: frozenset[Owner]
) -> list[tuple[Owner, Partition]]:
    """Partitions in an order in which they can run.

    Args:
        owners: Whom each node belongs to, such as a provider and what it makes of the node; nodes are in topological
            order.
        producers: For each node the nodes it reads from.
        whole: Owners that take partitions; every node of another one is a partition of its own.

    >>> find_partitions(["a", "b", "a", "a"], [[], [0], [0], [1, 2]], frozenset({"a"}))
    [('a', [0, 2]), ('b', [1]), ('a', [3])]
    """
    levels = _raise_levels(owners, producers, _find_levels(owners, producers, whole), whole)
    groups: dict[tuple[int, Owner, int], Partition] = {}
    for node, (owner, level) in enumerate(zip(owners, levels, strict=True)):
        alone = -1 if owner in whole else node
        groups.setdefault((level, owner, alone), []).append(node)
    return [(owners[nodes[0]], nodes) for nodes in _in_order(list(groups.values()), producers)]


def _in_order(groups: list[Partition], producers: Sequence[Sequence[int]]) -> list[Partition]:
    """The groups so that each comes after what it reads, and otherwise as the nodes came: that keeps lives short."""
    group_of = {node: index for index, nodes in enumerate(groups) for node in nodes}
    readers: list[set[int]] = [set() for _ in groups]
    for node, sources in enumerate(producers):
        for source in sources:
            if group_of[source] != group_of[node]:
                readers[group_of[source]].add(group_of[node])
    waiting = [0] * len(groups)
    for reading in readers:
        for group in reading:
            waiting[group] += 1
    ready = [(groups[index][0], index) for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, index = heapq.heappop(ready)
        ordered.append(groups[index])
        for group in readers[index]:
            waiting[group] -= 1
            if not waiting[group]:
                heapq.heappush(ready, (groups[group][0], group))
    return ordered


def _find_levels(owners: Sequence[Owner], producers: Sequence[Sequence[int]], whole: frozenset[Owner]) -> list[int]:
    """How often the owner changes at most on the way to each node; a node alone changes it at both ends."""
    levels: list[int] = []
    for node, owner in enumerate(owners):
        level = 0
        for source in producers[node]:
            changes = owners[source] != owner or owner not in whole
            level = max(level, levels[source] + changes)
        levels.append(level)
    return levels


def _raise_levels(
    owners: Sequence[Owner], producers: Sequence[Sequence[int]], levels: list[int], whole: frozenset[Owner]
) -> list[int]:
    """Move nodes to later partitions of their owner where all who read them allow it.

    A node without inputs would otherwise begin a partition of its own at level 0, although only a late one needs it.
    """
    ceilings: dict[int, int] = {}
    raised = list(levels)
    kept: Mapping[Owner, set[int]] = _anchored_levels(owners, producers, levels)
    for node in range(len(owners) - 1, -1, -1):
        owner = owners[node]
        ceiling = ceilings.get(node, levels[node])
        if owner in whole and levels[node] not in kept[owner] and ceiling in kept[owner]:
            raised[node] = ceiling
        for source in producers[node]:
            changes = owners[source] != owner or owner not in whole
            limit = raised[node] - changes
            ceilings[source] = min(ceilings.get(source, limit), limit)
    return raised


def _anchored_levels(
    owners: Sequence[Owner], producers: Sequence[Sequence[int]], levels: Sequence[int]
) -> dict[Owner, set[int]]:
    """For each owner the levels at which some node must be: those that feed another owner next, or end there."""
    read_by_same: list[bool] = [False] * len(owners)
    feeds_other: list[bool] = [False] * len(owners)
    for node, sources in enumerate(producers):
        for source in sources:
            if owners[source] == owners[node]:
                read_by_same[source] = True
            else:
                feeds_other[source] = True
    kept: dict[Owner, set[int]] = {owner: set() for owner in owners}
    for node, owner in enumerate(owners):
        if feeds_other[node] or not read_by_same[node]:
            kept[owner].add(levels[node])
    return kept
