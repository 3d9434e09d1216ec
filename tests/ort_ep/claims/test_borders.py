"""Values that are not plain memory never cross a border; inside of a partition they may be anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.ort_ep import EP, RUNTIME, reference_session
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

CPU = "CPUExecutionProvider"
X = np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3)
STRING, FLOAT, INT4 = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT4
ML = "ai.onnx.ml"
MAP = helper.make_map_type_proto(STRING, helper.make_tensor_type_proto(FLOAT, None))
SCALE = {"scale": np.float32(0.5), "zero": helper.make_tensor("zero", INT4, [], [0])}

Open = Callable[..., Any]


def _sequence(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, FLOAT, None)


def _optional(name: str) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2, 3])))


def _body(name: str, index: int) -> onnx.GraphProto:
    """A branch that takes a part of a tensor around it, by way of a sequence."""
    steps = [
        node("Constant", [], [f"{name}_i"], value_int=index),
        node("SplitToSequence", ["x"], [f"{name}_q"], axis=0),
        node("SequenceAt", [f"{name}_q", f"{name}_i"], [f"{name}_y"]),
    ]
    return helper.make_graph(steps, name, [], [tensor(f"{name}_y", None)])


IN = [tensor("x", [2, 3])]
OUT = [tensor("y", None)]
CROSSING = {
    "strings in": (
        make_model([node("Cast", ["x"], ["a"], to=FLOAT), node("Relu", ["a"], ["y"])], [tensor("x", [2], STRING)], OUT),
        {"x": np.array(["-1", "2.5"], object)},
        {EP: ["Relu"], CPU: ["Cast"]},
    ),
    "strings out": (
        make_model(
            [node("Relu", ["x"], ["a"]), node("Cast", ["a"], ["y"], to=STRING)], IN, [tensor("y", None, STRING)]
        ),
        {"x": X},
        {EP: ["Relu"], CPU: ["Cast"]},
    ),
    "weights of strings": (
        make_model(
            [node("StringConcat", ["s", "w"], ["t"]), node("Relu", ["x"], ["y"])],
            [tensor("s", [2], STRING), *IN],
            [tensor("t", [2], STRING), *OUT],
            {"w": helper.make_tensor("w", STRING, [1], [b"!"])},
        ),
        {"s": np.array(["a", "b"], object), "x": X},
        {EP: ["Relu"], CPU: ["StringConcat"]},
    ),
    "a sequence in": (
        make_model(
            [node("ConcatFromSequence", ["q"], ["a"], axis=0), node("Relu", ["a"], ["y"])], [_sequence("q")], OUT
        ),
        {"q": [X, X]},
        {EP: ["Relu"], CPU: ["ConcatFromSequence"]},
    ),
    "a sequence out": (
        make_model([node("Relu", ["x"], ["a"]), node("SplitToSequence", ["a"], ["y"], axis=0)], IN, [_sequence("y")]),
        {"x": X},
        {EP: ["Relu"], CPU: ["SplitToSequence"]},
    ),
    "an optional in": (
        make_model([node("OptionalGetElement", ["o"], ["a"]), node("Relu", ["a"], ["y"])], [_optional("o")], OUT),
        {"o": X},
        {EP: ["Relu"], CPU: ["OptionalGetElement"]},
    ),
    "a map in": (
        make_model(
            [node("DictVectorizer", ["m"], ["a"], domain=ML, string_vocabulary=["p", "q"]), node("Relu", ["a"], ["y"])],
            [helper.make_value_info("m", MAP)],
            OUT,
            domains=[ML],
        ),
        {"m": {"q": 2.0}},
        {EP: ["Relu"], CPU: ["DictVectorizer"]},
    ),
    "maps out": (
        make_model(
            [node("Relu", ["x"], ["a"]), node("ZipMap", ["a"], ["y"], domain=ML, classlabels_strings=["p", "q", "r"])],
            IN,
            [helper.make_value_info("y", helper.make_sequence_type_proto(MAP))],
            domains=[ML],
        ),
        {"x": X},
        {EP: ["Relu"], CPU: ["ZipMap"]},
    ),
}
INSIDE = {
    "strings": (
        make_model([node("Cast", ["x"], ["a"], to=STRING), node("Cast", ["a"], ["y"], to=FLOAT)], IN, OUT),
        ["Cast", "Cast"],
    ),
    "a sequence": (
        make_model(
            [node("SplitToSequence", ["x"], ["q"], axis=0), node("SequenceAt", ["q", "i"], ["y"])], IN, OUT, {"i": 1}
        ),
        ["SequenceAt", "SplitToSequence"],
    ),
    "a sequence in a body": (
        make_model(
            [
                node("ReduceMax", ["x"], ["m"], keepdims=0),
                node("Greater", ["m", "zero"], ["c"]),
                node("If", ["c"], ["y"], then_branch=_body("first", 0), else_branch=_body("second", 1)),
            ],
            IN,
            OUT,
            {"zero": np.float32(0)},
        ),
        ["Greater", "If", "ReduceMax"],
    ),
    "an optional": (
        make_model([node("Optional", ["x"], ["o"]), node("OptionalGetElement", ["o"], ["y"])], IN, OUT),
        ["Optional", "OptionalGetElement"],
    ),
    "four bits": (
        make_model(
            [node("QuantizeLinear", ["x", "scale", "zero"], ["q"]), node("DequantizeLinear", ["q", "scale"], ["y"])],
            IN,
            OUT,
            SCALE,
        ),
        ["DequantizeLinear", "QuantizeLinear"],
    ),
    "a weight of four bits": (
        make_model(
            [node("DequantizeLinear", ["w", "scale"], ["a"]), node("Add", ["a", "x"], ["y"])],
            IN,
            OUT,
            {"w": helper.make_tensor("w", INT4, [2, 3], [1, -2, 3, -8, 7, 0]), "scale": np.float32(0.5)},
        ),
        ["Add", "DequantizeLinear"],
    ),
}


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_equal, ours, theirs))
    return np.array_equal(ours, theirs)


@pytest.mark.parametrize("name", CROSSING)
def test_at_a_border_they_go_back_to_onnx_runtime(dovetail_session: Open, assigned: Open, name: str) -> None:
    model, feeds, expected = CROSSING[name]
    session = dovetail_session(model, claim="all", fallback=True)
    assert assigned(session) == expected
    assert _equal(session.run(None, feeds), reference_session(model).run(None, feeds))


@pytest.mark.parametrize("name", INSIDE)
def test_inside_of_a_partition_they_are_taken(dovetail_session: Open, assigned: Open, name: str) -> None:
    if "body" in name and RUNTIME < (1, 27):
        pytest.skip("ONNX Runtime hands over what bodies read from 1.27 on")
    model, expected = INSIDE[name]
    session = dovetail_session(model, claim="all")
    assert assigned(session) == {EP: expected}
    assert _equal(session.run(None, {"x": X}), reference_session(model).run(None, {"x": X}))


def test_four_bits_at_a_border_go_back_to_onnx_runtime(dovetail_session: Open, assigned: Open) -> None:
    """Their result has no NumPy type in ONNX Runtime, so it is read as memory."""
    steps = [node("Relu", ["x"], ["a"]), node("QuantizeLinear", ["a", "scale", "zero"], ["y"])]
    model = make_model(steps, IN, [tensor("y", None, INT4)], SCALE)
    session = dovetail_session(model, claim="all", fallback=True)
    assert assigned(session) == {EP: ["Relu"], CPU: ["QuantizeLinear"]}


@pytest.mark.parametrize(
    "kind", ["float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
)
def test_every_plain_type_crosses(dovetail_session: Open, assigned: Open, kind: str) -> None:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    steps = [node("Transpose", ["x"], ["y"], perm=[1, 0])]
    model = make_model(steps, [tensor("x", ["n", 3], number)], [tensor("y", None, number)])
    session = dovetail_session(model, claim="all")
    assert assigned(session) == {EP: ["Transpose"]}
    x = (X > 0).astype(kind)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.T)
