"""The tree ensembles of ai.onnx.ml: TreeEnsemble, and the older TreeEnsembleClassifier and TreeEnsembleRegressor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, require
from dovetail.providers.cpu.kernels._classes import (
    ML,
    NUMERIC,
    TRANSFORMS,
    choose_labels,
    matrix_of,
    split_score,
    transform_scores,
)
from dovetail.providers.cpu.kernels._support import reference
from dovetail.providers.cpu.kernels._trees import (
    AGGREGATES,
    MEMBER,
    MODES,
    Forest,
    Votes,
    find_leaves,
    make_forest,
    remember,
    sum_votes,
)
from dovetail.providers.cpu.registry import kernel

__all__ = [
    "tree_ensemble",
    "tree_ensemble_classifier",
    "tree_ensemble_classifier_1",
    "tree_ensemble_regressor",
    "tree_ensemble_regressor_1",
]

Numbers = Sequence[int] | None
Floats = Sequence[float] | None
Model = tuple[Forest, Votes]


def _integers(values: Any) -> Array:
    return np.asarray(() if values is None else values, dtype=np.int64).reshape(-1)


def _floats(values: Floats, tensor: Array | None) -> Array:
    """A list of floats, or the tensor of doubles that may stand in its place."""
    if tensor is not None:
        return tensor.reshape(-1).astype(np.float64)
    # The list is of single precision, whatever precision its numbers come in.
    return np.asarray(() if values is None else values, dtype=np.float32).astype(np.float64)


# ids of nodes and trees, as the older operators have them


def _locate(op: str, places: dict[tuple[int, int], int], trees: Array, nodes: Array) -> Array:
    """Where the nodes with these ids in these trees are among all nodes."""
    require(trees.size == nodes.size, op, "tree ids and node ids differ in length", expected=trees.size, got=nodes.size)
    found = [places.get(key, -1) for key in zip(trees.tolist(), nodes.tolist(), strict=True)]
    if -1 in found:
        missing = found.index(-1)
        fail(op, "a node does not exist", got=f"node {nodes[missing]} of tree {trees[missing]}")
    return np.array(found, dtype=np.int64)


def _read_modes(op: str, names: Sequence[str]) -> Array:
    numbers = {**{name: number for number, name in enumerate(MODES[:MEMBER])}, "LEAF": -1}
    unknown = sorted(set(names) - numbers.keys())
    require(not unknown, op, "a node mode is unknown", expected=", ".join(numbers), got=unknown)
    return np.array([numbers[name] for name in names], dtype=np.int64)


def _make_model(
    n_targets: int,
    op: str,
    tree_ids: Numbers,
    node_ids: Numbers,
    feature_ids: Numbers,
    modes: Sequence[str] | None,
    values: Floats,
    values_tensor: Array | None,
    true_ids: Numbers,
    false_ids: Numbers,
    tracks_missing: Numbers,
    vote_trees: Numbers,
    vote_nodes: Numbers,
    vote_targets: Numbers,
    vote_weights: Floats,
    vote_weights_tensor: Array | None,
) -> Model:
    trees, nodes, kinds = _integers(tree_ids), _integers(node_ids), _read_modes(op, modes or ())
    keys = list(zip(trees.tolist(), nodes.tolist(), strict=False))
    places = {key: place for place, key in reversed(list(enumerate(keys)))}
    require(len(places) == trees.size == nodes.size, op, "a node id appears twice in a tree, or has no tree")
    require(kinds.size == trees.size, op, "'nodes_modes' has the wrong length", expected=trees.size, got=kinds.size)
    own = _integers(node_ids)
    children = [_integers(ids) for ids in (true_ids, false_ids)]
    require(all(ids.size == own.size for ids in children), op, "the lists of nodes differ in length")
    # What a leaf says about children means nothing.
    located = [_locate(op, places, trees, np.where(kinds < 0, own, ids)) for ids in children]
    forest = make_forest(
        op,
        roots=np.sort(np.unique(trees, return_index=True)[1]),
        features=np.where(kinds < 0, 0, _integers(feature_ids)),
        modes=kinds,
        thresholds=_floats(values, values_tensor),
        true_children=located[0],
        false_children=located[1],
        tracks_missing=tracks_missing,
    )
    votes = Votes.make(
        op,
        _locate(op, places, _integers(vote_trees), _integers(vote_nodes)),
        _integers(vote_targets),
        _floats(vote_weights, vote_weights_tensor),
        count=trees.size,
        n_targets=n_targets,
    )
    return forest, votes


# the operators


@kernel("TreeEnsembleRegressor", since=1, until=2, domain=ML, types={"T": NUMERIC})
def tree_ensemble_regressor_1(
    x: Array,
    *,
    aggregate_function: str = "SUM",
    base_values: Floats = None,
    n_targets: int | None = None,
    nodes_falsenodeids: Numbers = None,
    nodes_featureids: Numbers = None,
    nodes_hitrates: Floats = None,
    nodes_missing_value_tracks_true: Numbers = None,
    nodes_modes: Sequence[str] | None = None,
    nodes_nodeids: Numbers = None,
    nodes_treeids: Numbers = None,
    nodes_truenodeids: Numbers = None,
    nodes_values: Floats = None,
    post_transform: str = "NONE",
    target_ids: Numbers = None,
    target_nodeids: Numbers = None,
    target_treeids: Numbers = None,
    target_weights: Floats = None,
) -> Array:
    """TreeEnsembleRegressor before numbers could be doubles."""
    y: Array = tree_ensemble_regressor(
        x,
        aggregate_function=aggregate_function,
        base_values=base_values,
        n_targets=n_targets,
        nodes_falsenodeids=nodes_falsenodeids,
        nodes_featureids=nodes_featureids,
        nodes_missing_value_tracks_true=nodes_missing_value_tracks_true,
        nodes_modes=nodes_modes,
        nodes_nodeids=nodes_nodeids,
        nodes_treeids=nodes_treeids,
        nodes_truenodeids=nodes_truenodeids,
        nodes_values=nodes_values,
        post_transform=post_transform,
        target_ids=target_ids,
        target_nodeids=target_nodeids,
        target_treeids=target_treeids,
        target_weights=target_weights,
    )
    return y


@kernel("TreeEnsembleRegressor", since=3, until=4, domain=ML, types={"T": NUMERIC})
@kernel("TreeEnsembleRegressor", since=5, domain=ML, types={"T": NUMERIC})
@reference
def tree_ensemble_regressor(
    x: Array,
    *,
    aggregate_function: str = "SUM",
    base_values: Floats = None,
    base_values_as_tensor: Array | None = None,
    n_targets: int | None = None,
    nodes_falsenodeids: Numbers = None,
    nodes_featureids: Numbers = None,
    nodes_hitrates: Floats = None,
    nodes_hitrates_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: Numbers = None,
    nodes_modes: Sequence[str] | None = None,
    nodes_nodeids: Numbers = None,
    nodes_treeids: Numbers = None,
    nodes_truenodeids: Numbers = None,
    nodes_values: Floats = None,
    nodes_values_as_tensor: Array | None = None,
    post_transform: str = "NONE",
    target_ids: Numbers = None,
    target_nodeids: Numbers = None,
    target_treeids: Numbers = None,
    target_weights: Floats = None,
    target_weights_as_tensor: Array | None = None,
) -> Array:
    """For each target the sum, mean, least or greatest of what the trees' leaves say, plus a base value."""
    op = "TreeEnsembleRegressor"
    targets = n_targets or 1
    forest, votes = remember(
        _make_model,
        targets,
        op,
        nodes_treeids,
        nodes_nodeids,
        nodes_featureids,
        nodes_modes,
        nodes_values,
        nodes_values_as_tensor,
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
        target_treeids,
        target_nodeids,
        target_ids,
        target_weights,
        target_weights_as_tensor,
    )
    leaves = find_leaves(op, matrix_of(op, x), forest)
    scores, _ = sum_votes(op, leaves, votes, n_targets=targets, aggregate=aggregate_function)
    scores = _add_base(op, scores, _floats(base_values, base_values_as_tensor))
    return transform_scores(op, scores, post_transform)


def _add_base(op: str, scores: Array, base: Array) -> Array:
    if not base.size:
        return scores
    require(
        base.size == scores.shape[1], op, "'base_values' has the wrong length", expected=scores.shape[1], got=base.size
    )
    return scores + base


@kernel("TreeEnsembleClassifier", since=1, until=2, domain=ML, types={"T1": NUMERIC})
def tree_ensemble_classifier_1(
    x: Array,
    *,
    base_values: Floats = None,
    class_ids: Numbers = None,
    class_nodeids: Numbers = None,
    class_treeids: Numbers = None,
    class_weights: Floats = None,
    classlabels_int64s: Numbers = None,
    classlabels_strings: Sequence[str] | None = None,
    nodes_falsenodeids: Numbers = None,
    nodes_featureids: Numbers = None,
    nodes_hitrates: Floats = None,
    nodes_missing_value_tracks_true: Numbers = None,
    nodes_modes: Sequence[str] | None = None,
    nodes_nodeids: Numbers = None,
    nodes_treeids: Numbers = None,
    nodes_truenodeids: Numbers = None,
    nodes_values: Floats = None,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    """TreeEnsembleClassifier before numbers could be doubles."""
    y: tuple[Array, Array] = tree_ensemble_classifier(
        x,
        base_values=base_values,
        class_ids=class_ids,
        class_nodeids=class_nodeids,
        class_treeids=class_treeids,
        class_weights=class_weights,
        classlabels_int64s=classlabels_int64s,
        classlabels_strings=classlabels_strings,
        nodes_falsenodeids=nodes_falsenodeids,
        nodes_featureids=nodes_featureids,
        nodes_missing_value_tracks_true=nodes_missing_value_tracks_true,
        nodes_modes=nodes_modes,
        nodes_nodeids=nodes_nodeids,
        nodes_treeids=nodes_treeids,
        nodes_truenodeids=nodes_truenodeids,
        nodes_values=nodes_values,
        post_transform=post_transform,
    )
    return y


@kernel("TreeEnsembleClassifier", since=3, until=4, domain=ML, types={"T1": NUMERIC})
@kernel("TreeEnsembleClassifier", since=5, domain=ML, types={"T1": NUMERIC})
@reference
def tree_ensemble_classifier(
    x: Array,
    *,
    base_values: Floats = None,
    base_values_as_tensor: Array | None = None,
    class_ids: Numbers = None,
    class_nodeids: Numbers = None,
    class_treeids: Numbers = None,
    class_weights: Floats = None,
    class_weights_as_tensor: Array | None = None,
    classlabels_int64s: Numbers = None,
    classlabels_strings: Sequence[str] | None = None,
    nodes_falsenodeids: Numbers = None,
    nodes_featureids: Numbers = None,
    nodes_hitrates: Floats = None,
    nodes_hitrates_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: Numbers = None,
    nodes_modes: Sequence[str] | None = None,
    nodes_nodeids: Numbers = None,
    nodes_treeids: Numbers = None,
    nodes_truenodeids: Numbers = None,
    nodes_values: Floats = None,
    nodes_values_as_tensor: Array | None = None,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    """The class with the highest sum of votes; two classes whose votes all go to one of them share one score."""
    op = "TreeEnsembleClassifier"
    classes = len(classlabels_int64s or classlabels_strings or ())
    forest, votes = remember(
        _make_model,
        classes,
        op,
        nodes_treeids,
        nodes_nodeids,
        nodes_featureids,
        nodes_modes,
        nodes_values,
        nodes_values_as_tensor,
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
        class_treeids,
        class_nodeids,
        class_ids,
        class_weights,
        class_weights_as_tensor,
    )
    leaves = find_leaves(op, matrix_of(op, x), forest)
    scores, voted = sum_votes(op, leaves, votes, n_targets=classes)
    base = _floats(base_values, base_values_as_tensor)
    if classes == 2 and np.unique(votes.targets).size == 1:
        places, scores = _decide(op, scores, votes, base, post_transform)
    else:
        scores = _add_base(op, scores, base)
        # A class that nobody speaks of does not win against negative scores.
        places = np.argmax(scores if base.size else np.where(voted, scores, -np.inf), axis=1)
    labels = choose_labels(op, places, classlabels_int64s, classlabels_strings)
    return labels, transform_scores(op, scores, post_transform)


def _decide(op: str, scores: Array, votes: Votes, base: Array, transform: str) -> tuple[Array, Array]:
    """The winner and the two scores when all votes are for one class: they decide for the second class.

    Votes that are never negative add up to something like a probability, others to a margin. The score is shared by
    both classes when it stands in the place of the first.
    """
    require(base.size <= 2, op, "'base_values' has the wrong length", expected="0 to 2", got=base.size)
    target = int(votes.targets[0])
    score = scores[:, target] + (base[-1] if base.size else 0)
    is_probability = bool((votes.weights >= 0).all())
    places = (score > (0.5 if is_probability else 0)).astype(np.int64)
    if target == 1:
        return places, scores + (base if base.size else 0)
    return places, split_score(score, transform, complement=is_probability)


# the newer operator


def _make_indexed(
    n_targets: int,
    roots: Sequence[int],
    features: Sequence[int],
    modes: Array,
    splits: Array,
    true_ids: Sequence[int],
    true_leafs: Sequence[int],
    false_ids: Sequence[int],
    false_leafs: Sequence[int],
    tracks_missing: Numbers,
    leaf_targets: Sequence[int],
    leaf_weights: Array,
    membership: Array | None,
) -> Model:
    """The model of TreeEnsemble, whose ids are places among its branches or among its leaves."""
    op = "TreeEnsemble"
    kinds, leaves = _integers(modes), len(leaf_targets)
    require(kinds.size == 0 or 0 <= kinds.min() <= kinds.max() <= MEMBER, op, "a node mode is unknown")
    forest = make_forest(
        op,
        roots=_check_places(op, _integers(roots), kinds.size),
        features=_integers(features),
        modes=kinds,
        thresholds=splits.reshape(-1),
        true_children=_join_places(op, true_ids, true_leafs, kinds.size, leaves),
        false_children=_join_places(op, false_ids, false_leafs, kinds.size, leaves),
        tracks_missing=tracks_missing,
        leaves=leaves,
        members=_read_members(op, kinds, membership),
    )
    votes = Votes.make(
        op,
        kinds.size + np.arange(leaves),
        _integers(leaf_targets),
        leaf_weights.reshape(-1),
        count=kinds.size + leaves,
        n_targets=n_targets,
    )
    return forest, votes


def _check_places(op: str, places: Array, count: int) -> Array:
    inside = not places.size or (places.min() >= 0 and places.max() < count)
    require(inside, op, "a node id is out of range", expected=f"0..{count - 1}", got=places.max(initial=-1))
    return places


def _join_places(op: str, ids: Sequence[int], is_leaf: Sequence[int], branches: int, leaves: int) -> Array:
    """Children as places among the branches and, after them, the leaves."""
    places, flags = _integers(ids), _integers(is_leaf).astype(bool)
    fits = places.size == flags.size == branches
    require(fits, op, "the lists of nodes differ in length", expected=branches, got=(places.size, flags.size))
    _check_places(op, places[~flags], branches)
    _check_places(op, places[flags], leaves)
    return places + np.where(flags, branches, 0)


def _read_members(op: str, modes: Array, values: Array | None) -> dict[int, Array]:
    """The sets of the MEMBER branches in their order, each ended by a NaN."""
    nodes = np.flatnonzero(modes == MEMBER)
    flat = np.zeros(0) if values is None else values.reshape(-1).astype(np.float64)
    ends = np.flatnonzero(np.isnan(flat))
    # The last set may come without its end.
    sets = np.split(flat, ends) if flat.size and ends.size < nodes.size else np.split(flat, ends)[: ends.size]
    fits = len(sets) == nodes.size
    require(fits, op, "'membership_values' has the wrong count of sets", expected=nodes.size, got=len(sets))
    return {int(node): members[~np.isnan(members)] for node, members in zip(nodes, sets, strict=True)}


@kernel("TreeEnsemble", since=5, domain=ML, types={"T": ("float16", "float32", "float64")})
@reference
def tree_ensemble(
    x: Array,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Sequence[int],
    leaf_weights: Array,
    membership_values: Array | None = None,
    n_targets: int | None = None,
    nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_featureids: Sequence[int],
    nodes_hitrates: Array | None = None,
    nodes_missing_value_tracks_true: Numbers = None,
    nodes_modes: Array,
    nodes_splits: Array,
    nodes_trueleafs: Sequence[int],
    nodes_truenodeids: Sequence[int],
    post_transform: int = 0,
    tree_roots: Sequence[int],
) -> Array:
    """For each target the sum, mean, least or greatest of what the trees' leaves say."""
    op = "TreeEnsemble"
    targets = n_targets or 1
    require(0 <= aggregate_function < len(AGGREGATES), op, "'aggregate_function' is unknown", got=aggregate_function)
    require(0 <= post_transform < len(TRANSFORMS), op, "'post_transform' is unknown", got=post_transform)
    forest, votes = remember(
        _make_indexed,
        targets,
        tree_roots,
        nodes_featureids,
        nodes_modes,
        nodes_splits,
        nodes_truenodeids,
        nodes_trueleafs,
        nodes_falsenodeids,
        nodes_falseleafs,
        nodes_missing_value_tracks_true,
        leaf_targetids,
        leaf_weights,
        membership_values,
    )
    leaves = find_leaves(op, matrix_of(op, x), forest)
    scores, _ = sum_votes(op, leaves, votes, n_targets=targets, aggregate=AGGREGATES[aggregate_function])
    return transform_scores(op, scores, list(TRANSFORMS)[post_transform], x.dtype)
