"""Partitions are convex, complete, in an order that can run, and few."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.provider.partition import find_partitions

WHOLE = frozenset({"a", "c"})


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[list[str], list[list[int]]]:
    count = draw(st.integers(1, 25))
    providers = [draw(st.sampled_from("abc")) for _ in range(count)]
    producers = [sorted(draw(st.sets(st.integers(0, node - 1), max_size=3))) if node else [] for node in range(count)]
    return providers, producers


@settings(deadline=None, max_examples=300)
@given(_graphs())
def test_every_node_is_in_one_partition_of_its_provider_and_partitions_can_run_in_order(
    graph: tuple[list[str], list[list[int]]],
) -> None:
    providers, producers = graph
    partitions = find_partitions(providers, producers, WHOLE)
    assert sorted(node for _, nodes in partitions for node in nodes) == list(range(len(providers)))
    place = {node: index for index, (_, nodes) in enumerate(partitions) for node in nodes}
    for provider, nodes in partitions:
        assert {providers[node] for node in nodes} == {provider}
        assert provider in WHOLE or len(nodes) == 1
        assert nodes == sorted(nodes)
    # No edge goes back, so no path can leave a partition and return to it.
    assert all(place[source] <= place[node] for node, sources in enumerate(producers) for source in sources)


def test_a_graph_of_one_provider_is_one_partition() -> None:
    assert find_partitions(["a"] * 4, [[], [0], [1], [0, 2]], WHOLE) == [("a", [0, 1, 2, 3])]


def test_a_chain_cut_by_plugins_has_a_partition_between_each() -> None:
    providers = ["a", "b", "a", "a", "b", "a"]
    producers = [[], [0], [1], [2], [3], [4]]
    found = find_partitions(providers, producers, WHOLE)
    assert [nodes for _, nodes in found] == [[0], [1], [2, 3], [4], [5]]


def test_what_only_a_late_partition_needs_goes_there() -> None:
    providers = ["b", "a", "a"]  # node 1 reads nothing, and only node 2, after the plugin, reads it
    assert [nodes for _, nodes in find_partitions(providers, [[], [], [0, 1]], WHOLE)] == [[0], [1, 2]]


def test_side_branches_do_not_split_a_partition() -> None:
    providers = ["a", "a", "b", "a", "a"]
    producers = [[], [0], [0], [1], [2, 3]]
    assert [nodes for _, nodes in find_partitions(providers, producers, WHOLE)] == [[0, 1, 3], [2], [4]]


def test_two_kinds_of_steps_of_one_provider_are_kept_apart() -> None:
    owners = [("a", "partition"), ("a", "partition"), ("a", "node"), ("a", "node"), ("a", "partition")]
    found = find_partitions(owners, [[], [0], [1], [2], [3]], frozenset({("a", "partition")}))
    assert [nodes for _, nodes in found] == [[0, 1], [2], [3], [4]]
