"""NonZero has an output whose size only the run tells: an allocator of the script's provides its memory."""

import numpy as np
import tensorrt as trt
from cuda import cudart


def cuda_call(result):
    assert result[0] == cudart.cudaError_t.cudaSuccess, result[0]
    return result[1] if len(result) > 1 else None


class OutputAllocator(trt.IOutputAllocator):
    def __init__(self):
        trt.IOutputAllocator.__init__(self)
        self.buffers = {}
        self.shapes = {}

    def reallocate_output(self, tensor_name, memory, size, alignment):
        if tensor_name in self.buffers:
            cuda_call(cudart.cudaFree(self.buffers[tensor_name]))
        self.buffers[tensor_name] = cuda_call(cudart.cudaMalloc(max(size, 1)))
        return int(self.buffers[tensor_name])

    def reallocate_output_async(self, tensor_name, memory, size, alignment, stream):
        return self.reallocate_output(tensor_name, memory, size, alignment)

    def notify_shape(self, tensor_name, shape):
        self.shapes[tensor_name] = tuple(shape)


if __name__ == "__main__":
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, 5))
    layer = network.add_non_zero(x)
    layer.get_output(0).name = "indices"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 5), (2, 5), (4, 5))
    config.add_optimization_profile(profile)
    engine = builder.build_engine_with_config(network, config)
    assert engine.get_tensor_shape("indices") == (2, -1)
    context = engine.create_execution_context()
    allocator = OutputAllocator()
    context.set_output_allocator("indices", allocator)
    assert context.get_output_allocator("indices") is allocator
    stream = cuda_call(cudart.cudaStreamCreate())
    for rows in (1, 4):
        array = np.random.default_rng(rows).integers(0, 2, (rows, 5)).astype(np.float32)
        memory = cuda_call(cudart.cudaMalloc(array.nbytes))
        cuda_call(cudart.cudaMemcpy(memory, array, array.nbytes, cudart.cudaMemcpyKind.cudaMemcpyHostToDevice))
        context.set_input_shape("x", array.shape)
        assert context.get_max_output_size("indices") >= 2 * 4 * int(array.sum())
        context.set_tensor_address("x", memory)
        assert context.execute_async_v3(stream)
        expected = np.stack(np.nonzero(array)).astype(np.int32)
        assert allocator.shapes["indices"] == expected.shape, allocator.shapes
        result = np.empty(expected.shape, np.int32)
        source = allocator.buffers["indices"]
        cuda_call(cudart.cudaMemcpy(result, source, result.nbytes, cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost))
        np.testing.assert_array_equal(result, expected)
        cuda_call(cudart.cudaFree(memory))
    print("Output allocator test passed")
