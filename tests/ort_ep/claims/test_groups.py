"""Groups of nodes: convex, in an order in which they can run, with borders that can be crossed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st

import dovetail
from onnxruntime_ep_dovetail.claim.costs import BORDER_US
from onnxruntime_ep_dovetail.claim.groups import Claims, find_groups, join_groups

Graph = list[ir.Node]
_CROSSES = ir.TensorType(ir.DataType.FLOAT)
_CANNOT_CROSS = ir.SequenceType(ir.TensorType(ir.DataType.FLOAT))


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 12) -> Graph:
    """Nodes in topological order, each reading from up to three earlier ones."""
    nodes: Graph = []
    for index in range(draw(st.integers(1, max_nodes))):
        sources = draw(st.lists(st.sampled_from(nodes), max_size=3, unique=True)) if nodes else []
        node = ir.Node("", "Op", [source.outputs[0] for source in sources], name=str(index), num_outputs=1)
        node.outputs[0].name, node.outputs[0].type = f"v{index}", _CROSSES
        nodes.append(node)
    return nodes


def _supports(nodes: Graph) -> list[dovetail.Support]:
    return [dovetail.Support(node=node, provider="cpu") for node in nodes]


def _sources(node: ir.Node) -> list[ir.Node]:
    return [producer for value in node.inputs if value and (producer := value.producer())]


def _check_order(nodes: Graph, claims: Claims) -> None:
    """With each group as one node there is no cycle: every group is convex, and so are all of them together."""
    owner: dict[ir.Node, object] = {node: node for node in nodes}
    owner |= {node: index for index, group in enumerate(claims.groups) for node in group}
    waits = {one: {owner[s] for n in nodes if owner[n] == one for s in _sources(n)} - {one} for one in owner.values()}
    done: set[object] = set()
    while ready := [one for one, others in waits.items() if one not in done and others <= done]:
        done.update(ready)
    assert done == set(waits)


def _picks(nodes: Sequence[ir.Node], data: st.DataObject) -> set[ir.Node]:
    return {node for node in nodes if data.draw(st.booleans())}


def _costs(nodes: Graph, data: st.DataObject) -> Callable[[ir.Node], float]:
    choices = st.sampled_from([0.0, 1.5, 3.0, BORDER_US, math.inf])
    table = {node: data.draw(choices) for node in nodes}
    return table.__getitem__


def _total_us(claims: Claims, wanted: set[ir.Node], cost: Callable[[ir.Node], float]) -> float:
    taken = {node for group in claims.groups for node in group}
    return BORDER_US * len(claims.groups) + sum(cost(node) for node in taken - wanted)


@given(graphs(), st.data())
def test_wanted_nodes_are_in_one_group_each_and_groups_can_run_in_some_order(nodes: Graph, data: st.DataObject) -> None:
    wanted = _picks(nodes, data)
    claims = find_groups(_supports(nodes), wanted)
    flat = [node for group in claims.groups for node in group]
    assert len(flat) == len(set(flat))
    assert set(flat) == wanted
    _check_order(nodes, claims)


@given(graphs(), st.data())
def test_joined_groups_can_run_in_some_order_and_never_cost_more(nodes: Graph, data: st.DataObject) -> None:
    wanted, cost = _picks(nodes, data), _costs(nodes, data)
    apart, joined = find_groups(_supports(nodes), wanted), join_groups(_supports(nodes), wanted, cost)
    taken = {node for group in joined.groups for node in group}
    assert wanted <= taken
    assert all(cost(node) < BORDER_US for node in taken - wanted)
    assert _total_us(joined, wanted, cost) <= _total_us(apart, wanted, cost)
    _check_order(nodes, joined)


@given(graphs(), st.data())
def test_what_cannot_cross_is_on_no_border(nodes: Graph, data: st.DataObject) -> None:
    for node in _picks(nodes, data):
        node.outputs[0].type = _CANNOT_CROSS
    wanted = _picks(nodes, data)
    claims = find_groups(_supports(nodes), wanted)
    _check_order(nodes, claims)
    for group in claims.groups:
        inside = set(group)
        for node in group:
            assert all(s in inside or s.outputs[0].type == _CROSSES for s in _sources(node))
            leaves = any(reader not in inside for reader in node.outputs[0].consumers())
            assert not leaves or node.outputs[0].type == _CROSSES
    assert {node for group in claims.groups for node in group} == wanted - claims.reasons.keys()


def _chain(*names: str) -> Graph:
    nodes: Graph = []
    for name in names:
        node = ir.Node("", name, [nodes[-1].outputs[0]] if nodes else [], name=name, num_outputs=1)
        node.outputs[0].name, node.outputs[0].type = f"after_{name}", _CROSSES
        nodes.append(node)
    return nodes


def _names(claims: Claims) -> list[list[str]]:
    return [[node.op_type for node in group] for group in claims.groups]


def _join(nodes: Graph, wanted: str, cost: float | dict[str, float]) -> list[list[str]]:
    chosen = {node for node in nodes if node.op_type in wanted}
    table = cost if isinstance(cost, dict) else {node.op_type: cost for node in nodes}
    return _names(join_groups(_supports(nodes), chosen, lambda node: table.get(node.op_type, math.inf)))


def test_cheap_nodes_between_two_are_taken_along() -> None:
    assert _join(_chain(*"axyb"), "ab", 2.0) == [["a", "x", "y", "b"]]


def test_nodes_that_cost_more_than_a_border_are_not() -> None:
    assert _join(_chain(*"axyzb"), "ab", 2.0) == [["a"], ["b"]]
    assert _join(_chain(*"axb"), "ab", BORDER_US) == [["a"], ["b"]]


def test_what_lies_before_the_first_and_after_the_last_is_not() -> None:
    assert _join(_chain(*"xaybz"), "ab", 1.0) == [["a", "y", "b"]]


def test_a_dear_node_beside_a_cheap_one_keeps_groups_apart() -> None:
    start, cheap = _chain("a", "cheap")
    dear = ir.Node("", "dear", [start.outputs[0]], name="dear", num_outputs=1)
    end = ir.Node("", "b", [cheap.outputs[0], dear.outputs[0]], name="b", num_outputs=1)
    for node in (dear, end):
        node.outputs[0].name, node.outputs[0].type = f"after_{node.name}", _CROSSES
    assert _join([start, cheap, dear, end], "ab", {"cheap": 1.0}) == [["a"], ["b"]]
    assert _join([start, cheap, dear, end], "ab", {"cheap": 1.0, "dear": 2.0}) == [["a", "cheap", "dear", "b"]]


def test_three_groups_become_one() -> None:
    assert _join(_chain(*"axbyc"), "abc", 3.0) == [["a", "x", "b", "y", "c"]]


def test_a_node_that_nobody_here_runs_is_never_taken_along() -> None:
    nodes = _chain(*"axb")
    supports = [dovetail.Support(node=n, provider=None if n.op_type == "x" else "cpu") for n in nodes]
    wanted = {node for node in nodes if node.op_type != "x"}
    assert _names(join_groups(supports, wanted, lambda _: 0.0)) == [["a"], ["b"]]


def test_groups_that_are_joined_over_two_ways_need_both() -> None:
    """From a to b to c, and from a to c past b: b and c can be joined only with what lies past b."""
    a, x, b, y, c = _chain(*"axbyc")
    past = ir.Node("", "z", [a.outputs[0]], name="z", num_outputs=1)
    past.outputs[0].name, past.outputs[0].type = "after_z", _CROSSES
    last = ir.Node("", "d", [c.outputs[0], past.outputs[0]], name="d", num_outputs=1)
    last.outputs[0].name, last.outputs[0].type = "after_d", _CROSSES
    nodes = [a, x, b, past, y, c, last]
    assert [sorted(group) for group in _join(nodes, "abcd", 2.0)] == [sorted("axbyczd")]


def test_hundreds_of_groups_far_apart_stay_apart() -> None:
    assert len(_join(_chain(*(("a", "x", "x", "x") * 400)), "a", 3.0)) == 400


def test_hundreds_of_groups_side_by_side_become_one() -> None:
    assert len(_join(_chain(*("ax" * 400)), "a", 3.0)) == 1
