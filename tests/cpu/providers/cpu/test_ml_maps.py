"""Maps in ai.onnx.ml: made from scores, and made into rows, as ONNX Runtime does both."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from dovetail.errors import InputError
from dovetail.provider.schemas.typed_maps import TypedMap
from tests.support.ml_node import ML, check_ml, run_ml

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def _typed(entries: dict[Any, Any]) -> TypedMap:
    kinds: dict[type, Any] = {float: np.float32, int: np.int64, str: object}
    return TypedMap(entries, np.dtype(kinds[type(next(iter(entries.values())))]))


def _run_ort(op: str, entries: dict[Any, float], attributes: dict[str, Any]) -> Any:
    """ONNX Runtime on a map; what makes one of a dict knows single precision alone."""
    key = TensorProto.STRING if isinstance(next(iter(entries)), str) else TensorProto.INT64
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    node = helper.make_node(op, ["x"], ["y"], domain=ML, **attributes)
    graph = helper.make_graph([node], op, [helper.make_value_info("x", kind)], [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": entries})[0]


def _check(op: str, entries: dict[Any, float], attributes: dict[str, Any]) -> None:
    (ours,), theirs = run_ml(op, [_typed(entries)], attributes), _run_ort(op, entries, attributes)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("x", [X, X[0], X[:0]], ids=["rows", "vector", "nothing"])
def test_scores_are_zipped_as_in_onnxruntime(x: Any) -> None:
    check_ml("ZipMap", [x], {"classlabels_strings": ["b", "a", "d", "c"]})
    check_ml("ZipMap", [x], {"classlabels_int64s": [8, -6, 7, 5]})


def test_labels_come_in_order_and_scores_are_floats() -> None:
    ((first, *_),) = run_ml("ZipMap", [X], {"classlabels_int64s": [8, -6, 7, 5]})
    assert list(first) == [-6, 5, 7, 8]
    assert {type(score) for score in first.values()} == {float}


def test_maps_become_rows_as_in_onnxruntime() -> None:
    words = {"string_vocabulary": ["a", "c", "b"]}
    for entries in ({"a": 1.5}, {"b": 2.0, "c": -1.0}, {"unknown": 3.0}):
        _check("DictVectorizer", entries, words)
    _check("DictVectorizer", {3: 1.5, 9: 2.0}, {"int64_vocabulary": [9, 1, 3]})


def test_rows_have_the_type_of_the_map() -> None:
    (y,) = run_ml("DictVectorizer", [_typed({"a": 4, "c": 8})], {"string_vocabulary": ["a", "c", "b", "z"]})
    assert y.dtype == np.int64
    assert y.tolist() == [[4, 8, 0, 0]]
    (y,) = run_ml("DictVectorizer", [_typed({3: "x"})], {"int64_vocabulary": [1, 3]})
    assert y.tolist() == [["", "x"]]
    (y,) = run_ml("DictVectorizer", [TypedMap({}, np.dtype(np.float64))], {"int64_vocabulary": [1, 3]})
    assert (y.dtype, y.tolist()) == (np.float64, [[0, 0]])


@pytest.mark.parametrize("cast_to", ["TO_FLOAT", "TO_STRING", "TO_INT64"])
@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
def test_maps_are_cast_as_in_onnxruntime(cast_to: str, form: str) -> None:
    attributes = {"cast_to": cast_to, "map_form": form, "max_map": 5}
    for entries in ({3: 1.5, 1: -2.25}, {7: 1.5}, {0: 1e-7, 4: 123456789.0}):
        rounded = {key: float(np.float32(element)) for key, element in entries.items()}
        _check("CastMap", rounded, attributes)


def test_text_is_cast() -> None:
    attributes = {"map_form": "SPARSE", "max_map": 4, "cast_to": "TO_INT64"}
    (y,) = run_ml("CastMap", [_typed({2: "7", 0: "9007199254740993", 1: "-1.5"})], attributes)
    assert y.tolist() == [[9007199254740993, -1, 7, 0]]
    (y,) = run_ml("CastMap", [_typed({2: "1.5"})], {})
    assert (y.dtype, y.tolist()) == (np.float32, [[1.5]])
    (y,) = run_ml("CastMap", [_typed({2: "1.5"})], {"cast_to": "TO_STRING"})
    assert y.tolist() == [["1.5"]]


@pytest.mark.parametrize("entries", [{1: "x"}, {1: ""}])
def test_text_that_is_no_number_is_named(entries: dict[int, str]) -> None:
    for cast_to in ("TO_FLOAT", "TO_INT64"):
        with pytest.raises(InputError, match="not a number"):
            run_ml("CastMap", [_typed(entries)], {"cast_to": cast_to})


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_what_is_no_integer_is_named(score: float) -> None:
    with pytest.raises(InputError, match="not a number"):
        run_ml("CastMap", [_typed({1: score})], {"cast_to": "TO_INT64"})
