"""Builds an engine with dummy weights, refits it with the true ones, and looks at the result."""

import sys

import numpy as np
import tensorrt as trt

import common

TRT_LOGGER = trt.Logger()
RIGHT = {
    "dense": np.arange(12, dtype=np.float32).reshape(4, 3) / 10,
    "shift": np.float32([1.0, -1.0, 0.5]).reshape(1, 3),
}


def build():
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(0)
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    x = network.add_input("x", trt.float32, (1, 4))
    dummy = np.zeros((4, 3), np.float32)
    dense = network.add_constant((4, 3), trt.Weights(dummy))
    dense.name = "dense"
    network.set_weights_name(dense.weights, "dense")
    product = network.add_matrix_multiply(x, trt.MatrixOperation.NONE, dense.get_output(0), trt.MatrixOperation.NONE)
    shift_array = np.zeros((1, 3), np.float32)
    shift = network.add_constant((1, 3), shift_array)
    network.set_weights_name(shift_array, "shift")
    result = network.add_elementwise(product.get_output(0), shift.get_output(0), trt.ElementWiseOperation.SUM)
    result.get_output(0).name = "y"
    network.mark_output(result.get_output(0))
    return trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(builder.build_serialized_network(network, config))


def run(engine, x):
    inputs, outputs, bindings, stream = common.allocate_buffers(engine)
    np.copyto(inputs[0].host, x.ravel())
    context = engine.create_execution_context()
    [y] = common.do_inference(context, engine, bindings, inputs, outputs, stream)
    y = y.copy()
    common.free_buffers(inputs, outputs, stream)
    return y


def main():
    engine = build()
    assert engine.refittable
    x = np.float32([[1, 2, 3, 4]])
    assert not run(engine, x).any()
    print("Engine built with dummy weights")
    refitter = trt.Refitter(engine, TRT_LOGGER)
    assert sorted(refitter.get_all_weights()) == ["dense", "shift"]
    for name in refitter.get_all_weights():
        prototype = refitter.get_weights_prototype(name)
        assert prototype.dtype == trt.DataType.FLOAT
        assert prototype.size == RIGHT[name].size
        weights = RIGHT[name]
        if name == "dense":  # by address, as bindings of other libraries give it
            weights = trt.Weights(trt.DataType.FLOAT, weights.ctypes.data, weights.size)
        assert refitter.set_named_weights(name, weights, trt.TensorLocation.HOST)
    assert not refitter.set_named_weights("nothing", RIGHT["shift"])
    assert not refitter.set_named_weights("dense", np.zeros(5, np.float32))
    assert refitter.get_missing_weights() == []
    assert refitter.refit_cuda_engine()
    expected = x @ RIGHT["dense"] + RIGHT["shift"]
    np.testing.assert_allclose(run(engine, x).reshape(1, 3), expected, rtol=1e-5)
    print("Engine refitted successfully")


if __name__ == "__main__":
    sys.exit(main())
