"""Element types of inputs and outputs: mapped or refused by the parser, and moved with the size that is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail.formats import size_bytes
from dovetail_tensorrt import trt
from tests.support.guarded_memory import GuardedMemory
from tests.support.trt_objects import KeptMessages

COUNT = 3
TYPES = {name: number for name, number in TensorProto.DataType.items() if number}
MAPPED = {
    "FLOAT": "FLOAT",
    "DOUBLE": "FLOAT",
    "FLOAT16": "HALF",
    "BFLOAT16": "BF16",
    "UINT8": "UINT8",
    "INT8": "INT8",
    "INT32": "INT32",
    "INT64": "INT64",
    "BOOL": "BOOL",
    "FLOAT8E4M3FN": "FP8",
    "FLOAT8E8M0": "E8M0",
    "INT4": "INT4",
    "FLOAT4E2M1": "FP4",
}
"""ONNX types that networks have -> their types; all others are refused."""


def _info(name: str, dtype: int, *dims: int) -> Any:
    return helper.make_tensor_value_info(name, dtype, dims or [COUNT])


def _input(dtype: int) -> Any:
    return [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], [_info("x", dtype)], TensorProto.FLOAT


def _output(dtype: int) -> Any:
    return [helper.make_node("Cast", ["x"], ["y"], to=dtype)], [_info("x", TensorProto.FLOAT)], dtype


def _both(dtype: int) -> Any:
    return [helper.make_node("Identity", ["x"], ["y"])], [_info("x", dtype)], dtype


def _conditional(dtype: int) -> Any:
    branches = {
        name: helper.make_graph([helper.make_node("Cast", ["x"], [name], to=dtype)], name, [], [_info(name, dtype)])
        for name in ("then_branch", "else_branch")
    }
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    return [helper.make_node("If", ["c"], ["y"], **branches)], [_info("x", TensorProto.FLOAT), condition], dtype


def _loop(dtype: int) -> Any:
    state = [helper.make_tensor_value_info(name, kind, []) for name, kind in (("k", TensorProto.INT64), ("c", 9))]
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Cast", ["x"], ["s"], to=dtype)],
        "body",
        state,
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), _info("s", dtype)],
    )
    count = helper.make_node("Constant", [], ["n"], value_int=2)
    return [count, helper.make_node("Loop", ["n", ""], ["y"], body=body)], [_info("x", TensorProto.FLOAT)], dtype


KINDS = {"input": _input, "output": _output, "both": _both, "conditional": _conditional, "loop": _loop}


def _parse(kind: str, dtype: int) -> tuple[Any, Any, Any, Any, bool]:
    nodes, inputs, result = KINDS[kind](dtype)
    output = _info("y", result, *((2, COUNT) if kind == "loop" else (COUNT,)))
    graph = helper.make_graph(nodes, "types", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    logger = KeptMessages()
    builder = trt.Builder(logger)
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    return logger, builder, network, parser, parser.parse(model.SerializeToString())


def _run_in_guarded_memory(engine: Any) -> dict[str, bytes]:
    """Run with memory of the reported sizes, each before a page without access; return the bytes of the tensors."""
    context = engine.create_execution_context()
    memory = {}
    for name in engine:
        dtype, shape = engine.get_tensor_dtype(name), tuple(engine.get_tensor_shape(name))
        memory[name] = GuardedMemory(size_bytes(shape, dtype, trt.TensorFormat.LINEAR))
        memory[name].fill(b"\x01" * memory[name].size_bytes)
        assert context.set_tensor_address(name, memory[name].address)
    assert context.execute_async_v3(0)
    return {name: memory[name].read() for name in memory}


@pytest.mark.parametrize("kind", KINDS)
def test_each_onnx_type_is_refused_by_name_or_moved_with_the_size_that_is_reported(kind: str) -> None:
    for name, number in TYPES.items():
        logger, builder, network, parser, is_parsed = _parse(kind, number)
        if name not in MAPPED:
            assert not is_parsed, name
            assert name in parser.get_error(0).desc(), name
            assert network.num_layers == 0, name
            continue
        assert is_parsed, (name, logger.errors)
        tensor = network.get_input(0) if kind == "input" else network.get_output(0)
        assert tensor.dtype.name == MAPPED[name]
        engine = builder.build_engine_with_config(network, builder.create_builder_config())
        assert engine.get_tensor_dtype("x" if kind == "input" else "y").name == MAPPED[name]
        _run_in_guarded_memory(engine)


@pytest.mark.parametrize("kind", ["input", "output", "both", "conditional", "loop"])
def test_double_is_given_and_returned_as_float(kind: str) -> None:
    _, builder, network, _, _ = _parse(kind, TensorProto.DOUBLE)
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    result = np.frombuffer(_run_in_guarded_memory(engine)["y"], np.float32)
    np.testing.assert_array_equal(result, np.frombuffer(b"\x01" * result.nbytes, np.float32))


def test_support_is_reported_as_the_parser_decides() -> None:
    for name, number in TYPES.items():
        nodes, inputs, result = _output(number)
        graph = helper.make_graph(nodes, "types", inputs, [_info("y", result)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
        logger = KeptMessages()
        parser = trt.OnnxParser(trt.Builder(logger).create_network(), logger)
        assert parser.supports_model_v2(model.SerializeToString()) == (name in MAPPED), name


@pytest.mark.parametrize(("name", "reported"), [("DOUBLE", "FLOAT"), ("INT16", None), ("UINT64", None)])
def test_a_tensor_inside_a_model_becomes_an_output_of_a_type_that_networks_have(name: str, reported: Any) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["inner"], to=TYPES[name], name="narrow"),
        helper.make_node("Cast", ["inner"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(nodes, "inner", [_info("x", 1)], [_info("y", 1)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    logger = KeptMessages()
    builder = trt.Builder(logger)
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(model.SerializeToString())
    network.mark_output(parser.get_layer_output_tensor("narrow", 0))
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    if reported is None:
        assert engine is None
        assert "output 'inner': its element type is none of the contract's; " in logger.errors[-1]
        assert name in logger.errors[-1]
    else:
        assert engine.get_tensor_dtype("inner").name == reported
        _run_in_guarded_memory(engine)


def test_a_plan_with_an_output_of_another_type_is_not_loaded() -> None:
    nodes, inputs, result = _output(TensorProto.DOUBLE)
    graph = helper.make_graph(nodes, "types", inputs, [_info("y", result)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    plan = dovetail.compile(model).serialize()
    logger = KeptMessages()
    assert trt.Runtime(logger).deserialize_cuda_engine(plan) is None
    assert "tensor 'y': its element type is none of this API" in logger.errors[0]


def test_debug_tensors_of_doubles_are_given_as_floats() -> None:
    _, builder, network, _, _ = _parse("both", TensorProto.DOUBLE)
    network.mark_unfused_tensors_as_debug_tensors()
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    assert engine.create_execution_context() is not None
