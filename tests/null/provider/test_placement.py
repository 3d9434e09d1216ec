"""Which provider gets which node."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.provider.interfaces import Claim
from dovetail.provider.placement import CONSTANT, OUTSIDE, PlacedNode, Placement, find_shape_nodes, place

TAKEN = Claim(taken=True)
REFUSED = Claim(taken=False, reason="no kernel")
ORDER = ("gpu", "cpu")


def node(name: str, op: str = "Relu", *inputs: int, **more: object) -> PlacedNode:
    return PlacedNode(name=name, op=op, inputs=inputs, **more)  # type: ignore[arg-type]


def run(nodes: Sequence[PlacedNode], gpu: Sequence[Claim], **more: object) -> Placement:
    claims = {"gpu": gpu, "cpu": [TAKEN] * len(nodes)}
    return place(nodes, claims, ORDER, devices=("gpu",), host="cpu", **more)  # type: ignore[arg-type]


def test_first_provider_that_takes_a_node_gets_it() -> None:
    placement = run([node("a", "Relu", OUTSIDE), node("b", "Sort", 0), node("c", "Relu", 1)], [TAKEN, REFUSED, TAKEN])
    assert placement.providers == ["gpu", "cpu", "gpu"]
    assert placement.reasons == ["", "gpu: no kernel", ""]


def test_what_nobody_takes_has_every_reason() -> None:
    refused = {"gpu": [REFUSED], "cpu": [Claim(taken=False, reason="unknown op")]}
    placement = place([node("a")], refused, ORDER)
    assert placement.providers == [None]
    assert placement.reasons == ["gpu: no kernel; cpu: unknown op"]


# shapes


def shape_chain() -> list[PlacedNode]:
    small = {"is_small_integer": True}
    return [
        node("relu", "Relu", OUTSIDE),
        node("shape", "Shape", 0, **small),
        node("gather", "Gather", 1, CONSTANT, **small),
        node("mul", "Mul", 2, CONSTANT, **small),
        node("concat", "Concat", 3, CONSTANT, **small),
        node("reshape", "Reshape", 0, 4),
    ]


def test_shapes_are_computed_on_the_host() -> None:
    placement = run(shape_chain(), [TAKEN] * 6)
    assert placement.providers == ["gpu", "cpu", "cpu", "cpu", "cpu", "gpu"]
    assert "shapes" in placement.reasons[1]


def test_integers_that_are_no_shape_stay_on_the_device() -> None:
    nodes = [*shape_chain()[:4], node("add", "Add", 3, OUTSIDE, is_small_integer=True)]
    assert find_shape_nodes(nodes) == set()
    assert run(nodes, [TAKEN] * 5).providers == ["gpu"] * 5


def test_integers_from_data_stay_on_the_device() -> None:
    nodes = [node("argmax", "ArgMax", OUTSIDE, is_small_integer=True), node("r", "Reshape", OUTSIDE, 0)]
    assert run(nodes, [TAKEN] * 2).providers == ["gpu", "gpu"]


def test_large_integers_stay_on_the_device() -> None:
    nodes = shape_chain()
    nodes[4] = node("concat", "Concat", 3, CONSTANT)
    assert run(nodes, [TAKEN] * 6).providers == ["gpu"] * 6


def test_shapes_stay_on_the_device_when_the_host_has_no_kernel() -> None:
    claims = {"gpu": [TAKEN] * 6, "cpu": [TAKEN, REFUSED, TAKEN, TAKEN, TAKEN, TAKEN]}
    placement = place(shape_chain(), claims, ORDER, devices=("gpu",))
    assert placement.providers == ["gpu", "gpu", "cpu", "cpu", "cpu", "gpu"]


def test_host_providers_keep_their_shapes() -> None:
    claims = {"ort": [TAKEN] * 6, "cpu": [TAKEN] * 6}
    assert place(shape_chain(), claims, ("ort", "cpu")).providers == ["ort"] * 6


# annotations


def test_annotations_by_pattern_and_in_the_model() -> None:
    nodes = [node("block0.a"), node("block1.a", annotation="cpu"), node("block1.b", annotation="cpu"), node("tail")]
    placement = run(nodes, [TAKEN] * 4, annotations={"block0.*": "cpu", "*.b": "gpu"})
    assert placement.providers == ["cpu", "cpu", "gpu", "gpu"]
    assert placement.reasons[0] == "annotated for cpu"
    assert placement.unmet == []


def test_annotation_that_cannot_be_followed_is_told() -> None:
    nodes = [node("a", annotation="gpu"), node("b", annotation="tpu")]
    placement = run(nodes, [REFUSED, TAKEN])
    assert placement.providers == ["cpu", "gpu"]
    assert placement.unmet == [0, 1]
    assert "no kernel" in placement.reasons[0]
    assert "tpu" in placement.reasons[1]


def test_annotated_shape_computation_goes_where_it_is_told() -> None:
    nodes = shape_chain()
    placement = run(nodes, [TAKEN] * 6, annotations={"mul": "gpu"})
    assert placement.providers == ["gpu", "cpu", "cpu", "gpu", "cpu", "gpu"]


# groups


def test_groups_go_whole_or_not_at_all() -> None:
    group = Claim(taken=True, group="attention")
    placement = run([node("a"), node("b"), node("c")], [group, group, TAKEN], annotations={"b": "cpu"})
    assert placement.providers == ["cpu", "cpu", "gpu"]
    assert "attention" in placement.reasons[0]


def test_breaking_one_group_may_break_another() -> None:
    first, second = Claim(taken=True, group="1"), Claim(taken=True, group="2")
    claims = {"gpu": [first, first, REFUSED], "npu": [REFUSED, second, second], "cpu": [TAKEN] * 3}
    placement = place([node("a"), node("b"), node("c")], claims, ("gpu", "npu", "cpu"), annotations={"a": "cpu"})
    assert placement.providers == ["cpu", "npu", "npu"]
    placement = place([node("a"), node("b"), node("c")], claims, ("gpu", "npu", "cpu"), annotations={"c": "cpu"})
    assert placement.providers == ["gpu", "gpu", "cpu"]


def test_a_group_keeps_its_shape_computation() -> None:
    grouped = [Claim(taken=True, group="g")] * 6
    assert run(shape_chain(), grouped).providers == ["gpu"] * 6


# budgets


def test_budget_ends_the_devices_part() -> None:
    costs = [Claim(taken=True, cost_bytes=cost) for cost in (40, 40, 40, 0, 10)]
    placement = run([node(name) for name in "abcde"], costs, budgets={"gpu": 100})
    assert placement.providers == ["gpu", "gpu", "cpu", "cpu", "cpu"]
    assert "100 bytes" in placement.reasons[2]


def test_budget_takes_a_group_whole() -> None:
    costs = [
        Claim(taken=True, cost_bytes=40),
        Claim(taken=True, cost_bytes=40, group="g"),
        Claim(taken=True, cost_bytes=40, group="g"),
    ]
    assert run([node(name) for name in "abc"], costs, budgets={"gpu": 100}).providers == ["gpu", "cpu", "cpu"]
    assert run([node(name) for name in "abc"], costs, budgets={"gpu": 120}).providers == ["gpu"] * 3


def test_budget_of_none_is_no_budget() -> None:
    costs = [Claim(taken=True, cost_bytes=2**60)]
    assert run([node("a")], costs, budgets={"gpu": None, "cpu": None}).providers == ["gpu"]


def test_annotated_node_without_room_falls_back() -> None:
    placement = run([node("a")], [Claim(taken=True, cost_bytes=10)], annotations={"a": "gpu"}, budgets={"gpu": 5})
    assert placement.providers == ["cpu"]
    assert "budget" in placement.reasons[0]


# a second round


def test_second_round_keeps_what_was_assigned() -> None:
    nodes = [node("a", assigned="cpu"), node("b", assigned="gpu"), node("new")]
    placement = run(nodes, [TAKEN] * 3)
    assert placement.providers == ["cpu", "gpu", "gpu"]
    assert placement.reasons[0] == "given to cpu in an earlier round"


def test_second_round_gives_a_node_up_when_its_provider_does() -> None:
    assert run([node("a", assigned="gpu")], [REFUSED]).providers == ["cpu"]


def test_second_round_counts_what_was_assigned_first() -> None:
    costs = [Claim(taken=True, cost_bytes=60)] * 2
    placement = run([node("new"), node("old", assigned="gpu")], costs, budgets={"gpu": 100})
    assert placement.providers == ["cpu", "gpu"]


# in general

_claim = st.builds(
    Claim,
    taken=st.booleans(),
    reason=st.just("no"),
    group=st.sampled_from([None, "g", "h"]),
    cost_bytes=st.integers(0, 50),
)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 8), st.integers(0, 100))
def test_rules_hold_for_any_claims(data: st.DataObject, count: int, budget: int) -> None:
    names = ("gpu", "npu", "cpu")
    claims = {name: data.draw(st.lists(_claim, min_size=count, max_size=count)) for name in names}
    assigned = data.draw(st.lists(st.sampled_from([None, *names]), min_size=count, max_size=count))
    nodes = [node(str(i), "Relu", i - 1, assigned=given) for i, given in enumerate(assigned)]
    placement = place(nodes, claims, names, budgets={"npu": budget}, devices=("gpu", "npu"))
    for index, chosen in enumerate(placement.providers):
        assert chosen is None or claims[chosen][index].taken
        assert chosen == "gpu" or placement.reasons[index]
    for name in names:
        for group in ("g", "h"):
            members = [i for i in range(count) if claims[name][i].taken and claims[name][i].group == group]
            assert len({placement.providers[i] == name for i in members}) < 2
    fresh = [i for i in range(count) if placement.providers[i] == "npu" and assigned[i] != "npu"]
    kept = [i for i in range(count) if placement.providers[i] == "npu" and assigned[i] == "npu"]
    assert not fresh or sum(claims["npu"][i].cost_bytes for i in (*fresh, *kept)) <= budget
