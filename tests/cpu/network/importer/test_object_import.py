"""Models with sequences, optionals and strings: what is wrong with them is said, and old scans run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail as dt

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def _floats(name: str, *dims: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, dims)


def _info(name: str, kind: onnx.TypeProto) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, kind)


def _tensor_type(kind: int = FLOAT) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(kind, None)


def _compile(nodes: Any, inputs: Any, outputs: Any, constants: Any = (), opset: int = 20) -> dt.Engine:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return dt.compile(model, providers=["cpu"])


SEQUENCE = helper.make_sequence_type_proto(_tensor_type())


@pytest.mark.parametrize(
    "kind",
    [
        helper.make_optional_type_proto(helper.make_map_type_proto(INT64, _tensor_type())),
        helper.make_sequence_type_proto(SEQUENCE),
        helper.make_sequence_type_proto(helper.make_optional_type_proto(_tensor_type())),
        helper.make_optional_type_proto(helper.make_optional_type_proto(_tensor_type())),
        helper.make_sequence_type_proto(onnx.TypeProto()),
        helper.make_sparse_tensor_type_proto(FLOAT, None),
    ],
)
def test_kinds_of_values_that_nobody_takes(kind: onnx.TypeProto) -> None:
    with pytest.raises(dt.UnsupportedOpError, match="values of kind") as caught:
        _compile([helper.make_node("Identity", ["x"], ["y"])], [_info("x", kind)], [_info("y", kind)])
    assert "input 'x'" in str(caught.value)


def test_a_sequence_of_nothing_known() -> None:
    kind = helper.make_sequence_type_proto(_tensor_type(99))
    with pytest.raises(dt.ModelError, match="no element type 99"):
        _compile([helper.make_node("Identity", ["x"], ["y"])], [_info("x", kind)], [_info("y", SEQUENCE)])


def test_strings_that_are_not_utf8() -> None:
    text = onnx.TensorProto(name="w", data_type=STRING, dims=[1], string_data=[b"\xff"])
    ports = [helper.make_tensor_value_info(name, STRING, [1]) for name in "xy"]
    with pytest.raises(dt.ModelError, match="not UTF-8"):
        _compile([helper.make_node("StringConcat", ["x", "w"], ["y"])], ports[:1], ports[1:], [text])


def test_a_tensor_where_a_sequence_belongs() -> None:
    node = helper.make_node("SequenceLength", ["x"], ["y"])
    with pytest.raises(dt.ModelError, match="input 'x' is FLOAT, which the operator does not take"):
        _compile([node], [_floats("x", 2)], [helper.make_tensor_value_info("y", INT64, [])])


def test_a_sequence_where_a_tensor_belongs() -> None:
    with pytest.raises(dt.ModelError, match=r"input 'x' is seq\(tensor\(float\)\), which the operator does not take"):
        _compile([helper.make_node("Neg", ["x"], ["y"])], [_info("x", SEQUENCE)], [_floats("y", 2)])


def test_an_output_declared_as_something_else() -> None:
    node = helper.make_node("SequenceConstruct", ["x"], ["y"])
    with pytest.raises(dt.ModelError, match=r"declared FLOAT and computed as seq\(tensor\(float\)\)"):
        _compile([node], [_floats("x", 2)], [_floats("y", 2)])


def test_a_plugin_gets_no_sequence() -> None:
    @dt.layer("TakesSequence")
    def take(x: Any) -> Any:
        return x

    node = helper.make_node("TakesSequence", ["x"], ["y"])
    with pytest.raises(dt.PluginError, match=r"no type the contract knows.*seq\(tensor\(float\)\)"):
        _compile([node], [_info("x", SEQUENCE)], [_floats("y", 2)])


@pytest.mark.parametrize("backwards", [False, True])
def test_a_scan_of_old_runs_over_batches(backwards: bool) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [_floats("a", 2), _floats("b", 2)],
        [_floats("c", 2), _floats("d", 2)],
    )
    attributes: dict[str, Any] = {"directions": [1]} if backwards else {}
    node = helper.make_node("Scan", ["", "s", "x"], ["e", "y"], body=body, num_scan_inputs=1, **attributes)
    inputs, outputs = (
        [_floats("s", "b", 2), _floats("x", "b", "t", 2)],
        [_floats("e", "b", 2), _floats("y", "b", "t", 2)],
    )
    engine = _compile([node], inputs, outputs, opset=8)
    state, x = np.ones((2, 2), np.float32), np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    results = engine(state, x)
    expected = state[:, None] + np.cumsum(x[:, ::-1] if backwards else x, axis=1)
    np.testing.assert_array_equal(results["y"], expected)
    np.testing.assert_array_equal(results["e"], expected[:, -1])


def test_a_scan_of_old_with_lengths_is_refused() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])], "body", [_floats("a", 2), _floats("b", 2)], [_floats("c", 2)]
    )
    node = helper.make_node("Scan", ["n", "s", "x"], ["e"], body=body, num_scan_inputs=1)
    lengths = helper.make_tensor_value_info("n", INT64, [1])
    with pytest.raises(dt.UnsupportedOpError, match="sequence lengths"):
        _compile([node], [lengths, _floats("s", 1, 2), _floats("x", 1, 3, 2)], [_floats("e", 1, 2)], opset=8)
