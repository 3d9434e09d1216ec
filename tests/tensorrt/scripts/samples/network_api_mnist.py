"""A small LeNet by the network API, with weights from a seed, against the same in NumPy."""

import sys

import numpy as np
import tensorrt as trt

import common
from common import TRT_LOGGER


class ModelData:
    INPUT_NAME = "data"
    INPUT_SHAPE = (1, 1, 28, 28)
    OUTPUT_NAME = "prob"
    DTYPE = trt.float32


def make_weights():
    rng = np.random.default_rng(3)

    def draw(*shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:] or shape))).astype(np.float32)

    return {
        "conv1.weight": draw(20, 1, 5, 5),
        "conv1.bias": draw(20),
        "conv2.weight": draw(50, 20, 5, 5),
        "conv2.bias": draw(50),
        "fc1.weight": draw(500, 800),
        "fc1.bias": draw(500),
        "fc2.weight": draw(10, 500),
        "fc2.bias": draw(10),
    }


def add_matmul_as_fc(net, input, outputs, w, b):
    assert len(input.shape) >= 3
    m = int(np.prod(input.shape[:1]))
    k = int(np.prod(input.shape[1:]))
    n = w.size // k
    assert n == b.size
    input_reshape = net.add_shuffle(input)
    input_reshape.reshape_dims = trt.Dims2(m, k)
    filter_const = net.add_constant(trt.Dims2(n, k), w)
    mm = net.add_matrix_multiply(
        input_reshape.get_output(0), trt.MatrixOperation.NONE, filter_const.get_output(0), trt.MatrixOperation.TRANSPOSE
    )
    bias_const = net.add_constant(trt.Dims2(1, n), b)
    bias_add = net.add_elementwise(mm.get_output(0), bias_const.get_output(0), trt.ElementWiseOperation.SUM)
    output_reshape = net.add_shuffle(bias_add.get_output(0))
    output_reshape.reshape_dims = trt.Dims4(m, n, 1, 1)
    return output_reshape


def populate_network(network, weights):
    input_tensor = network.add_input(name=ModelData.INPUT_NAME, dtype=ModelData.DTYPE, shape=ModelData.INPUT_SHAPE)
    conv1 = network.add_convolution_nd(
        input=input_tensor,
        num_output_maps=20,
        kernel_shape=(5, 5),
        kernel=weights["conv1.weight"],
        bias=weights["conv1.bias"],
    )
    conv1.stride_nd = (1, 1)
    pool1 = network.add_pooling_nd(input=conv1.get_output(0), type=trt.PoolingType.MAX, window_size=(2, 2))
    pool1.stride_nd = trt.Dims2(2, 2)
    conv2 = network.add_convolution_nd(pool1.get_output(0), 50, (5, 5), weights["conv2.weight"], weights["conv2.bias"])
    conv2.stride_nd = (1, 1)
    pool2 = network.add_pooling_nd(conv2.get_output(0), trt.PoolingType.MAX, (2, 2))
    pool2.stride_nd = trt.Dims2(2, 2)
    fc1 = add_matmul_as_fc(network, pool2.get_output(0), 500, weights["fc1.weight"], weights["fc1.bias"])
    relu1 = network.add_activation(input=fc1.get_output(0), type=trt.ActivationType.RELU)
    fc2 = add_matmul_as_fc(network, relu1.get_output(0), 10, weights["fc2.weight"], weights["fc2.bias"])
    fc2.get_output(0).name = ModelData.OUTPUT_NAME
    network.mark_output(tensor=fc2.get_output(0))


def build_engine(weights):
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(0)
    config = builder.create_builder_config()
    runtime = trt.Runtime(TRT_LOGGER)
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 30)
    populate_network(network, weights)
    plan = builder.build_serialized_network(network, config)
    return runtime.deserialize_cuda_engine(plan)


def conv(x, w, b):
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w) + b[None, :, None, None]


def pool(x):
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))


def reference(x, w):
    x = pool(conv(x, w["conv1.weight"], w["conv1.bias"]))
    x = pool(conv(x, w["conv2.weight"], w["conv2.bias"]))
    x = np.maximum(x.reshape(1, -1) @ w["fc1.weight"].T + w["fc1.bias"], 0)
    return x @ w["fc2.weight"].T + w["fc2.bias"]


def main():
    weights = make_weights()
    engine = build_engine(weights)
    inputs, outputs, bindings, stream = common.allocate_buffers(engine)
    context = engine.create_execution_context()
    image = np.random.default_rng(1).random(ModelData.INPUT_SHAPE, dtype=np.float32)
    np.copyto(inputs[0].host, image.ravel())
    [output] = common.do_inference(context, engine, bindings, inputs, outputs, stream)
    expected = reference(image, weights)
    same = np.allclose(output.reshape(1, 10), expected, rtol=1e-3, atol=5e-3 * np.abs(expected).max())  # TF32 is on
    print(f"Test Case: {np.argmax(expected)}")
    print(f"Prediction: {np.argmax(output)}")
    common.free_buffers(inputs, outputs, stream)
    print("PASSED" if same else "FAILED")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
