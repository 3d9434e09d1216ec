"""Maps from a model through a saved plan to results: dicts go in and come out, and what is no map is named."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import dovetail as dt

FLOAT, DOUBLE, INT64, STRING = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
ML = "ai.onnx.ml"


def map_info(name: str, key: int, element: int) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_map_type_proto(key, helper.make_tensor_type_proto(element, None)))


def _maps(name: str, key: int, element: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_sequence_type_proto(map_info(name, key, element).type))


def _model(nodes: Any, inputs: Any, outputs: Any) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    return helper.make_model(helper.make_graph(nodes, "maps", inputs, outputs), opset_imports=opsets, ir_version=9)


def _zip(labels: list[Any], providers: list[str] | None = None, dims: Any = ("n", None)) -> dt.Engine:
    is_text = isinstance(labels[0], str)
    attributes = {"classlabels_strings" if is_text else "classlabels_int64s": labels}
    node = helper.make_node("ZipMap", ["x"], ["y"], domain=ML, **attributes)
    ports = [helper.make_tensor_value_info("x", FLOAT, dims)], [_maps("y", STRING if is_text else INT64)]
    return dt.compile(_model([node], *ports), providers=providers)


def _rows(key: int, element: int, vocabulary: list[Any]) -> dt.Engine:
    attribute = "string_vocabulary" if key == STRING else "int64_vocabulary"
    node = helper.make_node("DictVectorizer", ["m"], ["y"], domain=ML, **{attribute: vocabulary})
    return dt.compile(_model([node], [map_info("m", key, element)], [onnx.ValueInfoProto(name="y")]))


PROVIDERS = pytest.mark.parametrize("providers", [None, ["cpu"]], ids=["default", "cpu"])


# out


@PROVIDERS
@pytest.mark.parametrize("labels", [["b", "a", ""], [3, -1, 2**40]])
def test_scores_come_out_as_dicts(labels: list[Any], providers: list[str] | None, tmp_path: Path) -> None:
    engine = _zip(labels, providers)
    x = np.array([[0.5, 0.25, 1.5], [1, 2, math.inf]], np.float32)
    expected = [dict(sorted(zip(labels, row, strict=True))) for row in x.tolist()]
    engine.save(tmp_path / "zip.plan")
    for each in (engine, dt.load(tmp_path / "zip.plan")):
        for _ in range(3):
            result = each(x)
            assert result == expected
            assert [list(entries) for entries in result] == [list(entries) for entries in expected]
        assert each(x[:0]) == []
    assert f"seq(map({'string' if isinstance(labels[0], str) else 'int64'},tensor(float)))" in repr(engine)


@PROVIDERS
def test_a_vector_is_one_row(providers: list[str] | None) -> None:
    assert _zip(["p", "q"], providers, ["c"])(np.array([0.5, 2], np.float32)) == [{"p": 0.5, "q": 2.0}]


@PROVIDERS
def test_what_comes_out_is_the_callers_own(providers: list[str] | None) -> None:
    engine, x = _zip(["p", "q"], providers), np.ones((1, 2), np.float32)
    first = engine(x)
    first[0]["p"] = 9.0
    assert engine(x) == [{"p": 1.0, "q": 1.0}]
    context = engine.create_execution_context()
    assert context.run([x]) == [[{"p": 1.0, "q": 1.0}]]


@PROVIDERS
def test_too_few_columns_are_named(providers: list[str] | None) -> None:
    with pytest.raises(dt.DovetailError, match="ZipMap"):
        _zip(["p", "q"], providers)(np.ones((1, 3), np.float32))


# in


@pytest.mark.parametrize(
    ("key", "element", "vocabulary", "entries", "expected"),
    [
        (STRING, FLOAT, ["a", "b", "c"], {"c": 0.5, "a": 2, "new": 9.0}, [2.0, 0.0, 0.5]),
        (STRING, DOUBLE, ["a", "b"], {"b": np.float64(0.1)}, [0.0, 0.1]),
        (STRING, INT64, ["a", "b"], {"b": np.int32(-3)}, [0, -3]),
        (INT64, FLOAT, [7, 5], {np.int64(5): np.float32(0.5)}, [0.0, 0.5]),
        (INT64, DOUBLE, [7, 5], {7: 1}, [1.0, 0.0]),
        (INT64, STRING, [7, 5], {5: "x"}, ["", "x"]),
    ],
)
def test_a_dict_goes_in(key: int, element: int, vocabulary: Any, entries: Any, expected: Any, tmp_path: Path) -> None:
    engine = _rows(key, element, vocabulary)
    engine.save(tmp_path / "rows.plan")
    dtype = helper.tensor_dtype_to_np_dtype(element)
    for each in (engine, dt.load(tmp_path / "rows.plan")):
        y = each(entries)
        assert y.dtype == dtype
        assert y.tolist() == [expected]
        empty = each({})
        assert (empty.dtype, empty.shape) == (dtype, (1, len(vocabulary)))
    assert [tensor.type for tensor in engine.manifest.inputs] == [engine.tensor("m").type]


def test_numbers_are_rounded_to_the_type_of_the_map() -> None:
    engine = _rows(STRING, FLOAT, ["a", "b"])
    assert engine({"a": 0.1, "b": 1e300}).tolist() == [[float(np.float32(0.1)), math.inf]]


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.floats(width=32, allow_nan=False), max_size=6))
def test_every_map_becomes_its_row(entries: dict[int, float]) -> None:
    vocabulary = sorted({0, 1, *list(entries)[::2]})
    node = helper.make_node("DictVectorizer", ["m"], ["y"], domain=ML, int64_vocabulary=vocabulary)
    model = _model([node], [map_info("m", INT64, FLOAT)], [onnx.ValueInfoProto(name="y")])
    assert dt.compile(model, providers=["cpu"])(entries).tolist() == [[entries.get(key, 0.0) for key in vocabulary]]


@pytest.mark.parametrize(
    ("key", "element", "value", "expected"),
    [
        (STRING, FLOAT, [("a", 1.0)], "not a map; expected a dict, for map"),
        (STRING, FLOAT, None, "not a map"),
        (STRING, FLOAT, {1: 1.0}, "key 1: not a string"),
        (STRING, FLOAT, {b"a": 1.0}, "key b'a': not a string"),
        (STRING, FLOAT, {"a": "1"}, r"\['a'\]: not a number"),
        (STRING, FLOAT, {"a": True}, r"\['a'\]: not a number"),
        (STRING, FLOAT, {"a": None}, r"\['a'\]: not a number"),
        (STRING, FLOAT, {"a": 1j}, r"\['a'\]: not a number"),
        (STRING, FLOAT, {"a": 10**400}, r"\['a'\]: a number is out of range"),
        (STRING, INT64, {"a": 1.0}, r"\['a'\]: not an integer"),
        (STRING, INT64, {"a": 2**63}, r"\['a'\]: an integer is out of range"),
        (INT64, FLOAT, {"a": 1.0}, "key 'a': not an integer"),
        (INT64, FLOAT, {1.0: 1.0}, "key 1.0: not an integer"),
        (INT64, FLOAT, {True: 1.0}, "key True: not an integer"),
        (INT64, FLOAT, {-(2**63) - 1: 1.0}, "an integer is out of range"),
        (INT64, STRING, {1: 1.0}, r"\[1\]: not a string"),
    ],
)
def test_what_is_no_such_map_is_named(key: int, element: int, value: Any, expected: str) -> None:
    engine = _rows(key, element, ["a"] if key == STRING else [1])
    with pytest.raises(dt.InputError, match=expected) as caught:
        engine(value)
    assert "input 'm'" in str(caught.value)


def test_a_map_is_cast(tmp_path: Path) -> None:
    node = helper.make_node("CastMap", ["m"], ["y"], domain=ML, map_form="SPARSE", max_map=4, cast_to="TO_INT64")
    engine = dt.compile(_model([node], [map_info("m", INT64, STRING)], [onnx.ValueInfoProto(name="y")]))
    assert engine.tensor("y").fixed_shape == (1, 4)
    assert engine({3: "7", 1: "9007199254740993"}).tolist() == [[0, 9007199254740993, 0, 7]]


def test_a_branch_reads_a_map_from_outside() -> None:
    node = helper.make_node("DictVectorizer", ["m"], ["a"], domain=ML, string_vocabulary=["p", "q"])
    floats = [helper.make_tensor_value_info(name, FLOAT, [1, 2]) for name in "aby"]
    then = helper.make_graph([node], "then", [], floats[:1])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "else", [], floats[1:2])
    choice = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    ports = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        map_info("m", STRING, FLOAT),
        helper.make_tensor_value_info("x", FLOAT, [1, 2]),
    ]
    engine, x = dt.compile(_model([choice], ports, floats[2:])), np.ones((1, 2), np.float32)
    assert engine(np.array(True), {"q": 2.0}, x).tolist() == [[0, 2]]
    assert engine(np.array(False), {}, x).tolist() == [[-1, -1]]


# the interface by address


def test_maps_have_no_address() -> None:
    engine = _rows(STRING, FLOAT, ["a"])
    context = engine.create_execution_context()
    for call in (
        lambda: context.set_tensor_address("m", 64),
        lambda: context.set_input_shape("m", (1,)),
        lambda: engine.get_tensor_dtype("m"),
    ):
        with pytest.raises(dt.UsageError, match=r"(?s)which has no address.*a dict"):
            call()
