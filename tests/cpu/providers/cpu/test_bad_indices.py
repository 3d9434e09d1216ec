"""Indices, axes and ids from data that lie out of range: every op names the fault, none reads past an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.provider.schemas.typed_maps import TypedMap
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.registry import registry

load_kernels()

X = np.arange(12, dtype=np.float32).reshape(3, 4)
IMAGE = np.ones((1, 2, 4, 4), dtype=np.float32)
ML = "ai.onnx.ml"
NEWEST = {"": 28, ML: 5}


def ints(*values: Any) -> Any:
    return np.array(values, dtype=np.int64)


def scalar(value: int) -> Any:
    return np.array(value, dtype=np.int64)


TREE: dict[str, Any] = {
    "nodes_splits": np.array([0.5], dtype=np.float32),
    "nodes_featureids": (0,),
    "nodes_modes": np.array([0], dtype=np.uint8),
    "nodes_truenodeids": (0,),
    "nodes_falsenodeids": (1,),
    "nodes_trueleafs": (1,),
    "nodes_falseleafs": (1,),
    "leaf_targetids": (0, 0),
    "leaf_weights": np.array([1.0, 2.0], dtype=np.float32),
    "tree_roots": (0,),
    "n_targets": 1,
}
NODES: dict[str, Any] = {
    "nodes_treeids": (0, 0, 0),
    "nodes_nodeids": (0, 1, 2),
    "nodes_featureids": (0, 0, 0),
    "nodes_modes": ("BRANCH_LEQ", "LEAF", "LEAF"),
    "nodes_values": (0.5, 0.0, 0.0),
    "nodes_truenodeids": (1, 0, 0),
    "nodes_falsenodeids": (2, 0, 0),
}
TARGETS: dict[str, Any] = {
    "target_treeids": (0, 0),
    "target_nodeids": (1, 2),
    "target_ids": (0, 0),
    "target_weights": (1.0, 2.0),
    "n_targets": 1,
}
REGRESSOR = {**NODES, **TARGETS}
CLASSES: dict[str, Any] = {
    "class_treeids": (0, 0),
    "class_nodeids": (1, 2),
    "class_ids": (0, 1),
    "class_weights": (1.0, 2.0),
    "classlabels_int64s": (5, 6),
}
CLASSIFIER = {**NODES, **CLASSES}

HUGE = 2**62
Case = tuple[str, list[Any], dict[str, Any]]
CASES: list[Case] = [
    *(("Gather", [X, ints(i)], {"axis": 1}) for i in (4, -5, HUGE, -HUGE)),
    ("Gather", [X, ints(0)], {"axis": 2}),
    *(("GatherElements", [X, ints([i])], {"axis": 0}) for i in (3, -4, HUGE)),
    ("GatherElements", [X, np.zeros((1, 5), dtype=np.int64)], {"axis": 0}),
    *(("GatherND", [X, ints([i, 0])], {}) for i in (3, -4, HUGE)),
    ("GatherND", [X, ints([0, 0, 0])], {}),
    ("GatherND", [X, ints([0])], {"batch_dims": 2}),
    *(("ScatterElements", [X, ints([i]), X[:1, :1]], {"axis": 0}) for i in (3, -4, -HUGE)),
    *(("ScatterElements", [X, ints([i]), X[:1, :1]], {"axis": 1, "reduction": "add"}) for i in (4, -5)),
    *(("ScatterND", [X, ints([i, 0]), X[0, :1]], {}) for i in (3, -4, HUGE)),
    ("ScatterND", [X, ints([0, 4]), X[0, :1]], {"reduction": "max"}),
    *(("TensorScatter", [X[None], X[None, :2], ints(i)], {"axis": 1}) for i in (2, -1, HUGE)),
    ("OneHot", [ints(0), scalar(-1), X[0, :2]], {}),
    ("OneHot", [ints(0), scalar(3), X[0, :2]], {"axis": 2}),
    ("Slice", [X, ints(0), ints(1), ints(2)], {}),
    ("Slice", [X, ints(0), ints(1), ints(-3)], {}),
    ("Slice", [X, ints(0, 0), ints(1, 1), ints(1, -1)], {}),
    ("Slice", [X, ints(0), ints(1), ints(0), ints(0)], {}),
    ("Pad", [X, ints(1, 1), None, ints(2)], {}),
    ("Pad", [X, ints(-4, 0, 0, 0)], {}),
    ("CenterCropPad", [X, ints(2)], {"axes": (2,)}),
    ("CenterCropPad", [X, ints(-2, 2)], {}),
    *(("Squeeze", [X[:1], ints(i)], {}) for i in (2, -3, HUGE)),
    ("Squeeze", [X, ints(0)], {}),
    *(("Unsqueeze", [X, ints(i)], {}) for i in (3, -4, HUGE)),
    ("Unsqueeze", [X, ints(0, 0)], {}),
    ("Reshape", [X, ints(0, 0, 0)], {}),
    ("Reshape", [X, ints(-1, -1)], {}),
    ("Reshape", [X, ints(5, -1)], {}),
    ("Expand", [X, ints(2, 4)], {}),
    ("Expand", [X, ints(-1, 4)], {}),
    ("Tile", [X, ints(1, -1)], {}),
    ("Split", [X, ints(2, 2)], {"num_outputs": 2}),
    ("Split", [X, ints(4, -1)], {"num_outputs": 2}),
    ("Concat", [X, X], {"axis": 2}),
    *(("Compress", [X, np.array(flags)], {"axis": 0}) for flags in ([False] * 3 + [True], [True] * 9)),
    ("Compress", [X, np.array([True] * 13)], {}),
    *(("TopK", [X, ints(k)], {"axis": 0}) for k in (4, -1, HUGE)),
    ("TopK", [X, ints(1)], {"axis": 2}),
    ("Unique", [X], {"axis": 2}),
    *(("ReverseSequence", [X, ints(*n)], {}) for n in ((4, 0, 0, 0), (-1, 0, 0, 0), (HUGE, 0, 0, 0))),
    *(("CumSum", [X, scalar(axis)], {}) for axis in (2, -3, HUGE)),
    ("CumProd", [X, scalar(2)], {}),
    *(("ReduceSum", [X, ints(axis)], {}) for axis in (2, -3, HUGE)),
    ("ReduceMax", [X, ints(0, 0)], {}),
    ("ArgMax", [X], {"axis": 2}),
    ("Softmax", [X], {"axis": 2}),
    *(("DFT", [X[..., None], None, scalar(axis)], {}) for axis in (3, 2, -1, -4, HUGE)),
    ("DFT", [X[..., None], scalar(0)], {}),
    ("STFT", [X[..., None], scalar(0), X[0]], {}),
    ("STFT", [X[..., None], scalar(1), None, scalar(5)], {}),
    ("Col2Im", [X[None], ints(-2, 2), ints(1, 1)], {}),
    *(("RoiAlign", [IMAGE, np.ones((1, 4), dtype=np.float32), ints(i)], {}) for i in (1, -1, HUGE)),
    ("RoiAlign", [IMAGE, np.full((1, 4), np.nan, dtype=np.float32), ints(0)], {}),
    *(("MaxRoiPool", [IMAGE, np.full((1, 5), i, dtype=np.float32)], {"pooled_shape": (1, 1)}) for i in (1, -1, 1e30)),
    *(("MaxUnpool", [IMAGE, np.full(IMAGE.shape, i)], {"kernel_shape": (1, 1)}) for i in (32, -33, HUGE)),
    ("MaxUnpool", [IMAGE, np.zeros(IMAGE.shape, dtype=np.int64), ints(1, 2, 3, 3)], {"kernel_shape": (1, 1)}),
    (
        "Resize",
        [X, np.ones(3, dtype=np.float32), None, ints(2, 2)],
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
    ),
    ("Resize", [X, None, None, ints(2, 2, 2)], {}),
    ("Resize", [X, None, None, ints(2)], {"axes": (2,)}),
    ("Resize", [X, None, np.array([1, np.nan], dtype=np.float32)], {}),
    ("GridSample", [IMAGE, np.zeros((2, 1, 1, 2), dtype=np.float32)], {}),
    ("GridSample", [IMAGE, np.zeros((1, 1, 1, 3), dtype=np.float32)], {}),
    ("AffineGrid", [np.ones((1, 2, 3), dtype=np.float32), ints(1, 1, -2, 2)], {}),
    ("NonMaxSuppression", [np.ones((1, 3, 4), dtype=np.float32), np.ones((1, 1, 4), dtype=np.float32)], {}),
    ("NegativeLogLikelihoodLoss", [X, ints(0, 1, 4)], {}),
    ("NegativeLogLikelihoodLoss", [X, ints(0, 1, -5)], {}),
    ("SoftmaxCrossEntropyLoss", [X, ints(0, 1, 4)], {}),
    *(("SequenceAt", [[X, X], scalar(i)], {}) for i in (2, -3, HUGE)),
    *(("SequenceErase", [[X, X], scalar(i)], {}) for i in (2, -3)),
    *(("SequenceInsert", [[X, X], X, scalar(i)], {}) for i in (3, -3)),
    ("SplitToSequence", [X, ints(2, 2)], {}),
    ("SplitToSequence", [X, scalar(0)], {}),
    ("ConcatFromSequence", [[X, X]], {"axis": 2}),
    ("QuantizeLinear", [X, X[0], None], {"axis": 2}),
    ("DequantizeLinear", [X.astype(np.int8), X[0], None], {"axis": 2}),
    ("LayerNormalization", [X, X[0]], {"axis": 2}),
    ("RotaryEmbedding", [np.ones((1, 1, 2, 4), np.float32), X[:, :2], X[:, :2], ints([0, 3])], {}),
    ("RotaryEmbedding", [np.ones((1, 1, 2, 4), np.float32), X[:, :2], X[:, :2], ints([0, -1])], {}),
    (
        "GRU",
        [X[None], np.ones((1, 6, 4), np.float32), np.ones((1, 6, 2), np.float32), None, ints(2, 1, 1)],
        {"hidden_size": 2},
    ),
    (
        "LSTM",
        [X[None], np.ones((1, 8, 4), np.float32), np.ones((1, 8, 2), np.float32), None, ints(1, 1, -1)],
        {"hidden_size": 2},
    ),
    *((f"{ML}::ArrayFeatureExtractor", [X, ints(i)], {}) for i in (4, -1, HUGE)),
    (f"{ML}::CastMap", [TypedMap({-1: 1.0}, X.dtype)], {"map_form": "SPARSE", "max_map": 5}),
    (f"{ML}::CastMap", [TypedMap({1: 1.0}, X.dtype)], {"map_form": "SPARSE", "max_map": -5}),
    (f"{ML}::CastMap", [TypedMap({1: 1.0}, X.dtype)], {"map_form": "OTHER"}),
    (f"{ML}::CastMap", [TypedMap({1: 1.0}, X.dtype)], {"cast_to": "TO_BOOL"}),
    (f"{ML}::CastMap", [X], {}),
    (f"{ML}::DictVectorizer", [[X]], {"string_vocabulary": ("a",)}),
    (f"{ML}::DictVectorizer", [TypedMap({"a": 1.0}, X.dtype)], {}),
    *((f"{ML}::TreeEnsemble", [X], {**TREE, "nodes_featureids": (i,)}) for i in (4, -1, HUGE)),
    *((f"{ML}::TreeEnsemble", [X], {**TREE, "nodes_truenodeids": (i,)}) for i in (2, -1, HUGE)),
    (f"{ML}::TreeEnsemble", [X], {**TREE, "nodes_falseleafs": (0,)}),
    (f"{ML}::TreeEnsemble", [X], {**TREE, "nodes_falseleafs": (0,), "nodes_falsenodeids": (0,)}),
    *((f"{ML}::TreeEnsemble", [X], {**TREE, "leaf_targetids": (0, i)}) for i in (1, -1, HUGE)),
    *((f"{ML}::TreeEnsemble", [X], {**TREE, "tree_roots": (i,)}) for i in (1, -1, HUGE)),
    (f"{ML}::TreeEnsemble", [X], {**TREE, "nodes_modes": np.array([7], dtype=np.uint8)}),
    (f"{ML}::TreeEnsemble", [X], {**TREE, "nodes_modes": np.array([6], dtype=np.uint8)}),
    (f"{ML}::TreeEnsemble", [X], {**TREE, "nodes_splits": X[0, :2]}),
    (f"{ML}::TreeEnsemble", [X], {**TREE, "aggregate_function": 4}),
    *((f"{ML}::TreeEnsembleRegressor", [X], {**REGRESSOR, "nodes_truenodeids": (i, 0, 0)}) for i in (3, -1, 0)),
    *((f"{ML}::TreeEnsembleRegressor", [X], {**REGRESSOR, "nodes_featureids": (i, 0, 0)}) for i in (4, -1)),
    *((f"{ML}::TreeEnsembleRegressor", [X], {**REGRESSOR, "target_ids": (0, i)}) for i in (1, -1)),
    (f"{ML}::TreeEnsembleRegressor", [X], {**REGRESSOR, "target_nodeids": (1, 3)}),
    (f"{ML}::TreeEnsembleRegressor", [X], {**REGRESSOR, "nodes_nodeids": (0, 1, 1)}),
    (f"{ML}::TreeEnsembleRegressor", [X], {**REGRESSOR, "nodes_modes": ("BRANCH_LEQ", "LEAF", "TWIG")}),
    *((f"{ML}::TreeEnsembleClassifier", [X], {**CLASSIFIER, "class_ids": (0, i)}) for i in (2, -1)),
    (f"{ML}::TreeEnsembleClassifier", [X], {**CLASSIFIER, "class_treeids": (0, 1)}),
    (f"{ML}::TreeEnsembleClassifier", [X], {**CLASSIFIER, "nodes_falsenodeids": (2, 0)}),
    (
        f"{ML}::LinearClassifier",
        [X],
        {"coefficients": (1.0,) * 4, "classlabels_ints": (1, 2, 3), "intercepts": (0.0, 1.0)},
    ),
    (f"{ML}::LinearRegressor", [X], {"coefficients": (1.0,) * 5}),
    (
        f"{ML}::SVMRegressor",
        [X],
        {"coefficients": (1.0,), "support_vectors": (1.0,) * 4, "n_supports": 2, "rho": (0.0,)},
    ),
    (f"{ML}::ZipMap", [X], {"classlabels_int64s": (1, 2)}),
]


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_out_of_range_is_named(op: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    domain, _, name = op.rpartition("::")
    kernel = registry.find(name, domain, NEWEST[domain])
    assert kernel is not None
    given = {key: value for key, value in attributes.items() if key != "num_outputs"}
    function = kernel.bind(given, attributes.get("num_outputs", 1))
    with pytest.raises(InputError, match=f"op {name}: "):
        function(*inputs)


def test_good_trees_are_not_refused() -> None:
    """The attributes that the cases spoil are right by themselves."""
    for name, attributes in (("TreeEnsemble", TREE), ("TreeEnsembleRegressor", REGRESSOR)):
        kernel = registry.find(name, ML, 5)
        assert kernel is not None
        assert kernel.bind(attributes, 1)(X).tolist() == [[1.0], [2.0], [2.0]]
    kernel = registry.find("TreeEnsembleClassifier", ML, 5)
    assert kernel is not None
    labels, scores = kernel.bind(CLASSIFIER, 2)(X)
    assert labels.tolist() == [5, 6, 6]
    assert scores.tolist() == [[1.0, 0.0], [0.0, 2.0], [0.0, 2.0]]
