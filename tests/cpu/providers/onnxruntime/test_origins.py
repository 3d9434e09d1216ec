"""Which original nodes an optimised node was made of."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from onnx import GraphProto, TensorProto, helper

from dovetail.providers.onnxruntime.origins import GraphNode, find_makers, read_nodes, trace_origins


def _node(name: str, inputs: str, outputs: str, op: str = "Op") -> GraphNode:
    return GraphNode(name=name, op=op, inputs=inputs.split(), outputs=outputs.split())


@st.composite
def _graphs(draw: st.DrawFn) -> list[GraphNode]:
    count = draw(st.integers(1, 12))
    return [
        _node(f"n{i}", " ".join(f"t{draw(st.integers(0, i))}" for _ in range(draw(st.integers(1, 3)))), f"t{i + 1}")
        for i in range(count)
    ]


@given(_graphs())
def test_a_graph_that_stays_is_made_of_itself(graph: list[GraphNode]) -> None:
    assert trace_origins(graph, graph) == [[number] for number in range(len(graph))]


@given(st.integers(1, 12), st.data())
def test_every_node_of_a_chain_is_in_one_fused_node(length: int, data: st.DataObject) -> None:
    chain = [_node(f"n{i}", f"t{i}", f"t{i + 1}") for i in range(length)]
    cuts = sorted({0, length, *data.draw(st.lists(st.integers(0, length)))})
    fused = [_node(f"f{a}", f"t{a}", f"t{b}") for a, b in pairwise(cuts)]
    found = trace_origins(fused, chain)
    assert found == [list(range(a, b)) for a, b in pairwise(cuts)]


def test_new_names_of_tensors_are_followed_by_the_names_of_nodes() -> None:
    before = [
        _node("/a/Conv", "x w", "c", "Conv"),
        _node("/a/Relu", "c", "r", "Relu"),
        _node("/b/Sigmoid", "r", "s", "Sigmoid"),
        _node("/b/Mul", "r s", "m", "Mul"),
    ]
    after = [
        _node("r_nchwc", "x w2", "reorder_1", "Conv"),
        _node("/b/Mul/QuickGeluFusion/", "reorder_1", "reorder_2", "QuickGelu"),
        _node("ReorderOutput", "reorder_2", "m", "ReorderOutput"),
    ]
    assert trace_origins(after, before)[:2] == [[0, 1], [2, 3]]


def test_what_was_made_of_nothing_is_traced_to_nothing() -> None:
    assert trace_origins([_node("new", "q", "z")], [_node("n", "x", "y")]) == [[]]


def test_makers_come_before_their_readers() -> None:
    assert find_makers([_node("a", "x", "s t"), _node("b", "t x", "u"), _node("c", "u s", "v")]) == [[], [0], [0, 1]]


def test_nodes_are_read_from_the_bytes_of_a_model() -> None:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu é")], "g", tensors[:1], tensors[1:])
    model = helper.make_model(graph).SerializeToString()
    assert read_nodes(model) == [GraphNode(name="relu é", op="Relu", inputs=["x"], outputs=["y"], bodies=[])]
    assert read_nodes(model[:-3]) == []


def test_the_body_for_true_is_the_first() -> None:
    def body(op: str) -> GraphProto:
        output = helper.make_tensor_value_info(op, TensorProto.FLOAT, [2])
        return helper.make_graph([helper.make_node(op, ["x"], [op], name=op)], op, [], [output])

    node = helper.make_node("If", ["c"], ["y"], else_branch=body("Neg"), then_branch=body("Abs"))
    graph = helper.make_graph([node], "g", [], [])
    (found,) = read_nodes(helper.make_model(graph).SerializeToString())
    assert [[inner.op for inner in each] for each in found.bodies] == [["Abs"], ["Neg"]]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_model_have_no_nodes(data: bytes) -> None:
    assert isinstance(read_nodes(data), list)


def test_channels_last_are_followed_by_the_names_of_nodes() -> None:
    before = [
        _node("quantize", "x", "q", "QuantizeLinear"),
        _node("conv1", "q w", "c1", "QLinearConv"),
        _node("conv2_token_3", "c1 v", "c2", "QLinearConv"),
        _node("flat", "c2", "y", "Reshape"),
    ]
    after = [
        _node("quantize", "x", "q", "QuantizeLinear"),
        _node("Transpose", "q", "t0", "Transpose"),
        _node("conv1_token_1", "t0 w2", "t1", "QLinearConv"),
        _node("conv2_token_3_token_10", "t1 v2", "t2", "QLinearConv"),
        _node("Transpose_token_9", "t2", "c2", "Transpose"),
        _node("flat", "c2", "y", "Reshape"),
    ]
    assert trace_origins(after, before) == [[0], [], [1], [2], [], [3]]
