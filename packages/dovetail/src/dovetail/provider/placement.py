"""Which provider gets which node: the order of preference, and the rules that are stronger than it. Pure planning.

A node goes to the first provider of the order that takes it, unless

- an earlier round gave it to a provider, which takes it again: it stays there;
- an annotation names a provider for it, which takes it;
- it only computes shapes and its provider is a device: small integers are computed on the host, where they are needed;
- the nodes of its group (``Claim.group``) cannot all go to the provider: then none does;
- the provider's budget is used up by the nodes before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from dovetail.provider.interfaces import Claim
from dovetail.provider.schemas.shape_slots import SHAPE_SOURCES, shape_slots

__all__ = ["CONSTANT", "OUTSIDE", "PlacedNode", "Placement", "find_annotation", "find_shape_nodes", "place"]

OUTSIDE: Final = -1
"""Stands for the maker of a network input, of a value from outside a body, or of an absent input."""
CONSTANT: Final = -2
"""Stands for the maker of a weight."""


@dataclass(frozen=True, kw_only=True)
class PlacedNode:
    """What placing needs to know of a node; nodes come in topological order."""

    name: str
    op: str
    domain: str = ""
    inputs: Sequence[int] = ()
    """For each input the number of the node that makes it, or ``OUTSIDE``, or ``CONSTANT``."""
    is_small_integer: bool = False
    """Whether all its outputs are integers or booleans, a few dozen elements at most."""
    annotation: str | None = None
    """The provider that the model itself asks for (metadata ``dovetail.layer_provider``)."""
    assigned: str | None = None
    """The provider that an earlier round gave it to."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The provider of each node; None when nobody takes it."""

    providers: list[str | None]
    reasons: list[str]
    """For each node why providers that come before its own did not get it; empty when the first one did."""
    unmet: list[int]
    """Nodes with an annotation that could not be followed; the reason says why."""
    refusals: list[Mapping[str, str]]
    """For each node the providers that cannot have it, whether or not they come before its own, and why."""


def place(
    nodes: Sequence[PlacedNode],
    claims: Mapping[str, Sequence[Claim]],
    order: Sequence[str],
    *,
    annotations: Mapping[str, str] | None = None,
    budgets: Mapping[str, int | None] | None = None,
    devices: Collection[str] = (),
    host: str = "cpu",
) -> Placement:
    """Give each node to a provider.

    Args:
        nodes: The nodes, in topological order.
        claims: For each provider a claim for each node.
        order: The providers in order of preference.
        annotations: Patterns of layer names (``*`` and ``?``) -> provider; they go before what the model says.
        budgets: How many bytes the nodes of a provider may cost in all.
        devices: The providers whose memory is not the host's.
        host: The provider that computes shapes where one of ``devices`` would.

    >>> taken, refused = Claim(taken=True), Claim(taken=False, reason="no kernel")
    >>> nodes = [PlacedNode(name="a", op="Relu"), PlacedNode(name="b", op="Sort", inputs=[0])]
    >>> place(nodes, {"gpu": [taken, refused], "cpu": [taken, taken]}, ["gpu", "cpu"]).providers
    ['gpu', 'cpu']
    """
    board = _Board(nodes, claims, order)
    unmet = board.follow_annotations(annotations or {})
    board.keep_assigned()
    board.keep_shapes_on_host(devices, host)
    while board.break_groups() or board.spend(budgets or {}):
        pass
    return Placement(
        providers=[board.choice(i) for i in range(len(nodes))],
        reasons=[board.reason(i) for i in range(len(nodes))],
        unmet=unmet,
        refusals=board.refusals,
    )


def find_shape_nodes(nodes: Sequence[PlacedNode]) -> set[int]:
    """The nodes that turn shapes and constants into small integers which some node needs as a shape, axis or count.

    >>> chain = [PlacedNode(name="s", op="Shape", inputs=[OUTSIDE], is_small_integer=True),
    ...          PlacedNode(name="r", op="Reshape", inputs=[OUTSIDE, 0])]
    >>> find_shape_nodes(chain)
    {0}
    """
    known: set[int] = set()
    for index, node in enumerate(nodes):
        is_known = node.op in SHAPE_SOURCES or all(maker == CONSTANT or maker in known for maker in node.inputs)
        if is_known and node.is_small_integer:
            known.add(index)
    found: set[int] = set()
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        slots = shape_slots(node.op, node.domain)
        is_wanted = index in found
        found |= {maker for slot, maker in enumerate(node.inputs) if maker in known and (is_wanted or slot in slots)}
    return found


class _Board:
    """Who was refused which node, and why; a provider that was refused once does not come back."""

    def __init__(
        self, nodes: Sequence[PlacedNode], claims: Mapping[str, Sequence[Claim]], order: Sequence[str]
    ) -> None:
        self._nodes = nodes
        self._claims = claims
        self._order = order
        self._refused: list[dict[str, str]] = [
            {name: claims[name][i].reason or "not taken" for name in order if not claims[name][i].taken}
            for i in range(len(nodes))
        ]
        self._notes: list[list[str]] = [[] for _ in nodes]
        self._wanted: list[tuple[str, str] | None] = [None] * len(nodes)
        """A provider that goes before the order, and why."""
        self._groups = _find_groups(claims, order)

    @property
    def refusals(self) -> list[Mapping[str, str]]:
        """For each node the providers that are refused, and why."""
        return list(self._refused)

    def choice(self, index: int) -> str | None:
        """The provider that was asked for, or else the first of the order, that was not refused."""
        refused, wanted = self._refused[index], self._wanted[index]
        if wanted is not None and wanted[0] not in refused:
            return wanted[0]
        return next((name for name in self._order if name not in refused), None)

    def reason(self, index: int) -> str:
        """Why providers before the chosen one did not get the node."""
        chosen, wanted, refused = self.choice(index), self._wanted[index], self._refused[index]
        end = len(self._order) if chosen is None else self._order.index(chosen)
        told = [f"{name}: {refused[name]}" for name in self._order[:end] if name in refused]
        if wanted is not None and wanted[0] == chosen and end > len(told):
            told.append(wanted[1])
        elif wanted is not None and wanted[0] != chosen and wanted[0] in self._order[end:]:
            told.append(f"{wanted[0]}: {refused[wanted[0]]}")
        return "; ".join((*self._notes[index], *told))

    def follow_annotations(self, patterns: Mapping[str, str]) -> list[int]:
        unmet = []
        for index, node in enumerate(self._nodes):
            wanted = find_annotation(node.name, node.annotation, patterns)
            if wanted is None:
                continue
            if wanted in self._order and wanted not in self._refused[index]:
                self._wanted[index] = (wanted, f"annotated for {wanted}")
            else:
                why = self._refused[index].get(wanted, "is not among the providers")
                self._notes[index].append(f"annotated for {wanted}, which cannot have it ({why})")
                unmet.append(index)
        return unmet

    def keep_assigned(self) -> None:
        for index, node in enumerate(self._nodes):
            if node.assigned in self._order and node.assigned not in self._refused[index]:
                self._wanted[index] = (node.assigned or "", f"given to {node.assigned} in an earlier round")

    def keep_shapes_on_host(self, devices: Collection[str], host: str) -> None:
        if host not in self._order or not devices:
            return
        for index in find_shape_nodes(self._nodes):
            if host in self._refused[index] or self._wanted[index] is not None:
                continue
            for name in devices:
                # A group that must stay together goes before the place of a few integers.
                if name in self._order and self._claims[name][index].group is None:
                    self._refuse([index], name, "it only computes shapes, which stay on the host")

    def break_groups(self) -> bool:
        """Take a provider from all nodes of a group that it does not get as a whole."""
        is_changed = False
        for (name, group), members in self._groups.items():
            got = [index for index in members if self.choice(index) == name]
            if got and len(got) < len(members):
                self._refuse(got, name, f"group '{group}' must stay together and another of its nodes went elsewhere")
                is_changed = True
        return is_changed

    def spend(self, budgets: Mapping[str, int | None]) -> bool:
        """Take a provider from the nodes that come when its budget is used up."""
        is_changed = False
        for name, budget in budgets.items():
            if budget is not None and name in self._order:
                late = self._find_late(name, budget)
                self._refuse(late, name, f"its budget of {budget} bytes is used up")
                is_changed = is_changed or bool(late)
        return is_changed

    def _find_late(self, name: str, budget: int) -> list[int]:
        """The nodes for which nothing is left; one that has no room ends it, so that the provider keeps one part."""
        mine = [index for index in range(len(self._nodes)) if self.choice(index) == name]
        kept = [index for index in mine if self._nodes[index].assigned == name]
        left = budget - sum(self._claims[name][index].cost_bytes for index in kept)
        paid, late = set(kept), []
        is_over = False
        for index in mine:
            if index in paid:
                continue
            members = [other for other in self._members(name, index) if other not in paid]
            cost = sum(self._claims[name][other].cost_bytes for other in members)
            is_over = is_over or cost > left
            if is_over:
                late += members
            else:
                left -= cost
            paid.update(members)
        return late

    def _members(self, name: str, index: int) -> list[int]:
        group = self._claims[name][index].group
        return [index] if group is None else self._groups[name, group]

    def _refuse(self, indices: Iterable[int], name: str, why: str) -> None:
        for index in indices:
            self._refused[index].setdefault(name, why)


def find_annotation(layer: str, annotation: str | None, patterns: Mapping[str, str]) -> str | None:
    """The provider that a layer is for: by the first pattern that fits its name, or else by its own annotation.

    >>> find_annotation("block0.conv", None, {"block0.*": "gpu"})
    'gpu'
    """
    return next((name for pattern, name in patterns.items() if fnmatchcase(layer, pattern)), annotation)


def _find_groups(claims: Mapping[str, Sequence[Claim]], order: Sequence[str]) -> dict[tuple[str, str], list[int]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for name in order:
        for index, claim in enumerate(claims[name]):
            if claim.taken and claim.group is not None:
                groups.setdefault((name, claim.group), []).append(index)
    return groups
