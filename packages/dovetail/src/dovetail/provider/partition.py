"""From nodes with providers to partitions: sets of nodes that one provider runs as one step.

Pure planning over numbers. A partition is convex: no path leaves it and comes back, so partitions can run one after
the other. The count of changes of provider on the way to a node is its level; nodes of one provider and level are one
partition, which makes partitions as large as the levels allow, in time linear in the number of edges.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

__all__ = ["Partition", "find_partitions"]

Partition = list[int]
"""Numbers of nodes, in order."""


def find_partitions(
    providers: Sequence[str], producers: Sequence[Sequence[int]], whole: frozenset[str]
) -> list[tuple[str, Partition]]:
    """Partitions in an order in which they can run.

    Args:
        providers: The provider of each node; nodes are in topological order.
        producers: For each node the nodes it reads from.
        whole: Providers that take partitions; every node of another one is a partition of its own.

    >>> find_partitions(["a", "b", "a", "a"], [[], [0], [0], [1, 2]], frozenset({"a"}))
    [('a', [0, 2]), ('b', [1]), ('a', [3])]
    """
    levels = _raise_levels(providers, producers, _find_levels(providers, producers, whole), whole)
    groups: dict[tuple[int, str, int], Partition] = {}
    for node, (provider, level) in enumerate(zip(providers, levels, strict=True)):
        alone = -1 if provider in whole else node
        groups.setdefault((level, provider, alone), []).append(node)
    return [(providers[nodes[0]], nodes) for nodes in _in_order(list(groups.values()), producers)]


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


def _find_levels(providers: Sequence[str], producers: Sequence[Sequence[int]], whole: frozenset[str]) -> list[int]:
    """How often the provider changes at most on the way to each node; a node alone changes it at both ends."""
    levels: list[int] = []
    for node, provider in enumerate(providers):
        level = 0
        for source in producers[node]:
            changes = providers[source] != provider or provider not in whole
            level = max(level, levels[source] + changes)
        levels.append(level)
    return levels


def _raise_levels(
    providers: Sequence[str], producers: Sequence[Sequence[int]], levels: list[int], whole: frozenset[str]
) -> list[int]:
    """Move nodes to later partitions of their provider where all who read them allow it.

    A node without inputs would otherwise begin a partition of its own at level 0, although only a late one needs it.
    """
    ceilings: dict[int, int] = {}
    raised = list(levels)
    kept: Mapping[str, set[int]] = _anchored_levels(providers, producers, levels)
    for node in range(len(providers) - 1, -1, -1):
        provider = providers[node]
        ceiling = ceilings.get(node, levels[node])
        if provider in whole and levels[node] not in kept[provider] and ceiling in kept[provider]:
            raised[node] = ceiling
        for source in producers[node]:
            changes = providers[source] != provider or provider not in whole
            limit = raised[node] - changes
            ceilings[source] = min(ceilings.get(source, limit), limit)
    return raised


def _anchored_levels(
    providers: Sequence[str], producers: Sequence[Sequence[int]], levels: Sequence[int]
) -> dict[str, set[int]]:
    """For each provider the levels at which some node must be: those that feed another provider next, or end there."""
    read_by_same: list[bool] = [False] * len(providers)
    feeds_other: list[bool] = [False] * len(providers)
    for node, sources in enumerate(producers):
        for source in sources:
            if providers[source] == providers[node]:
                read_by_same[source] = True
            else:
                feeds_other[source] = True
    kept: dict[str, set[int]] = {provider: set() for provider in providers}
    for node, provider in enumerate(providers):
        if feeds_other[node] or not read_by_same[node]:
            kept[provider].add(levels[node])
    return kept
