"""Weights appended to a stored partition, and payloads that name files."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dovetail.errors import PlanCorruptError
from dovetail.providers.onnxruntime.wire import AppendedTensor, FilePlace, append_weights, names_files


def _model(*initializers: onnx.TensorProto, name: str = "y") -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("x", name)]
    node = helper.make_node("Add", ["x", "w"], [name])
    return helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:], list(initializers)))


@settings(deadline=None, max_examples=60)
@given(
    st.text(min_size=1, max_size=40),
    st.lists(st.integers(0, 2**40), max_size=5),
    st.integers(0, 2**60),
    st.integers(0, 2**60),
    st.sampled_from(["float32", "int64", "bfloat16", "uint4", "bool"]),
)
def test_what_is_appended_is_read_back_by_onnx(
    name: str, shape: list[int], offset: int, length: int, dtype: str
) -> None:
    place = FilePlace(file="a plan.dt", offset=offset, length_bytes=length)
    tensor = AppendedTensor(name=name, dtype=dtype, shape=shape, contents=place)
    stored = _model().SerializeToString()
    read = onnx.ModelProto.FromString(append_weights(stored, [tensor]))
    (found,) = read.graph.initializer
    assert (found.name, list(found.dims), found.data_location) == (name, shape, TensorProto.EXTERNAL)
    written = {entry.key: entry.value for entry in found.external_data}
    assert written == {"location": "a plan.dt", "offset": str(offset), "length": str(length)}
    assert [node.op_type for node in read.graph.node] == ["Add"]


def test_several_weights_are_all_there_and_none_changes_nothing() -> None:
    inside = numpy_helper.from_array(np.ones(3, np.float32), "w")
    stored = _model(inside).SerializeToString()
    assert append_weights(stored, []) == stored
    more = [AppendedTensor(name=n, dtype="int64", shape=(1,), contents=n.encode() * 8) for n in ("a", "b", "c")]
    read = onnx.ModelProto.FromString(append_weights(stored, more))
    assert [tensor.name for tensor in read.graph.initializer] == ["w", "a", "b", "c"]
    assert numpy_helper.to_array(read.graph.initializer[1]).tobytes() == b"a" * 8


def _external(name: str = "w") -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


def _in_attribute() -> onnx.ModelProto:
    model = _model()
    node = model.graph.node.add(op_type="Constant", output=["c"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(_external())
    return model


def _in_body() -> onnx.ModelProto:
    model = _model()
    body = helper.make_graph([], "b", [], [], [_external()])
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body))
    return model


def _in_function() -> onnx.ModelProto:
    model = _model()
    function = model.functions.add(name="f", domain="d")
    node = function.node.add(op_type="Constant", output=["c"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(_external())
    return model


def _in_sparse() -> onnx.ModelProto:
    model = _model()
    sparse = model.graph.sparse_initializer.add(dims=[3])
    sparse.values.CopyFrom(_external())
    return model


@pytest.mark.parametrize("make", [lambda: _model(_external()), _in_attribute, _in_body, _in_function, _in_sparse])
def test_a_payload_that_names_a_file_is_found_wherever_it_does(make: object) -> None:
    assert names_files(make().SerializeToString())  # type: ignore[operator]


def test_the_word_alone_is_harmless() -> None:
    assert not names_files(_model(name="location").SerializeToString())
    assert not names_files(_model().SerializeToString())


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_bytes_that_are_no_model_are_an_error(cut: int) -> None:
    data = _model(_external()).SerializeToString()
    with pytest.raises(PlanCorruptError, match="malformed"):
        names_files(data[: data.index(b"location") + 8 + cut])


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=64), st.binary(max_size=64))
def test_any_bytes_end_in_an_answer_or_a_named_error(head: bytes, tail: bytes) -> None:
    with contextlib.suppress(PlanCorruptError):
        assert names_files(head + b"location" + tail) in (True, False)
