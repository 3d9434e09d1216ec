"""Formats for the whole network: against every possible choice on small networks, and in time on large ones."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.build.formats import select
from dovetail.build.formats._minsum import CostFactor, minimise
from dovetail.build.formats.select import Edge, FormatLayer, Option, choose_options, total_cost_us
from dovetail.errors import BuildError, UsageError

LAYOUTS = ["LINEAR", "HWC8", "CHW32"]


def layer(*options: tuple[str, float]) -> FormatLayer:
    """A layer with one input (port 0) and one output (port 1); "a" is one layout for both, "a>b" two."""
    return FormatLayer(tuple(Option(tuple((o.split(">") * 2)[:2]), cost) for o, cost in options))


def end(layout: str) -> FormatLayer:
    return FormatLayer((Option((layout,), 0.0),))


def chain(*layers: FormatLayer) -> list[Edge]:
    """Every layer's last port feeds the next one's first."""
    widths = [len(one.options[0].layouts) for one in layers]
    return [Edge((i, widths[i] - 1), (i + 1, 0)) for i in range(len(layers) - 1)]


def flat(cost_us: float) -> Callable[[int, Hashable, Hashable], float]:
    return lambda edge, source, target: cost_us


def cost_of(layers: Sequence[FormatLayer], edges: Sequence[Edge], choice: Sequence[int], reformat: Any) -> float:
    """The definition, written out: each layer, and each different layout wanted from a port once."""
    total = sum(one.options[i].cost_us for one, i in zip(layers, choice, strict=True))
    firsts = {edge.producer: number for number, edge in reversed(list(enumerate(edges)))}
    paid = set()
    for edge in edges:
        (p, p_port), (c, c_port) = edge.producer, edge.consumer
        source = layers[p].options[choice[p]].layouts[p_port]
        target = layers[c].options[choice[c]].layouts[c_port]
        if source != target and (edge.producer, target) not in paid:
            paid.add((edge.producer, target))
            total += reformat(firsts[edge.producer], source, target)
    return total


def every_choice(layers: Sequence[FormatLayer]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(len(one.options)) for one in layers)))


def price(edge: int, source: Hashable, target: Hashable) -> float:
    """Some reformat cost that depends on all three."""
    return float((edge * 7 + LAYOUTS.index(str(source)) * 3 + LAYOUTS.index(str(target)) * 5) % 11)


@st.composite
def networks(draw: st.DrawFn, shape: str) -> tuple[list[FormatLayer], list[Edge]]:
    """Layers with two inputs and two outputs (ports 0 to 3), joined as a chain, a tree or anyhow."""
    count = draw(st.integers(1, 5))
    costs = st.integers(0, 12).map(float)
    option = st.builds(Option, st.tuples(*[st.sampled_from(LAYOUTS)] * 4), costs)
    layers = [FormatLayer(tuple(draw(st.lists(option, min_size=1, max_size=3)))) for _ in range(count)]
    outputs, inputs = st.sampled_from([2, 3]), st.sampled_from([0, 1])
    edges = []
    for number in range(1, count):
        parents = {"chain": [number - 1], "tree": [draw(st.integers(0, number - 1))]}.get(shape)
        if parents is None:
            parents = draw(st.lists(st.integers(0, number), max_size=3))
        edges += [Edge((parent, draw(outputs)), (number, draw(inputs))) for parent in parents]
    return layers, edges


@pytest.mark.parametrize("shape", ["chain", "tree", "graph"])
def test_nothing_is_cheaper(shape: str) -> None:
    @given(networks(shape))
    def check(network: tuple[list[FormatLayer], list[Edge]]) -> None:
        layers, edges = network
        choice = choose_options(layers, edges, price)
        costs = {other: cost_of(layers, edges, other, price) for other in every_choice(layers)}
        assert costs[tuple(choice)] == min(costs.values())
        assert total_cost_us(layers, edges, choice, price) == costs[tuple(choice)]
        assert choose_options(layers, edges, price) == choice

    check()


@given(networks("graph"))
def test_the_heuristic_ends_where_no_single_change_helps(network: tuple[list[FormatLayer], list[Edge]]) -> None:
    layers, edges = network
    problem = select._FormatProblem(layers, edges, price)
    choice = problem.original(select._choose_by_descent(problem))
    cost = cost_of(layers, edges, choice, price)
    best = min(cost_of(layers, edges, other, price) for other in every_choice(layers))
    assert cost >= best
    for number, one in enumerate(layers):
        for option in range(len(one.options)):
            changed = [*choice[:number], option, *choice[number + 1 :]]
            assert cost_of(layers, edges, changed, price) >= cost
    cheapest = [min(range(len(one.options)), key=lambda i, one=one: one.options[i].cost_us) for one in layers]
    assert cost <= cost_of(layers, edges, cheapest, price)


def test_three_layers_where_the_best_for_each_loses() -> None:
    middle = layer(("LINEAR", 20.0), ("HWC8", 6.0))
    layers = [
        end("LINEAR"),
        layer(("LINEAR", 10.0), ("HWC8", 13.0)),
        middle,
        layer(("LINEAR", 10.0), ("HWC8", 13.0)),
        end("LINEAR"),
    ]
    edges = chain(*layers)
    # Alone, the layers take 10 + 6 + 10 with two reformats of 9 between them: 44. All LINEAR: 40. All HWC8 is 32 with
    # two reformats of 9 at the ends: 50. Where reformats are dear at the ends the middle one must give in.
    assert choose_options(layers, edges, flat(9.0)) == [0, 0, 0, 0, 0]
    # With cheap ends, each of the outer layers does worse than it could, and the network does best.
    ends_only = lambda edge, source, target: 1.0 if edge in (0, 3) else 9.0  # noqa: E731
    assert choose_options(layers, edges, ends_only) == [0, 1, 1, 1, 0]
    assert total_cost_us(layers, edges, [0, 1, 1, 1, 0], ends_only) == 34.0
    # With cheap reformats everywhere the best for each is the best for all.
    assert choose_options(layers, edges, flat(1.0)) == [0, 0, 1, 0, 0]


def test_a_layer_may_change_the_layout_itself() -> None:
    layers = [end("LINEAR"), layer(("LINEAR", 5.0), ("LINEAR>HWC8", 6.0)), layer(("HWC8", 1.0)), end("HWC8")]
    assert choose_options(layers, chain(*layers), flat(2.0)) == [0, 1, 0, 0]


def test_consumers_that_want_the_same_share_a_reformat() -> None:
    # One reformat (10) serves both fast consumers (1 + 1); paid twice it would lose to two slow ones (7 + 7).
    consumer = layer(("LINEAR", 7.0), ("HWC8", 1.0))
    layers = [end("LINEAR"), consumer, consumer]
    edges = [Edge((0, 0), (1, 0)), Edge((0, 0), (2, 0))]
    assert choose_options(layers, edges, flat(10.0)) == [0, 1, 1]
    assert total_cost_us(layers, edges, [0, 1, 1], flat(10.0)) == 12.0
    assert choose_options(layers[:2], edges[:1], flat(10.0)) == [0, 0]


def test_one_tensor_in_both_inputs_of_a_layer_is_reformatted_once() -> None:
    both = FormatLayer((Option(("LINEAR", "LINEAR"), 5.0), Option(("HWC8", "HWC8"), 1.0)))
    edges = [Edge((0, 0), (1, 0)), Edge((0, 0), (1, 1))]
    assert choose_options([end("LINEAR"), both], edges, flat(3.0)) == [0, 1]
    assert total_cost_us([end("LINEAR"), both], edges, [0, 1], flat(3.0)) == 4.0


def test_wide_fan_out_stays_exact() -> None:
    consumer = layer(("LINEAR", 2.0), ("HWC8", 1.0), ("CHW32", 1.0))
    layers = [end("LINEAR"), *[consumer] * 40]
    edges = [Edge((0, 0), (i, 0)) for i in range(1, 41)]
    assert choose_options(layers, edges, flat(39.0)) == [0] + [1] * 40
    assert choose_options(layers, edges, flat(41.0)) == [0] + [0] * 40


def test_ties_go_to_the_lower_option() -> None:
    same = layer(("LINEAR", 1.0), ("HWC8", 1.0), ("LINEAR", 1.0))
    layers = [same] * 6
    assert choose_options(layers, chain(*layers), flat(0.5)) == [0] * 6
    assert choose_options([layer(("LINEAR", 0.3), ("LINEAR", 0.1 + 0.2))], [], flat(1.0)) == [0]
    assert choose_options([layer(("LINEAR", 0.1 + 0.2), ("LINEAR", 0.3))], [], flat(1.0)) == [0]


def test_layers_without_edges_take_their_best() -> None:
    assert choose_options([layer(("LINEAR", 2.0), ("HWC8", 1.0)), end("LINEAR")], [], flat(1.0)) == [1, 0]
    assert choose_options([], [], flat(1.0)) == []


def test_the_cost_is_asked_for_once_a_change_and_never_for_none() -> None:
    asked: list[tuple[object, ...]] = []

    def count(edge: int, source: Hashable, target: Hashable) -> float:
        asked.append((edge, source, target))
        return 1.0

    layers = [layer(("LINEAR", 1.0), ("HWC8", 1.0))] * 4
    choose_options(layers, chain(*layers), count)
    assert len(asked) == len(set(asked)) == 6
    assert all(source != target for _, source, target in asked)


def test_a_reformat_that_cannot_be_done_is_avoided_or_an_error() -> None:
    layers = [end("LINEAR"), layer(("HWC8", 1.0), ("LINEAR", 100.0))]
    assert choose_options(layers, chain(*layers), flat(math.inf)) == [0, 1]
    with pytest.raises(BuildError, match="every one needs a reformat that cannot be done"):
        choose_options([end("LINEAR"), end("HWC8")], [Edge((0, 0), (1, 0))], flat(math.inf))


def tangle(count: int) -> tuple[list[FormatLayer], list[Edge]]:
    """Every layer feeds every later one: nothing an exact method gets through."""
    option = lambda layout, cost: Option((layout,) * (count + 1), cost)  # noqa: E731
    layers = [
        FormatLayer((option("LINEAR", 3.0), option("HWC8", 2.0 + i % 2), option("CHW32", 2.5))) for i in range(count)
    ]
    return layers, [Edge((a, count), (b, a)) for a in range(count) for b in range(a + 1, count)]


def test_a_tangled_network_gets_one_layout_from_the_heuristic() -> None:
    layers, edges = tangle(30)
    assert select._choose_exactly(select._FormatProblem(layers, edges, flat(4.0))) is None
    choice = choose_options(layers, edges, flat(4.0))
    assert len(set(choice)) == 1
    assert choice == choose_options(layers, edges, flat(4.0))


def test_the_heuristic_avoids_what_cannot_be_done() -> None:
    layers, edges = tangle(20)
    fixed = [*layers, FormatLayer((Option(("LINEAR",) * 21, 0.0),))]
    choice = choose_options(fixed, [*edges, Edge((19, 20), (20, 0))], flat(math.inf))
    assert choice == [0] * 21


def test_a_long_network_is_chosen_in_time() -> None:
    layers = [layer(*[(f"{a}>{b}", 1.0 + (i % 3)) for i, (a, b) in enumerate(itertools.product(LAYOUTS, LAYOUTS))])]
    layers *= 2000
    # A residual connection every fourth layer.
    edges = chain(*layers) + [Edge((i, 1), (i + 4, 0)) for i in range(0, 1990, 4)]
    start = time.monotonic()
    problem = select._FormatProblem(layers, edges, price)
    choice = select._choose_exactly(problem)
    assert choice is not None
    assert time.monotonic() - start < 20
    assert problem.total(choice) <= problem.total(select._descend(problem, [0] * len(layers)))


@pytest.mark.parametrize("cost", [-1.0, math.nan])
def test_costs_are_times(cost: float) -> None:
    with pytest.raises(UsageError, match="0 or more"):
        choose_options([layer(("LINEAR", cost))], [], flat(1.0))
    with pytest.raises(UsageError, match="0 or more"):
        choose_options([end("LINEAR"), end("HWC8")], [Edge((0, 0), (1, 0))], flat(cost))


@pytest.mark.parametrize(
    "edge", [Edge((2, 0), (1, 0)), Edge((0, 1), (1, 0)), Edge((0, 0), (1, -1)), Edge((-1, 0), (1, 0))], ids=str
)
def test_edges_end_at_ports(edge: Edge) -> None:
    with pytest.raises(UsageError, match="port that does not exist"):
        choose_options([end("LINEAR"), end("LINEAR")], [edge], flat(1.0))


@pytest.mark.parametrize("options", [(), (Option(("LINEAR",), 1.0), Option((), 1.0))], ids=len)
def test_layers_have_options_of_one_kind(options: tuple[Option, ...]) -> None:
    with pytest.raises(UsageError, match="the same ports"):
        choose_options([FormatLayer(options)], [], flat(1.0))


@settings(max_examples=30)
@given(st.data())
def test_elimination_finds_the_least_sum_of_any_tables(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    numbers = np.random.default_rng(data.draw(st.integers(0, 1000)))
    scopes = data.draw(st.lists(st.permutations(range(len(sizes))).map(lambda p: tuple(p[:3])), max_size=5))
    factors = [CostFactor(scope, numbers.integers(0, 9, [sizes[v] for v in scope]).astype(float)) for scope in scopes]

    def cost(values: Sequence[int]) -> float:
        return float(sum(f.table[tuple(values[v] for v in f.scope)] for f in factors))

    values = minimise(sizes, factors, max_table=1000)
    assert values is not None
    assert cost(values) == min(cost(v) for v in itertools.product(*map(range, sizes)))


def test_elimination_stops_at_the_limit() -> None:
    factor = CostFactor((0, 1, 2), np.zeros((4, 4, 4)))
    assert minimise([4, 4, 4], [factor], max_table=64) == [0, 0, 0]
    assert minimise([4, 4, 4], [factor], max_table=63) is None
