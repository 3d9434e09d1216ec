"""ONNX models into networks: errors with their nodes, support, weights that scripts bring, plugins, refits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail_tensorrt import trt
from tests.support.odd_files import make_odd_file
from tests.support.plugins import PlainCreator, ScalePlugin
from tests.support.trt_objects import KeptMessages, make_network

W = np.float32([[1, 2], [3, 4]])


def _model(*ops: str, weights: np.ndarray = W, **attributes: Any) -> onnx.ModelProto:
    names = ["h", *(f"t{i}" for i in range(1, len(ops))), "y"]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="dense")]
    for index, op in enumerate(ops):
        extra = attributes if op.startswith("Test") else {}
        nodes.append(helper.make_node(op, [names[index]], [names[index + 1]], name=f"{op.lower()}_{index}", **extra))
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y" if ops else "h", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _run(builder: Any, network: Any, x: np.ndarray) -> np.ndarray:
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    context = engine.create_execution_context()
    y = np.zeros((1, 2), np.float32)
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    return y


X = np.float32([[1, -1]])


def test_a_model_becomes_the_network() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(_model("Relu", "Neg").SerializeToString())
    assert parser.num_errors == 0
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    assert [layer.name for layer in layers] == ["w", "dense", "relu_0", "neg_1"]
    kinds = [trt.LayerType.CONSTANT, trt.LayerType.MATRIX_MULTIPLY, trt.LayerType.ACTIVATION, trt.LayerType.UNARY]
    assert [layer.type for layer in layers] == kinds
    assert parser.get_layer_output_tensor("relu_0", 0).name == "t1"
    assert parser.get_layer_output_tensor("nothing", 0) is None
    np.testing.assert_array_equal(_run(builder, network, X), -np.maximum(X @ W, 0))


def test_a_parsed_network_can_be_changed() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    assert trt.OnnxParser(network, logger).parse(_model("Relu").SerializeToString())
    y = network.get_output(0)
    network.unmark_output(y)
    doubled = network.add_elementwise(y, y, trt.ElementWiseOperation.SUM).get_output(0)
    network.mark_output(doubled)
    np.testing.assert_array_equal(_run(builder, network, X), 2 * np.maximum(X @ W, 0))


def test_what_is_wrong_is_told_node_by_node() -> None:
    logger = KeptMessages()
    _, network = make_network(logger)
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(_model("Rellu", "Neg", "Absolutely").SerializeToString())
    assert parser.num_errors == 2
    first, second = parser.get_error(0), parser.get_error(1)
    assert (first.code(), first.node(), first.node_name(), first.node_operator()) == (
        trt.ErrorCode.UNSUPPORTED_NODE,
        1,
        "rellu_0",
        "Rellu",
    )
    assert second.node() == 3
    assert first.func() == "parse"
    assert str(first).startswith("In node 1 with name: rellu_0 and operator: Rellu (parse): UNSUPPORTED_NODE: ")
    assert len(logger.errors) == 2
    parser.clear_errors()
    assert parser.num_errors == 0


def test_the_operator_of_an_error_has_no_domain() -> None:
    logger = KeptMessages()
    _, network = make_network(logger)
    model = _model("Rellu")
    model.graph.node[1].domain = "elsewhere"
    model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(model.SerializeToString())
    assert parser.get_error(0).node_operator() == "Rellu"


def test_inputs_and_outputs_of_a_parsed_network_take_other_types() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    assert trt.OnnxParser(network, logger).parse(_model("Relu").SerializeToString())
    network.get_input(0).dtype = trt.float16
    network.get_output(0).dtype = trt.int32
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    assert [engine.get_tensor_dtype(name) for name in engine] == [trt.float16, trt.int32]
    x, y = X.astype(np.float16), np.zeros((1, 2), np.int32)
    assert engine.create_execution_context().execute_v2([x.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(y, np.maximum(X @ W, 0))


@pytest.mark.parametrize("data", [b"", b"no model at all", b"\x08\x08"])
def test_bytes_that_are_no_model(data: bytes) -> None:
    logger = KeptMessages()
    _, network = make_network(logger)
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(data)
    assert parser.get_error(0).code() == trt.ErrorCode.MODEL_DESERIALIZE_FAILED
    assert not parser.parse_from_file("/no/such/model.onnx")
    assert "cannot be read" in parser.get_error(1).desc()


def test_parts_that_are_supported() -> None:
    logger = KeptMessages()
    _, network = make_network(logger)
    parser = trt.OnnxParser(network, logger)
    assert parser.supports_model_v2(_model("Relu").SerializeToString())
    assert parser.num_subgraphs == 1
    assert not parser.supports_model_v2(_model("Relu", "Rellu", "Neg", "Rellu").SerializeToString())
    parts = [(parser.get_subgraph_nodes(i), parser.is_subgraph_supported(i)) for i in range(parser.num_subgraphs)]
    assert parts == [([0, 1], True), ([3], True)]
    assert [parser.get_error(i).node_name() for i in range(parser.num_errors)] == ["rellu_1", "rellu_3"]
    assert network.num_layers == 0
    assert parser.supports_operator("Conv")
    assert not parser.supports_operator("Convv")


def test_weights_beside_the_model(tmp_path: Path) -> None:
    model = _model("Relu", weights=np.float32([[2, 0], [0, 2]]))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    logger = KeptMessages()
    builder, network = make_network(logger)
    assert trt.OnnxParser(network, logger).parse_from_file(str(path))
    np.testing.assert_array_equal(_run(builder, network, X), np.float32([[2, 0]]))
    parser = trt.OnnxParser(builder.create_network(), logger)
    assert not parser.parse(path.read_bytes())
    assert "other files" in parser.get_error(0).desc()
    assert trt.OnnxParser(builder.create_network(), logger).parse(path.read_bytes(), str(path))


def test_weights_that_the_script_brings(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    logger = KeptMessages()
    builder, network = make_network(logger)
    parser = trt.OnnxParser(network, logger)
    assert parser.load_model_proto(path.read_bytes())
    assert not parser.load_initializer("nothing", W, W.nbytes)
    assert parser.load_initializer("w", W, W.nbytes)
    assert parser.parse_model_proto()
    np.testing.assert_array_equal(_run(builder, network, X), X @ W)


def test_plugins_are_found_and_take_over_operators_when_asked() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    registry = builder.get_plugin_registry()
    assert registry.register_creator(PlainCreator("TestScale", ScalePlugin), "")
    assert registry.register_creator(PlainCreator("Relu", lambda: ScalePlugin(3.0)), "")
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(_model("TestScale", "Relu", factor=2.0).SerializeToString()), parser.get_error(0)
    assert network.get_layer(2).type == trt.LayerType.PLUGIN_V3
    np.testing.assert_array_equal(_run(builder, network, X), np.maximum(2 * (X @ W), 0))
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    parser.set_flag(trt.OnnxParserFlag.ENABLE_PLUGIN_OVERRIDE)
    assert parser.get_flag(trt.OnnxParserFlag.ENABLE_PLUGIN_OVERRIDE)
    assert parser.parse(_model("Relu").SerializeToString()), parser.get_error(0)
    np.testing.assert_array_equal(_run(builder, network, X), 3 * (X @ W))


def test_nodes_without_names_are_named_after_what_they_make() -> None:
    model = _model("Relu")
    for node in model.graph.node:
        node.name = ""
    logger = KeptMessages()
    _, network = make_network(logger)
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    assert [network.get_layer(i).name for i in (1, 2)] == ["node_of_h", "node_of_y"]


def test_a_refit_from_another_model() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    assert trt.OnnxParser(network, logger).parse(_model().SerializeToString())
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = builder.build_engine_with_config(network, config)
    refitter = trt.Refitter(engine, logger)
    other = trt.OnnxParserRefitter(refitter, logger)
    assert not other.refit_from_bytes(_model(weights=np.float32([[1, 2, 3], [4, 5, 6]])).SerializeToString())
    assert other.get_error(0).code() == trt.ErrorCode.REFIT_FAILED
    other.clear_errors()
    assert other.refit_from_bytes(_model(weights=-W).SerializeToString())
    assert refitter.refit_cuda_engine()
    context = engine.create_execution_context()
    y = np.zeros((1, 2), np.float32)
    assert context.execute_v2([X.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(y, -(X @ W))


def test_weights_of_a_parsed_model_have_the_names_of_its_nodes() -> None:
    """Kernels and biases belong to the node of a convolution, whatever they are called; all others are constants."""
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "c.weight", "c.bias"], ["h"], name="/c/Conv"),
            helper.make_node("Mul", ["h", "f.bias"], ["y"], name="/f/Mul"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 3, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 1, 1])],
        [
            numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "c.weight"),
            numpy_helper.from_array(np.ones(1, np.float32), "c.bias"),
            numpy_helper.from_array(np.full(1, 2, np.float32), "f.bias"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    logger = KeptMessages()
    builder, network = make_network(logger)
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = builder.build_engine_with_config(network, config)
    refitter = trt.Refitter(engine, logger)
    assert dict(zip(refitter.get_all_weights(), zip(*refitter.get_all(), strict=True), strict=True)) == {
        "c.bias": ("/c/Conv", trt.WeightsRole.BIAS),
        "c.weight": ("/c/Conv", trt.WeightsRole.KERNEL),
        "f.bias": ("f.bias", trt.WeightsRole.CONSTANT),
    }
    assert refitter.set_weights("/c/Conv", trt.WeightsRole.BIAS, np.float32([5]))
    assert refitter.set_weights("f.bias", trt.WeightsRole.CONSTANT, np.float32([3]))
    assert not refitter.set_weights("f", trt.WeightsRole.BIAS, np.float32([3]))
    assert refitter.refit_cuda_engine()
    ones, y = np.ones((1, 1, 3, 3), np.float32), np.zeros((1, 1, 1, 1), np.float32)
    assert engine.create_execution_context().execute_v2([ones.ctypes.data, y.ctypes.data])
    assert y.item() == (9 + 5) * 3


def test_weights_by_layer_and_role() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    x = network.add_input("x", trt.float32, (1, 1, 3, 3))
    kernel = np.ones((1, 1, 3, 3), np.float32)
    layer = network.add_convolution_nd(x, 1, (3, 3), kernel, np.zeros(1, np.float32))
    layer.name = "conv"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = builder.build_engine_with_config(network, config)
    refitter = trt.Refitter(engine, logger)
    names, roles = refitter.get_all()
    assert sorted(zip(names, roles, strict=True)) == [
        ("conv", trt.WeightsRole.KERNEL),
        ("conv", trt.WeightsRole.BIAS),
    ]
    assert refitter.get_missing() == ([], [])
    assert refitter.set_weights("conv", trt.WeightsRole.BIAS, np.float32([5]))
    assert not refitter.set_weights("conv", trt.WeightsRole.SCALE, np.float32([5]))
    assert refitter.get_named_weights("conv.bias").numpy().tolist() == [5.0]
    assert refitter.get_weights_location("conv.bias") == trt.TensorLocation.HOST
    assert refitter.refit_cuda_engine_async(0)
    ones = np.ones((1, 1, 3, 3), np.float32)
    y = np.zeros((1, 1, 1, 1), np.float32)
    assert engine.create_execution_context().execute_v2([ones.ctypes.data, y.ctypes.data])
    assert y.item() == 14.0


def test_an_engine_without_refit_has_no_refitter() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    network.mark_output(network.add_identity(network.add_input("x", trt.float32, (1,))).get_output(0))
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    with pytest.raises(RuntimeError, match="not built for refit"):
        trt.Refitter(engine, logger)


def test_a_model_that_must_run_on_a_dla_is_refused_node_by_node() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    parser = trt.OnnxParser(network, logger)
    parser.set_flag(trt.OnnxParserFlag.REPORT_CAPABILITY_DLA)
    assert parser.set_builder_config(builder.create_builder_config())
    assert not parser.parse(_model("Relu").SerializeToString())
    assert network.num_layers == 0
    assert [parser.get_error(i).node_name() for i in range(parser.num_errors)] == ["dense", "relu_0"]
    assert parser.get_error(1).code() == trt.ErrorCode.UNSUPPORTED_NODE
    assert "DLA validation failed for layer: relu_0: there is no DLA here" in logger.errors[-1]
    parser.clear_flag(trt.OnnxParserFlag.REPORT_CAPABILITY_DLA)
    assert parser.parse(_model("Relu").SerializeToString())


def test_an_input_that_decides_a_shape_takes_values_in_a_profile() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Expand", ["x", "target"], ["y"])]
    ports = [("x", TensorProto.FLOAT, [1, 3]), ("target", TensorProto.INT64, [2]), ("y", TensorProto.FLOAT, ["n", 3])]
    infos = [helper.make_tensor_value_info(*port) for port in ports]
    model = helper.make_model(helper.make_graph(nodes, "model", infos[:2], infos[2:]), ir_version=8)
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    assert [network.get_input(i).is_shape_tensor for i in range(2)] == [False, True]
    profile, config = builder.create_optimization_profile(), builder.create_builder_config()
    profile.set_shape_input("target", (1, 3), (2, 3), (4, 3))
    config.add_optimization_profile(profile)
    context = builder.build_engine_with_config(network, config).create_execution_context()
    x, target, y = np.float32([[1, 2, 3]]), np.array([4, 3]), np.zeros((4, 3), np.float32)
    for name, array in (("x", x), ("target", target), ("y", y)):
        context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(y, np.repeat(x, 4, axis=0))


def test_an_initializer_replaces_values_that_are_not_raw() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    model = _model("Relu")
    model.graph.initializer[0].CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [2, 2], W.reshape(-1).tolist()))
    parser = trt.OnnxParser(network, logger)
    assert parser.load_model_proto(model.SerializeToString())
    weights = 3 * W
    assert parser.load_initializer("w", weights.ctypes.data, weights.nbytes)
    assert parser.parse_model_proto()
    np.testing.assert_array_equal(_run(builder, network, X), np.maximum(X @ weights, 0))


def test_an_initializer_in_a_buffer_that_is_too_small_is_refused() -> None:
    logger = KeptMessages()
    _, network = make_network(logger)
    parser = trt.OnnxParser(network, logger)
    assert parser.load_model_proto(_model("Relu").SerializeToString())
    assert not parser.load_initializer("w", W[0].copy(), W.nbytes)
    assert "8 bytes, fewer than the size of 16" in parser.get_error(0).desc()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "dangling"])
def test_an_odd_file_in_the_place_of_a_model_is_an_error(kind: str, tmp_path: Path) -> None:
    logger = KeptMessages()
    _, network = make_network(logger)
    make_odd_file(tmp_path / "model.onnx", kind, tmp_path / "elsewhere")
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse_from_file(str(tmp_path / "model.onnx"))
    assert "the file cannot be read" in parser.get_error(0).desc()
