"""A plan without its weights is small; the ONNX model gives them back."""

import os
import tempfile

import numpy as np
import onnx
import tensorrt as trt
from onnx import TensorProto, helper, numpy_helper

import common

TRT_LOGGER = trt.Logger(trt.Logger.ERROR)


def make_model(path):
    w = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    b = np.random.default_rng(1).standard_normal(256).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 256])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return w, b


def build(path, *flags):
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, TRT_LOGGER)
    assert parser.parse_from_file(path), parser.get_error(0)
    config = builder.create_builder_config()
    for flag in flags:
        config.flags |= 1 << int(flag)
    return builder.build_serialized_network(network, config)


if __name__ == "__main__":
    path = os.path.join(tempfile.mkdtemp(), "dense.onnx")
    w, b = make_model(path)
    full = build(path)
    stripped = build(path, trt.BuilderFlag.STRIP_PLAN)
    print(f"Normal engine size: {full.nbytes > 200_000}, stripped engine size: {stripped.nbytes < 50_000}")
    engine = trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(stripped)
    assert engine.get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE) == w.nbytes + b.nbytes
    refitter = trt.Refitter(engine, TRT_LOGGER)
    assert sorted(refitter.get_missing_weights()) == ["b", "w"]
    parser_refitter = trt.OnnxParserRefitter(refitter, TRT_LOGGER)
    assert parser_refitter.refit_from_file(path)
    assert refitter.refit_cuda_engine()
    config = engine.create_serialization_config()
    config.flags &= ~(1 << int(trt.SerializationFlag.EXCLUDE_WEIGHTS))
    complete = engine.serialize_with_config(config)
    assert complete.nbytes > 200_000
    config.set_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    assert engine.serialize_with_config(config).nbytes < 50_000

    engine = trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(complete)
    x = np.random.default_rng(2).standard_normal((2, 256)).astype(np.float32)
    inputs, outputs, bindings, stream = common.allocate_buffers(engine)
    np.copyto(inputs[0].host, x.ravel())
    [y] = common.do_inference(engine.create_execution_context(), engine, bindings, inputs, outputs, stream)
    np.testing.assert_allclose(y.reshape(2, 256), x @ w + b, rtol=1e-3, atol=1e-3)
    print("Engine with weights given back is correct")
