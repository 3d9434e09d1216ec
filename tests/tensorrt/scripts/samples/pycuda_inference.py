"""The classic way with pycuda: page-locked buffers, asynchronous copies, execute_v2."""

import numpy as np
import pycuda.autoinit  # noqa: F401
import pycuda.driver as cuda
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.WARNING)

if __name__ == "__main__":
    with trt.Builder(TRT_LOGGER) as builder, builder.create_network(1) as network:
        config = builder.create_builder_config()
        x = network.add_input("x", trt.float32, (3, 4))
        scale = network.add_constant((1, 4), np.float32([[1, 2, 3, 4]]))
        layer = network.add_elementwise(x, scale.get_output(0), trt.ElementWiseOperation.PROD)
        layer.get_output(0).name = "y"
        network.mark_output(layer.get_output(0))
        plan = builder.build_serialized_network(network, config)
    with trt.Runtime(TRT_LOGGER) as runtime:
        engine = runtime.deserialize_cuda_engine(plan)
    h_input = cuda.pagelocked_empty(trt.volume(engine.get_tensor_shape("x")), dtype=trt.nptype(trt.float32))
    h_output = cuda.pagelocked_empty(trt.volume(engine.get_tensor_shape("y")), dtype=np.float32)
    d_input, d_output = cuda.mem_alloc(h_input.nbytes), cuda.mem_alloc(h_output.nbytes)
    stream = cuda.Stream()
    np.copyto(h_input, np.arange(12, dtype=np.float32))
    with engine.create_execution_context() as context:
        cuda.memcpy_htod_async(d_input, h_input, stream)
        start, end = cuda.Event(), cuda.Event()
        start.record(stream)
        assert context.execute_v2(bindings=[int(d_input), int(d_output)])
        assert context.execute_async_v3(stream.handle)
        end.record(stream)
        end.synchronize()
        cuda.memcpy_dtoh_async(h_output, d_output, stream)
        stream.synchronize()
    assert start.time_till(end) >= 0
    expected = np.arange(12, dtype=np.float32).reshape(3, 4) * np.float32([1, 2, 3, 4])
    np.testing.assert_array_equal(h_output.reshape(3, 4), expected)
    print("pycuda inference is correct")
