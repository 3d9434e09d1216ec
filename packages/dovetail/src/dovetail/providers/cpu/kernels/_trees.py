"""Ensembles of decision trees as arrays: built once from the attributes of a node, walked by all rows at a time.

Every id that a model gives is checked when the ensemble is built, so that walking it reads nothing out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import require, require_room, wrap_indices

__all__ = ["AGGREGATES", "MEMBER", "MODES", "Forest", "Votes", "find_leaves", "make_forest", "remember", "sum_votes"]

MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""The comparisons of a branch, in the order of the numbers that TreeEnsemble gives them."""
MEMBER: Final = 6
_COMPARISONS: Final[tuple[Callable[..., Array], ...]] = (
    np.less_equal,
    np.less,
    np.greater_equal,
    np.greater,
    np.equal,
    np.not_equal,
)
AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
"""In the order of the numbers that TreeEnsemble gives them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Forest:
    """All nodes of all trees; a leaf is its own child on both sides."""

    roots: Array
    is_leaf: Array
    features: Array
    modes: Array
    thresholds: Array
    true_children: Array
    false_children: Array
    tracks_missing: Array
    """Whether a branch takes the true side when the feature is NaN."""
    members: dict[int, Array]
    """The values that a branch of mode MEMBER looks for, by node."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Votes:
    """What leaves add to which targets: those of a node are ``order[starts[node]:starts[node + 1]]``."""

    order: Array
    starts: Array
    targets: Array
    weights: Array

    @classmethod
    def make(cls, op: str, nodes: Array, targets: Array, weights: Array, *, count: int, n_targets: int) -> Votes:
        """Sort votes by the node they belong to, among this many nodes."""
        lengths = (nodes.size, targets.size, weights.size)
        require(len(set(lengths)) == 1, op, "the lists of votes differ in length", got=lengths)
        return cls(
            order=np.argsort(nodes, kind="stable"),
            starts=np.concatenate(([0], np.cumsum(np.bincount(nodes, minlength=count)))),
            targets=wrap_indices(op, targets, n_targets, lowest=0),
            weights=weights.astype(np.float64),
        )


class _Same:
    """An object as a key that equals itself alone; it is kept alive, so its identity is not given to another."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


_REMEMBERED: Final = 16
"""How many models are kept; an older one is built again when it runs."""


@lru_cache(maxsize=_REMEMBERED)
def _build(make: Callable[..., Any], targets: int, *keys: _Same) -> Any:
    return make(targets, *(key.value for key in keys))


def remember(make: Callable[..., Any], targets: int, *attributes: object) -> Any:
    """``make(targets, *attributes)``, made once for the same attribute objects: a node passes the same in every run.

    Building takes far longer than a run, and a kernel has no place of its own to keep what it built.
    """
    return _build(make, targets, *map(_Same, attributes))


def find_leaves(op: str, x: Array, forest: Forest) -> Array:
    """The leaf that each row reaches in each tree: (rows, trees)."""
    highest = int(forest.features[~forest.is_leaf].max(initial=-1))
    require(highest < x.shape[1], op, "a feature id is out of range", expected=f"< {x.shape[1]}", got=highest)
    nodes = np.broadcast_to(forest.roots, (x.shape[0], forest.roots.size)).reshape(-1).copy()
    rows = np.repeat(np.arange(x.shape[0]), forest.roots.size)
    active = np.flatnonzero(~forest.is_leaf[nodes])
    # A path without a cycle meets no node twice.
    for _ in range(forest.is_leaf.size):
        if not active.size:
            break
        at = nodes[active]
        taken = _compare(forest, at, x[rows[active], forest.features[at]])
        nodes[active] = np.where(taken, forest.true_children[at], forest.false_children[at])
        active = active[~forest.is_leaf[nodes[active]]]
    require(not active.size, op, "the nodes of a tree form a cycle")
    return nodes.reshape(x.shape[0], forest.roots.size)


def _compare(forest: Forest, nodes: Array, values: Array) -> Array:
    """Whether each value takes the true side of its node."""
    modes, thresholds = forest.modes[nodes], forest.thresholds[nodes]
    taken = np.isnan(values) & forest.tracks_missing[nodes]
    for mode in np.unique(modes).tolist():
        chosen = modes == mode
        if mode == MEMBER:
            taken[chosen] |= _is_member(forest, nodes[chosen], values[chosen])
        else:
            taken[chosen] |= _COMPARISONS[mode](values[chosen], thresholds[chosen])
    return taken


def _is_member(forest: Forest, nodes: Array, values: Array) -> Array:
    found = np.zeros(nodes.shape, dtype=bool)
    for node in np.unique(nodes).tolist():
        here = nodes == node
        found[here] = np.isin(values[here], forest.members[node])
    return found


def sum_votes(op: str, leaves: Array, votes: Votes, *, n_targets: int, aggregate: str = "SUM") -> tuple[Array, Array]:
    """The votes of the leaves put together target by target, and which targets got one; zero where there is none."""
    require(aggregate in AGGREGATES, op, "'aggregate_function' is unknown", expected=AGGREGATES, got=aggregate)
    shape = (leaves.shape[0], n_targets)
    require_room(op, shape, np.dtype(np.float64))
    flat = leaves.reshape(-1)
    counts = votes.starts[flat + 1] - votes.starts[flat]
    rows = np.repeat(np.repeat(np.arange(shape[0]), leaves.shape[1]), counts)
    # Each leaf's run of votes: a global count from zero, less where the run began, plus where it lies in the order.
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = votes.order[np.repeat(votes.starts[flat], counts) + offsets]
    places, weights = (rows, votes.targets[chosen]), votes.weights[chosen]
    voted = np.zeros(shape, dtype=bool)
    voted[places] = True
    if aggregate in ("MIN", "MAX"):
        lowest = aggregate == "MAX"
        result = np.full(shape, -np.inf if lowest else np.inf)
        (np.maximum if lowest else np.minimum).at(result, places, weights)
        return np.where(voted, result, 0), voted
    result = np.zeros(shape)
    np.add.at(result, places, weights)
    return result / leaves.shape[1] if aggregate == "AVERAGE" and leaves.shape[1] else result, voted


def make_forest(
    op: str,
    *,
    roots: Sequence[int] | Array,
    features: Array,
    modes: Array,
    thresholds: Array,
    true_children: Array,
    false_children: Array,
    tracks_missing: Sequence[int] | None,
    leaves: int = 0,
    members: dict[int, Array] | None = None,
) -> Forest:
    """A forest of branches followed by this many leaves; children are already places among both together."""
    branches = features.size
    lengths = [array.size for array in (features, modes, thresholds, true_children, false_children)]
    if tracks_missing:
        lengths.append(len(tracks_missing))
    require(len(set(lengths)) == 1, op, "the lists of nodes differ in length", got=lengths)
    require(not features.size or int(features.min()) >= 0, op, "a feature id is negative", got=features.min(initial=0))
    count = branches + leaves
    is_leaf = np.concatenate((modes < 0, np.ones(leaves, dtype=bool)))
    own = np.arange(count)
    return Forest(
        roots=wrap_indices(op, np.asarray(roots), count, lowest=0),
        is_leaf=is_leaf,
        features=np.where(is_leaf, 0, _extend(features, leaves)),
        modes=np.where(is_leaf, 0, _extend(modes, leaves)),
        thresholds=_extend(thresholds.astype(np.float64), leaves),
        true_children=wrap_indices(op, np.where(is_leaf, own, _extend(true_children, leaves)), count, lowest=0),
        false_children=wrap_indices(op, np.where(is_leaf, own, _extend(false_children, leaves)), count, lowest=0),
        tracks_missing=_extend(np.array(tracks_missing or [0] * branches).astype(bool), leaves),
        members=members or {},
    )


def _extend(values: Array, count: int) -> Array:
    return np.concatenate((values, np.zeros(count, dtype=values.dtype)))
