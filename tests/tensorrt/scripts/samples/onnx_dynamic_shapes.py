"""An ONNX model with a dynamic batch, a profile, and runs over several batches."""

import argparse
import os
import sys
import tempfile

import numpy as np
import onnx
import tensorrt as trt
from cuda.bindings import runtime as cudart
from onnx import TensorProto, helper, numpy_helper

logger = trt.Logger(trt.Logger.INFO)


def check(call):
    if call[0] != cudart.cudaError_t.cudaSuccess:
        raise RuntimeError(call[0])
    return call[1] if len(call) == 2 else None


def make_model(path):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 4)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(w, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return w


def build(path, max_batch):
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    with open(path, "rb") as model:
        if not parser.parse(model.read()):
            for error in range(parser.num_errors):
                print(parser.get_error(error))
            sys.exit("Failed to parse the ONNX file")
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    for inp in inputs:
        print(f"input {inp.name} shape{inp.shape} {inp.dtype}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 20)
    profile = builder.create_optimization_profile()
    profile.set_shape(inputs[0].name, min=(1, 8), opt=(4, 8), max=(max_batch, 8))
    assert config.add_optimization_profile(profile) == 0
    return builder.build_serialized_network(network, config)


def infer(context, x):
    assert context.set_input_shape("x", x.shape)
    assert not context.infer_shapes()
    y = np.empty(tuple(context.get_tensor_shape("y")), np.float32)
    d_x, d_y = check(cudart.cudaMalloc(x.nbytes)), check(cudart.cudaMalloc(y.nbytes))
    stream = check(cudart.cudaStreamCreate())
    check(cudart.cudaMemcpyAsync(d_x, x.ctypes.data, x.nbytes, cudart.cudaMemcpyKind.cudaMemcpyHostToDevice, stream))
    context.set_tensor_address("x", d_x)
    context.set_tensor_address("y", d_y)
    assert context.execute_async_v3(stream)
    check(cudart.cudaMemcpyAsync(y.ctypes.data, d_y, y.nbytes, cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost, stream))
    check(cudart.cudaStreamSynchronize(stream))
    check(cudart.cudaFree(d_x))
    check(cudart.cudaFree(d_y))
    return y


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--max-batch", type=int, default=16)
    args = args.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        w = make_model(path)
        plan = build(path, args.max_batch)
        assert plan is not None
        engine_path = os.path.join(folder, "model.engine")
        with open(engine_path, "wb") as f:
            f.write(plan)
        with open(engine_path, "rb") as f:
            engine = trt.Runtime(logger).deserialize_cuda_engine(f.read())
    assert engine.get_tensor_profile_shape("x", 0)[2] == (args.max_batch, 8)
    context = engine.create_execution_context()
    for batch in (1, 3, args.max_batch):
        x = np.random.default_rng(batch).standard_normal((batch, 8)).astype(np.float32)
        h = np.maximum(x @ w, 0)
        expected = np.exp(h) / np.exp(h).sum(-1, keepdims=True)
        np.testing.assert_allclose(infer(context, x), expected, rtol=1e-4, atol=1e-5)
    if context.set_input_shape("x", (args.max_batch + 1, 8)):
        sys.exit("a batch beyond the profile was accepted")
    print(f"Inference succeeded for batches up to {args.max_batch}")


if __name__ == "__main__":
    main()
