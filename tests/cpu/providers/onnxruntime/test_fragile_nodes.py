"""Nodes that end the process inside of ONNX Runtime are found in the bytes of a partition, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.errors import PlanCorruptError
from dovetail.provider.interfaces import StoredPartition
from dovetail.provider.loader import get_provider
from dovetail.provider.schemas.node_limits import FIRST_VARIADIC
from dovetail.providers.onnxruntime.fragile_nodes import find_fragile_node

OPTION = onnx.defs.OpSchema.FormalParameterOption


def _model(*nodes: onnx.NodeProto) -> bytes:
    return bytes(helper.make_model(helper.make_graph(list(nodes), "g", [], [])).SerializeToString())


def _node(op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [f"y{number}" for number in range(outputs)], **attributes)


BROKEN = [
    _node("Max", ["a", ""]),
    _node("Concat", ["", "a"], axis=0),
    _node("Loop", ["", "c", ""], body=helper.make_graph([], "b", [], [])),
    _node("Transpose", ["a"], perm=[0, 0]),
    _node("Transpose", ["a"], perm=[1, -1]),
    _node("Split", ["a"], 2, num_outputs=3),
    _node("Split", ["a"], 2, split=[1, 2, 3]),
    _node("Split", ["a"], 2, split=[-1, 2]),
    _node("Attention", ["q", "k", "v"], q_num_heads=0, kv_num_heads=3),
    _node("Conv", ["x", "w"], strides=[1, 0]),
]
RIGHT = [
    _node("Max", ["a", "b"]),
    _node("Loop", ["", "", "a"], body=helper.make_graph([], "b", [], [])),
    _node("Clip", ["a", "", "b"]),
    _node("Transpose", ["a"], perm=[2, 0, 1]),
    _node("Transpose", ["a"]),
    _node("Split", ["a"], 2, num_outputs=2),
    _node("Split", ["a", "sizes"], 3),
    _node("Split", ["a"], 2, split=[1, 2], axis=-1),
    _node("Conv", ["x", "w"], strides=[1, 2], pads=[0, 0, 0, 0], group=1),
    _node("RotaryEmbedding", ["x", "p", "c", "s"], num_heads=0),
]


@pytest.mark.parametrize("node", BROKEN, ids=lambda node: node.op_type)
def test_a_broken_node_is_found_also_in_bodies_and_functions(node: onnx.NodeProto) -> None:
    first, branch = _node("Relu", ["a"]), helper.make_graph([node], "b", [], [])
    assert find_fragile_node(_model(first, node))
    assert find_fragile_node(_model(_node("If", ["c"], then_branch=branch, else_branch=branch)))
    function = helper.make_function("my", "F", ["a", "b", "c"], ["y0"], [node], [helper.make_opsetid("", 21)])
    assert find_fragile_node(
        helper.make_model(helper.make_graph([], "g", [], []), functions=[function]).SerializeToString()
    )


@pytest.mark.parametrize("node", RIGHT, ids=lambda node: node.op_type)
def test_a_right_node_is_left_alone(node: onnx.NodeProto) -> None:
    assert find_fragile_node(_model(node)) is None


def test_the_operators_are_those_of_the_schemas() -> None:
    variadic = {
        schema.name: len(schema.inputs) - 1
        for schema in onnx.defs.get_all_schemas()
        if schema.domain in ("", "ai.onnx.ml") and schema.inputs and schema.inputs[-1].option == OPTION.Variadic
    }
    variadic["Scan"] = 1
    assert variadic == FIRST_VARIADIC


@pytest.mark.parametrize("payload", [b"\xff\xff", b"\x3a\x05\x0a\xff"])
def test_bytes_that_are_no_model_are_refused(payload: bytes) -> None:
    with pytest.raises(PlanCorruptError, match="malformed"):
        find_fragile_node(payload)


def test_the_provider_refuses_such_a_partition() -> None:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("a", "y0")]
    graph = helper.make_graph([BROKEN[0]], "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    stored = StoredPartition(
        name="part",
        payload=memoryview(model.SerializeToString()),
        version="",
        inputs=["a"],
        outputs=["y0"],
        weights={},
        places={},
    )
    with pytest.raises(dt.DovetailError, match="Max: input 1 is absent"):
        get_provider("onnxruntime").load_partition(stored)
