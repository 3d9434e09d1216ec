"""Nodes that fit their schema and that no kernel can run: some end the process inside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.errors import ModelError, ProviderError
from dovetail.network.importer.importer import import_model

INTS = {"three": [1, 1, 2], "negative": [-1, 5], "two": [1, 3]}


def _model(*nodes: onnx.NodeProto, opset: int = 18) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info("a", TensorProto.FLOAT, [4, 6])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weights = [numpy_helper.from_array(np.array(numbers, np.int64), name) for name, numbers in INTS.items()]
    graph = helper.make_graph(list(nodes), "g", ports, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _split(inputs: list[str], outputs: list[str], **options: Any) -> onnx.NodeProto:
    return helper.make_node("Split", inputs, outputs, **options)


@pytest.mark.parametrize("op", ["Max", "Min", "Mean", "Sum", "Concat", "Einsum"])
@pytest.mark.parametrize("inputs", [["a", ""], ["", "a"], ["a", "", "a"]])
def test_an_absent_input_of_a_variadic_operator(op: str, inputs: list[str]) -> None:
    options: dict[str, Any] = {"Concat": {"axis": 0}, "Einsum": {"equation": "ij,ij->ij"}}.get(op, {})
    absent = inputs.index("")
    with pytest.raises(ModelError, match=rf"node '{op}'.*input {absent} is absent; of '.*' none may be"):
        import_model(_model(helper.make_node(op, inputs, ["y"], **options)))


@pytest.mark.parametrize(
    ("node", "opset", "match"),
    [
        (_split(["a"], ["y", "z", "w"], num_outputs=2), 18, "'num_outputs' is 2; expected 3"),
        (_split(["a"], ["y", "z"], num_outputs=3), 18, "'num_outputs' is 3; expected 2"),
        (_split(["a"], ["y", "z"], num_outputs=0), 18, "'num_outputs' is 0; expected 2"),
        (_split(["a", "three"], ["y", "z"]), 13, "'split' has 3 sizes; expected 2"),
        (_split(["a", "negative"], ["y", "z"]), 18, "'split' has a negative size"),
        (_split(["a"], ["y", "z"], split=[4]), 11, "'split' has 1 sizes; expected 2"),
    ],
)
def test_a_split_into_other_parts_than_it_has_outputs(node: onnx.NodeProto, opset: int, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        import_model(_model(node, opset=opset))


@pytest.mark.parametrize("perm", [[0, 0], [0, 7], [0, -1], [1, 2], [0, 1, 2], [0], [2**62, -(2**63)]])
@pytest.mark.parametrize("before", ["a", "b"])
def test_an_order_of_axes_that_is_none(perm: list[int], before: str) -> None:
    nodes = [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Transpose", [before], ["y"], perm=perm)]
    with pytest.raises(
        ModelError, match=r"attribute 'perm' (is no order of axes|has \d axes; expected 2)|shapes do not"
    ):
        import_model(_model(*nodes))


@pytest.mark.parametrize("number", [0, -1, 2**31, 2**33, -(2**63)])
@pytest.mark.parametrize(
    ("op", "name", "options"),
    [
        ("Attention", "q_num_heads", {"kv_num_heads": 3}),
        ("Attention", "kv_num_heads", {"q_num_heads": 3}),
        ("Conv", "group", {}),
        ("Conv", "strides", {}),
        ("Conv", "dilations", {}),
        ("MaxPool", "kernel_shape", {}),
        ("DepthToSpace", "blocksize", {}),
        ("GroupNormalization", "num_groups", {}),
        ("LRN", "size", {}),
    ],
)
def test_a_count_that_something_is_divided_by(op: str, name: str, options: dict[str, Any], number: int) -> None:
    is_list = name in ("strides", "dilations", "kernel_shape")
    inputs = ["a"] * {"Attention": 3, "GroupNormalization": 3, "Conv": 2}.get(op, 1)
    node = helper.make_node(op, inputs, ["y"], **{name: [1, number] if is_list else number}, **options)
    with pytest.raises(ModelError, match=f"attribute '{name}' is .*; expected 1 to"):
        import_model(_model(node, opset=23))


@pytest.mark.parametrize("count", [0, -1, 2, 2**31, 2**63 - 1])
def test_a_scan_over_more_than_it_has(count: int) -> None:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [6]) for name in ("r", "s")]
    body = helper.make_graph([helper.make_node("Neg", ["r"], ["s"])], "body", ports[:1], ports[1:])
    with pytest.raises(ModelError, match=f"attribute 'num_scan_inputs' is {count}; expected 1 to 1"):
        import_model(_model(helper.make_node("Scan", ["a"], ["y"], num_scan_inputs=count, body=body)))


@pytest.mark.parametrize(
    ("op", "position"), [("Resize", 3), ("Reshape", 1), ("Expand", 1), ("Tile", 1), ("ConstantOfShape", 0), ("Pad", 1)]
)
def test_a_shape_of_more_axes_than_there_are(op: str, position: int) -> None:
    model = _model(helper.make_node(op, [*(["a", "", ""][:position]), "long"], ["y"]))
    model.graph.input.append(helper.make_tensor_value_info("long", TensorProto.INT64, [2**31 - 1]))
    with pytest.raises(ModelError, match=f"input {position} has 2147483647 numbers, one for each axis"):
        import_model(model)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -1.0, 0.0])
@pytest.mark.parametrize(
    ("op", "inputs", "opset"), [("Resize", ["a", "", "scales"], 18), ("Upsample", ["a", "scales"], 9)]
)
def test_a_scale_that_gives_no_size(op: str, inputs: list[str], opset: int, scale: float) -> None:
    model = _model(helper.make_node(op, inputs, ["y"]), opset=opset)
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, scale], np.float32), "scales"))
    with pytest.raises(ModelError, match=r"'scales' is \[1\.0, .*\]; expected positive numbers"):
        import_model(model)


def test_steps_that_do_not_advance() -> None:
    model = _model(helper.make_node("STFT", ["a", "step", "", "two"], ["y"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "step"))
    with pytest.raises(ModelError, match="'frame_step' is 0; expected at least 1"):
        import_model(model)


def test_weights_that_only_loading_looks_at() -> None:
    node = helper.make_node(
        "MatMulNBits", ["a", "w", "s"], ["y"], domain="com.microsoft", K=32, N=16, bits=4, block_size=32
    )
    model = _model(node)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 32
    weights = {"w": np.zeros((16, 1, 8), np.uint8), "s": np.ones(16, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    with pytest.raises(
        ProviderError, match=r"'MatMulNBits'.*does not match[^\n]*\n  fix: check the node and its weights"
    ):
        dovetail.compile(model)


def test_nodes_as_they_should_be() -> None:
    import_model(_model(_split(["a", "two"], ["y", ""])))
    import_model(_model(helper.make_node("Transpose", ["a"], ["y"], perm=[1, 0])))
    import_model(_model(helper.make_node("Sum", ["a"], ["y"])))


def _floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("op", "options", "weights", "match"),
    [
        ("ConvTranspose", {"group": 0}, {"w": _floats(1, 1, 2, 2)}, "'group' is 0; expected 1 to"),
        ("Conv", {"group": -1}, {"w": _floats(1, 1, 2, 2)}, "'group' is -1"),
        ("ConvTranspose", {"group": 2**33}, {"w": _floats(1, 1, 2, 2)}, "'group' is 8589934592"),
        ("Attention", {"q_num_heads": 0, "kv_num_heads": 0}, {"k": _floats(1, 2, 8), "v": _floats(1, 2, 8)}, "heads"),
        ("Attention", {"q_num_heads": 3, "kv_num_heads": 3}, {"k": _floats(1, 2, 8), "v": _floats(1, 2, 8)}, "divisor"),
        ("GroupNormalization", {"num_groups": 0}, {"s": _floats(4), "b": _floats(4)}, "'num_groups' is 0"),
    ],
)
def test_a_count_that_divides_nothing(op: str, options: dict[str, int], weights: dict[str, Any], match: str) -> None:
    shape = [1, 2, 8] if op == "Attention" else [1, 4, 5, 5]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([helper.make_node(op, ["x", *weights], ["y"], **options)], "g", [x], [y], stored)
    with pytest.raises(ModelError, match=match):
        import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_smallest_integer_divided_by_minus_one(dtype: Any) -> None:
    numbers = {"n": np.array([np.iinfo(dtype).min], dtype), "d": np.array([1, -1], dtype)}
    y = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [2])
    stored = [numpy_helper.from_array(array, name) for name, array in numbers.items()]
    graph = helper.make_graph([helper.make_node("Div", ["n", "d"], ["y"])], "g", [], [y], stored)
    with pytest.raises(ModelError, match="divides the smallest integer of its type by -1"):
        import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


@pytest.mark.parametrize("count", [0, -1, 3, 2**31, 2**62])
def test_a_scan_over_more_inputs_than_there_are(count: int) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[2] i, float[3,2] x) => (float[2] f, float[3,2] y) {
            f, y = Scan<num_scan_inputs=1, body = b (float[2] s, float[2] e) => (float[2] t, float[2] o) {
                t = Add(s, e) o = Mul(t, e) }>(i, x)
        }""")
    next(a for a in model.graph.node[0].attribute if a.name == "num_scan_inputs").i = count
    with pytest.raises(ModelError, match=f"'num_scan_inputs' is {count}; expected 1 to 2"):
        import_model(model)
