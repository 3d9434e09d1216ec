"""What is read of ONNX Runtime's graph is what the model has: operators, attributes, types, shapes, weights, bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxruntime_ep_dovetail.graph.read import ReadGraph
from onnxruntime_ep_dovetail.session.ep import Ep
from tests.support.ort_ep import needs_bodies, session_options

pytestmark = pytest.mark.versions

Read = Callable[[onnx.ModelProto, Callable[[ReadGraph], None]], None]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, dovetail_session: Callable[..., Any]) -> Read:
    """Reads a model through a session; checks happen while ONNX Runtime's graph lives, so they come as a function."""

    def load(model: onnx.ModelProto, check: Callable[[ReadGraph], None]) -> None:
        seen: list[bool] = []
        choose = Ep.choose

        def look(self: Ep, graph: ReadGraph) -> Any:
            if graph.model.graph.name == "graph" and len(graph.addresses) == len(model.graph.node):
                check(graph)
                seen.append(True)
            return choose(self, graph)

        monkeypatch.setattr(Ep, "choose", look)
        options = session_options(fallback=False)
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        dovetail_session(model, options=options, claim="all")
        assert seen

    return load


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: Sequence[Any] = ()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _value(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def test_types_shapes_and_attributes(read: Read) -> None:
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["a"], alpha=0.25, name="leaky"),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("Cast", ["b"], ["y"], to=TensorProto.DOUBLE),
    ]

    def check(graph: ReadGraph) -> None:
        leaky, transpose, cast = graph.model.graph
        assert (leaky.name, leaky.op_type, leaky.attributes["alpha"].as_float()) == ("leaky", "LeakyRelu", 0.25)
        assert list(transpose.attributes["perm"].as_ints()) == [1, 0]
        assert cast.attributes["to"].as_int() == TensorProto.DOUBLE
        (x,) = graph.model.graph.inputs
        assert x.shape is not None
        assert [dim if isinstance(dim, int) else dim.value for dim in x.shape] == ["N", 3]
        assert graph.model.graph.outputs[0].dtype == ir.DataType.DOUBLE
        assert graph.model.opset_imports[""] == 18

    read(_model(nodes, [_value("x", ["N", 3])], [_value("y", [3, "N"], TensorProto.DOUBLE)]), check)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64", "bool"])
def test_weights_are_views_of_the_memory_of_onnxruntime(read: Read, dtype: str) -> None:
    weight = (np.arange(6).reshape(2, 3) % 2).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(weight.dtype)
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Where", ["c", "a", "w"], ["y"])]
    model = _model(
        nodes,
        [_value("x", [2, 3], kind), _value("c", [2, 3], TensorProto.BOOL)],
        [_value("y", [2, 3], kind)],
        [numpy_helper.from_array(weight, "w")],
    )

    def check(graph: ReadGraph) -> None:
        found = graph.model.graph.initializers["w"].const_value
        assert found is not None
        np.testing.assert_array_equal(found.numpy(), weight)
        assert not found.numpy().flags.owndata
        assert [value.name for value in graph.model.graph.inputs] == ["x", "c"]

    read(model, check)


@needs_bodies
def test_bodies_and_what_they_read_from_around(read: Read) -> None:
    then = helper.make_graph([helper.make_node("Add", ["x", "w"], ["t"])], "then", [], [_value("t", [2])])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "else", [], [_value("e", [2])])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    weight = numpy_helper.from_array(np.float32([1, 2]), "w")
    model = _model(nodes, [_value("c", [], TensorProto.BOOL), _value("x", [2])], [_value("y", [2])], [weight])

    def check(graph: ReadGraph) -> None:
        (node,) = graph.model.graph
        bodies = {name: attribute.as_graph() for name, attribute in node.attributes.items()}
        assert {name: [inner.op_type for inner in body] for name, body in bodies.items()} == {
            "then_branch": ["Add"],
            "else_branch": ["Neg"],
        }
        (add,) = bodies["then_branch"]
        assert add.inputs[0] is next(value for value in graph.model.graph.inputs if value.name == "x")
        assert add.inputs[1] is not None
        assert add.inputs[1].const_value is not None

    read(model, check)


def test_absent_inputs_and_unused_outputs(read: Read) -> None:
    nodes = [
        helper.make_node("Clip", ["x", "", "high"], ["a"]),
        helper.make_node("Unique", ["a"], ["u", "", "y"]),
    ]
    weights = [numpy_helper.from_array(np.float32(1), "high")]

    def check(graph: ReadGraph) -> None:
        clip, unique = graph.model.graph
        assert [value is None for value in clip.inputs] == [False, True, False]
        assert [value.name for value in unique.outputs] == ["u", "", "y"]

    read(_model(nodes, [_value("x", [4])], [_value("y", ["M"], TensorProto.INT64)], weights), check)
