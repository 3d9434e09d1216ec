"""Choose one option of every layer so that the layers and the reformats between them take the least time together.

What is best for each layer alone may lose to reformats, so the choice is made for the whole network. It is exact
whenever the elimination in ``_minsum`` stays within its tables: for chains, for trees, for small networks, and for
networks whose branches join again soon. Past that a heuristic is used: from the cheapest option of every layer, and
from every layout used as widely as it can be, single layers are improved until none can be; the best end counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Final, TypeAlias

import numpy as np

from dovetail.build._minsum import Factor, minimise
from dovetail.errors import BuildError, UsageError

__all__ = ["Edge", "Layer", "Option", "ReformatCost", "choose_options", "total_cost_us"]

ReformatCost: TypeAlias = Callable[[int, Any, Any], float]
"""Microseconds to change the tensor of an edge from one layout to another; infinite when that cannot be done.

Layouts are of whatever type the options have.
"""

_MAX_TABLE: Final = 1 << 18
_MAX_DELIVERIES: Final = 1 << 12
_UNITS_PER_US: Final = 100_000.0
"""Costs are whole numbers of 10 ps, so that sums are exact in any order and equal costs are equal."""
_PENALTY: Final = 2.0**40
"""What the heuristic pays where it is impossible: finite, so that it still goes where it is less so."""


@dataclass(frozen=True)
class Option:
    """One way to run a layer: the layout of every port, and the time."""

    layouts: tuple[Hashable, ...]
    cost_us: float


@dataclass(frozen=True)
class Layer:
    """A layer, or an end of the network: that is a layer with one option that costs nothing."""

    options: tuple[Option, ...]


@dataclass(frozen=True)
class Edge:
    """A tensor from a port of a layer to a port of another; a port is (layer, index into ``Option.layouts``)."""

    producer: tuple[int, int]
    consumer: tuple[int, int]


def choose_options(layers: Sequence[Layer], edges: Sequence[Edge], reformat_us: ReformatCost) -> list[int]:
    """The option of every layer, by number.

    A reformat is paid where a consumer wants another layout than the producer gives, and once for all consumers of a
    port that want the same. Equal inputs give equal choices; of equal costs, lower options win.

    Raises:
        UsageError: A layer has no option, a port does not exist, or a cost is negative or not a number.
        BuildError: Every choice needs a reformat that cannot be done.

    >>> fixed = Layer((Option(("NCHW",), 0.0),))
    >>> layer = Layer((Option(("NHWC",), 1.0), Option(("NCHW",), 3.0)))
    >>> choose_options([fixed, layer], [Edge((0, 0), (1, 0))], lambda edge, source, target: 5.0)
    [0, 1]
    """
    problem = _Problem(layers, edges, reformat_us)
    choice = _choose_exactly(problem)
    if choice is None:
        choice = _choose_by_descent(problem)
    if math.isinf(problem.total(choice)):
        raise BuildError(
            "no choice of formats connects the network: every one needs a reformat that cannot be done",
            fix="let one of the layers accept a format that its neighbour has",
        )
    return problem.original(choice)


def total_cost_us(
    layers: Sequence[Layer], edges: Sequence[Edge], choice: Sequence[int], reformat_us: ReformatCost
) -> float:
    """What a choice costs, layers and reformats together."""
    chosen = [Layer((layer.options[option],)) for layer, option in zip(layers, choice, strict=True)]
    return _Problem(chosen, edges, reformat_us).total([0] * len(chosen)) / _UNITS_PER_US


class _Net:
    """One producer port and the ports it feeds; all of them pay for reformats together."""

    def __init__(self, edge: int, producer: tuple[int, int]) -> None:
        self.edge = edge
        self.layer, self.port = producer
        self.consumers: list[tuple[int, int]] = []

    @property
    def members(self) -> list[int]:
        """The layers at both ends, once each."""
        return list(dict.fromkeys([self.layer, *(layer for layer, _ in self.consumers)]))


class _Problem:
    """The network with costs as exact numbers, and without options that another makes needless."""

    def __init__(self, layers: Sequence[Layer], edges: Sequence[Edge], reformat_us: ReformatCost) -> None:
        _check(layers, edges)
        self._reformat_us = reformat_us
        self._reformats: dict[tuple[int, Hashable, Hashable], float] = {}
        self.nets = _make_nets(edges)
        self.nets_of: list[list[_Net]] = [[] for _ in layers]
        for net in self.nets:
            for member in net.members:
                self.nets_of[member].append(net)
        ports = _connected_ports(len(layers), edges)
        self._kept = [_keep_useful(layer, ports[number]) for number, layer in enumerate(layers)]
        self.options = [[layer.options[i] for i in kept] for layer, kept in zip(layers, self._kept, strict=True)]
        self.costs = [[_quantise(option.cost_us) for option in options] for options in self.options]

    def original(self, choice: Sequence[int]) -> list[int]:
        """Option numbers as the caller counts them."""
        return [kept[option] for kept, option in zip(self._kept, choice, strict=True)]

    def layout(self, port: tuple[int, int], option: int) -> Hashable:
        """The layout at a port under an option of its layer."""
        return self.options[port[0]][option].layouts[port[1]]

    def reformat(self, net: _Net, source: Hashable, target: Hashable) -> float:
        """What one change of layout of a net costs."""
        if source == target:
            return 0.0
        key = (net.edge, source, target)
        if key not in self._reformats:
            self._reformats[key] = _quantise(self._reformat_us(net.edge, source, target))
        return self._reformats[key]

    def net_cost(self, net: _Net, choice: Sequence[int]) -> float:
        """All reformats of a net."""
        source = self.layout((net.layer, net.port), choice[net.layer])
        targets = dict.fromkeys(self.layout(consumer, choice[consumer[0]]) for consumer in net.consumers)
        return sum(self.reformat(net, source, target) for target in targets)

    def total(self, choice: Sequence[int]) -> float:
        """All layers and all nets."""
        layers = sum(costs[option] for costs, option in zip(self.costs, choice, strict=True))
        return layers + sum(self.net_cost(net, choice) for net in self.nets)


def _check(layers: Sequence[Layer], edges: Sequence[Edge]) -> None:
    for number, layer in enumerate(layers):
        widths = {len(option.layouts) for option in layer.options}
        if len(widths) != 1:
            raise UsageError(
                "a layer needs options that all have the same ports", where=f"layer {number}", got=sorted(widths)
            )
    for number, edge in enumerate(edges):
        for layer_number, port in (edge.producer, edge.consumer):
            known = 0 <= layer_number < len(layers)
            if not known or not 0 <= port < len(layers[layer_number].options[0].layouts):
                raise UsageError("an edge ends at a port that does not exist", where=f"edge {number}", got=edge)


def _quantise(cost_us: float) -> float:
    if not cost_us >= 0:
        raise UsageError("a cost must be a number of microseconds, 0 or more", got=cost_us)
    return cost_us if math.isinf(cost_us) else float(round(cost_us * _UNITS_PER_US))


def _make_nets(edges: Sequence[Edge]) -> list[_Net]:
    nets: dict[tuple[int, int], _Net] = {}
    for number, edge in enumerate(edges):
        nets.setdefault(edge.producer, _Net(number, edge.producer)).consumers.append(edge.consumer)
    return list(nets.values())


def _connected_ports(count: int, edges: Sequence[Edge]) -> list[list[int]]:
    ports: list[set[int]] = [set() for _ in range(count)]
    for edge in edges:
        for layer, port in (edge.producer, edge.consumer):
            ports[layer].add(port)
    return [sorted(found) for found in ports]


def _keep_useful(layer: Layer, ports: Sequence[int]) -> list[int]:
    """Of the options that look the same to the neighbours, the cheapest; in the order of their numbers."""
    best: dict[tuple[Hashable, ...], int] = {}
    for number, option in enumerate(layer.options):
        face = tuple(option.layouts[port] for port in ports)
        rival = best.setdefault(face, number)
        if _quantise(option.cost_us) < _quantise(layer.options[rival].cost_us):
            best[face] = number
    return sorted(best.values())


# exact


def _choose_exactly(problem: _Problem) -> list[int] | None:
    """By elimination; None when the network is too tangled."""
    sizes = [len(options) for options in problem.options]
    factors = [Factor((layer,), np.array(costs)) for layer, costs in enumerate(problem.costs)]
    for net in problem.nets:
        if len(net.consumers) == 1 and net.consumers[0][0] != net.layer:
            factors.append(_pair_factor(problem, net))
            continue
        deliveries = _Deliveries(problem, net)
        if deliveries.count > _MAX_DELIVERIES:
            return None
        factors += deliveries.factors(len(sizes))
        sizes.append(deliveries.count)
    values = minimise(sizes, factors, max_table=_MAX_TABLE)
    return None if values is None else values[: len(problem.options)]


def _pair_factor(problem: _Problem, net: _Net) -> Factor:
    (consumer,) = net.consumers
    sources = [option.layouts[net.port] for option in problem.options[net.layer]]
    targets = [option.layouts[consumer[1]] for option in problem.options[consumer[0]]]
    table = [[problem.reformat(net, source, target) for target in targets] for source in sources]
    return Factor((net.layer, consumer[0]), np.array(table))


class _Deliveries:
    """What a port with several consumers may deliver: its own layout and a set of others, as one more variable.

    With it, every consumer is tied to the delivery alone, so wide fan-out stays a tree.
    """

    def __init__(self, problem: _Problem, net: _Net) -> None:
        self._problem, self._net = problem, net
        self._sources = dict.fromkeys(option.layouts[net.port] for option in problem.options[net.layer])
        self._targets = dict.fromkeys(
            option.layouts[port] for layer, port in net.consumers for option in problem.options[layer]
        )

    @property
    def count(self) -> int:
        """How many there are, without making them."""
        return sum(
            math.comb(len(others), size)
            for others in map(self._others, self._sources)
            for size in self._set_sizes(others)
        )

    @cached_property
    def _all(self) -> list[tuple[Hashable, frozenset[Hashable]]]:
        return [
            (source, frozenset(delivered))
            for source in self._sources
            for size in self._set_sizes(self._others(source))
            for delivered in combinations(self._others(source), size)
        ]

    def _others(self, source: Hashable) -> list[Hashable]:
        return [target for target in self._targets if target != source]

    def _set_sizes(self, others: Sequence[Hashable]) -> range:
        return range(min(len(others), len(self._net.consumers)) + 1)

    def factors(self, variable: int) -> list[Factor]:
        """Ties of the delivery to the producer, which pays, and to every consumer, which must find its layouts."""
        members = list(dict.fromkeys(layer for layer, _ in self._net.consumers))
        return [self._producer_factor(variable), *(self._consumer_factor(variable, layer) for layer in members)]

    def _producer_factor(self, variable: int) -> Factor:
        prices = np.array(
            [
                sum(self._problem.reformat(self._net, source, target) for target in delivered)
                for source, delivered in self._all
            ]
        )
        own = {layout: np.array([source == layout for source, _ in self._all]) for layout in self._sources}
        options = self._problem.options[self._net.layer]
        table = [np.where(own[option.layouts[self._net.port]], prices, math.inf) for option in options]
        return Factor((self._net.layer, variable), np.array(table))

    def _consumer_factor(self, variable: int, layer: int) -> Factor:
        there = {
            layout: np.array([layout == source or layout in delivered for source, delivered in self._all])
            for layout in self._targets
        }
        ports = [port for member, port in self._net.consumers if member == layer]
        options = self._problem.options[layer]
        found = [np.all([there[option.layouts[port]] for port in ports], axis=0) for option in options]
        return Factor((layer, variable), np.where(found, 0.0, math.inf))


# heuristic


def _choose_by_descent(problem: _Problem) -> list[int]:
    """The best of the local optima below a few starts; of equal ones, the first."""
    layouts = dict.fromkeys(layout for options in problem.options for option in options for layout in option.layouts)
    starts = [[min(range(len(costs)), key=costs.__getitem__) for costs in problem.costs]]
    starts += [[_prefer(options, layout) for options in problem.options] for layout in layouts]
    ends = [_descend(problem, start) for start in starts]
    return min(ends, key=lambda end: _soft_total(problem, end))


def _prefer(options: Sequence[Option], layout: Hashable) -> int:
    """The option with the most ports of a layout; of those the cheapest, and then the first."""
    return min(range(len(options)), key=lambda i: (-options[i].layouts.count(layout), options[i].cost_us, i))


def _descend(problem: _Problem, start: Sequence[int]) -> list[int]:
    """Give every layer in turn what is best for its neighbours as they are, until nothing changes."""
    choice, changed = list(start), True
    while changed:
        changed = False
        for layer, costs in enumerate(problem.costs):
            if len(costs) > 1:
                best = _best_option(problem, choice, layer)
                changed |= best != choice[layer]
                choice[layer] = best
    return choice


def _best_option(problem: _Problem, choice: list[int], layer: int) -> int:
    """The cheapest option in its surroundings; the present one unless another is really cheaper."""
    present, prices = choice[layer], []
    for option, cost in enumerate(problem.costs[layer]):
        choice[layer] = option
        prices.append(_soften(cost) + sum(_soften(problem.net_cost(net, choice)) for net in problem.nets_of[layer]))
    choice[layer] = present
    best = min(range(len(prices)), key=prices.__getitem__)
    return best if prices[best] < prices[present] else present


def _soft_total(problem: _Problem, choice: Sequence[int]) -> float:
    layers = sum(_soften(costs[option]) for costs, option in zip(problem.costs, choice, strict=True))
    return layers + sum(_soften(problem.net_cost(net, choice)) for net in problem.nets)


def _soften(cost: float) -> float:
    return min(cost, _PENALTY)
