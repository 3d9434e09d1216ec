"""Linear models, support vector machines and trees of ai.onnx.ml against ONNX Runtime and the text of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels._trees import _build
from dovetail.providers.cpu.registry import registry
from tests.support.ml_node import ML, check_ml, make_trees, run_ml

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(5, 4)).astype(np.float32)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def floats(count: int, seed: int = 0) -> list[float]:
    return np.random.default_rng(seed).normal(size=count).tolist()


def samples(dtype: Any = np.float32) -> Any:
    """Rows that meet thresholds exactly, and some that lack values."""
    x = np.round(np.random.default_rng(1).normal(size=(40, 4)), 1).astype(dtype)
    x[3, 1] = x[5] = np.nan
    return x


# linear models


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_models_are_as_in_onnxruntime(transform: str) -> None:
    several = {"coefficients": floats(8), "intercepts": [0.1, 0.2], "post_transform": transform}
    check_ml("LinearRegressor", [X], {**several, "targets": 2})
    check_ml("LinearClassifier", [X], {**several, "classlabels_strings": ["a", "b"]}, outputs=2)
    three = {"coefficients": floats(12), "intercepts": [0.1, 0.2, 0.3], "post_transform": transform}
    check_ml("LinearClassifier", [X.astype(np.int64)], {**three, "classlabels_ints": [4, 5, 6]}, outputs=2)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_one_score_for_two_classes_is_as_in_onnxruntime(transform: str) -> None:
    one = {"coefficients": floats(4), "intercepts": [0.1], "classlabels_ints": [4, 5], "post_transform": transform}
    check_ml("LinearClassifier", [X], one, outputs=2)


def test_transforms_apply_to_single_scores_too() -> None:
    """ONNX Runtime leaves a single score as it is; the text of the operators knows no such exception."""
    (y,) = run_ml("LinearRegressor", [X], {"coefficients": floats(4), "post_transform": "LOGISTIC"})
    raw = X.astype(np.float64) @ np.float32(floats(4))
    np.testing.assert_allclose(y[:, 0], 1 / (1 + np.exp(-raw)), rtol=1e-5)
    one = {"coefficients": floats(4), "classlabels_ints": [4, 5], "post_transform": "SOFTMAX"}
    labels, scores = run_ml("LinearClassifier", [X], one, outputs=2)
    np.testing.assert_allclose(scores[:, 1], 1 / (1 + np.exp(-2 * raw)), rtol=1e-5)
    assert labels.tolist() == np.where(raw > 0, 5, 4).tolist()


# support vector machines


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor_is_as_in_onnxruntime(kind: str, one_class: int) -> None:
    machine = {"coefficients": floats(3), "support_vectors": floats(12), "n_supports": 3, "rho": [0.3]}
    kernel = {"kernel_type": kind, "kernel_params": [0.5, 0.2, 2.0]}
    check_ml("SVMRegressor", [X], {**machine, **kernel, "one_class": one_class})


def _machine(per_class: list[int], *, with_probabilities: bool, kind: str = "RBF") -> dict[str, Any]:
    classes, count = len(per_class), sum(per_class)
    pairs = classes * (classes - 1) // 2
    machine = {
        "coefficients": floats((classes - 1) * count, 1),
        "support_vectors": floats(count * 4, 2),
        "vectors_per_class": per_class,
        "rho": floats(pairs, 3),
        "kernel_type": kind,
        "kernel_params": [0.5, 0.2, 2.0],
        "classlabels_ints": list(range(10, 10 + classes)),
    }
    if with_probabilities:
        machine |= {"prob_a": (-np.abs(floats(pairs, 4))).tolist(), "prob_b": floats(pairs, 5)}
    return machine


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("per_class", [[2, 3], [2, 1, 3], [1, 2, 2, 1]])
@pytest.mark.parametrize("with_probabilities", [False, True])
def test_svm_classifier_is_as_in_onnxruntime(kind: str, per_class: list[int], with_probabilities: bool) -> None:
    machine = _machine(per_class, with_probabilities=with_probabilities, kind=kind)
    check_ml("SVMClassifier", [X], machine, outputs=2)
    check_ml("SVMClassifier", [X], {**machine, "post_transform": "LOGISTIC"}, outputs=2)


def test_linear_svm_classifier_is_as_in_onnxruntime() -> None:
    machine = {"coefficients": floats(12), "rho": [0.3], "kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
    check_ml("SVMClassifier", [X], {**machine, "classlabels_ints": [10, 11, 12]}, outputs=2)


def test_svm_probabilities_sum_to_one() -> None:
    many = np.random.default_rng(7).normal(size=(200, 4)).astype(np.float32)
    _, scores = run_ml("SVMClassifier", [many], _machine([2, 1, 3, 1], with_probabilities=True), outputs=2)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)


# trees


def _regressor(seed: int, targets: int, aggregate: str, modes: tuple[str, ...] = MODES) -> dict[str, Any]:
    attributes, leaves = make_trees(seed, modes=modes)
    votes = [(tree, node, target) for tree, node in leaves for target in range(targets)]
    return attributes | {
        "target_treeids": [vote[0] for vote in votes],
        "target_nodeids": [vote[1] for vote in votes],
        "target_ids": [vote[2] for vote in votes],
        "target_weights": floats(len(votes), seed),
        "n_targets": targets,
        "aggregate_function": aggregate,
    }


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tree_regressor_is_as_in_onnxruntime(aggregate: str, targets: int, dtype: Any) -> None:
    model = _regressor(targets, targets, aggregate)
    check_ml("TreeEnsembleRegressor", [samples(dtype)], model)
    check_ml("TreeEnsembleRegressor", [samples(dtype)], {**model, "base_values": floats(targets, 9)})
    check_ml("TreeEnsembleRegressor", [samples(dtype)], model, opset=1)


@pytest.mark.parametrize("transform", TRANSFORMS[:-1])
def test_tree_regressor_transforms(transform: str) -> None:
    check_ml("TreeEnsembleRegressor", [samples()], {**_regressor(3, 3, "SUM"), "post_transform": transform})


def _classifier(seed: int, classes: int, *, voted: int | None, positive: bool) -> dict[str, Any]:
    attributes, leaves = make_trees(seed, depth=2)
    votes = [(tree, node, c) for tree, node in leaves for c in (range(classes) if voted is None else [voted])]
    weights = 0.3 * np.array(floats(len(votes), seed))
    return attributes | {
        "class_treeids": [vote[0] for vote in votes],
        "class_nodeids": [vote[1] for vote in votes],
        "class_ids": [vote[2] for vote in votes],
        "class_weights": (np.abs(weights) if positive else weights).tolist(),
        "classlabels_int64s": list(range(10, 10 + classes)),
    }


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("voted", [None, 0, 1])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_tree_classifier_of_many_is_as_in_onnxruntime(positive: bool, voted: int | None, transform: str) -> None:
    model = {**_classifier(4, 5, voted=voted, positive=positive), "post_transform": transform}
    check_ml("TreeEnsembleClassifier", [samples()], model, outputs=2)
    check_ml("TreeEnsembleClassifier", [samples()], {**model, "base_values": floats(5, 8)}, outputs=2)


@pytest.mark.parametrize(("positive", "transform"), [(False, "NONE"), (False, "LOGISTIC"), (True, "NONE")])
@pytest.mark.parametrize("voted", [0, 1])
def test_tree_classifier_of_two_is_as_in_onnxruntime(positive: bool, transform: str, voted: int) -> None:
    model = {**_classifier(5, 2, voted=voted, positive=positive), "post_transform": transform}
    check_ml("TreeEnsembleClassifier", [samples()], model, outputs=2)
    strings = {"classlabels_strings": ["no", "yes"]}
    check_ml("TreeEnsembleClassifier", [samples()], {**_without_labels(model), **strings}, outputs=2, opset=1)


def _without_labels(model: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name != "classlabels_int64s"}


def test_two_classes_with_votes_for_both_take_the_higher() -> None:
    """ONNX Runtime gives 0 and 1 here, whatever the labels are."""
    model = _classifier(6, 2, voted=None, positive=True)
    labels, scores = run_ml("TreeEnsembleClassifier", [samples()], model, outputs=2)
    assert labels.tolist() == (10 + np.argmax(scores, axis=1)).tolist()


def test_branches_may_share_a_subtree() -> None:
    """Converters write the test for membership of a set so: a chain of BRANCH_EQ with one true side."""
    nodes = {
        "nodes_treeids": [0] * 4,
        "nodes_nodeids": [0, 1, 2, 3],
        "nodes_featureids": [0, 0, 0, 0],
        "nodes_modes": ["BRANCH_EQ", "BRANCH_EQ", "LEAF", "LEAF"],
        "nodes_values": [1.0, 3.0, 0.0, 0.0],
        "nodes_truenodeids": [2, 2, 0, 0],
        "nodes_falsenodeids": [1, 3, 0, 0],
    }
    votes = {"target_treeids": [0, 0], "target_nodeids": [2, 3], "target_ids": [0, 0], "target_weights": [1.0, -1.0]}
    x = np.array([[0.0], [1.0], [2.0], [3.0]], dtype=np.float32)
    (y,) = run_ml("TreeEnsembleRegressor", [x], {**nodes, **votes, "n_targets": 1})
    assert y[:, 0].tolist() == [-1, 1, -1, 1]


def test_a_model_is_built_once_for_all_runs() -> None:
    load_kernels()
    kernel = registry.find("TreeEnsembleRegressor", ML, 3)
    assert kernel is not None
    steps = [kernel.bind(_regressor(seed, 1, "SUM"), 1) for seed in range(3)]
    _build.cache_clear()
    first = [step(samples()) for step in steps]
    again = [step(samples()) for step in steps]
    assert (_build.cache_info().misses, _build.cache_info().hits) == (3, 3)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert not np.array_equal(first[0], first[1])
