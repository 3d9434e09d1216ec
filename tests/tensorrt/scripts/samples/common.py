"""What the samples share: checked CUDA calls, buffers of an engine, one inference."""

import numpy as np
import tensorrt as trt
from cuda import cudart

TRT_LOGGER = trt.Logger(trt.Logger.WARNING)


def cuda_call(call):
    err, *res = call
    if err != cudart.cudaError_t.cudaSuccess:
        _, text = cudart.cudaGetErrorString(err)
        raise RuntimeError(f"Cuda Runtime Error: {text}")
    return res[0] if len(res) == 1 else res


class HostDeviceMem:
    """Pinned memory of the host and its twin on the device."""

    def __init__(self, size, dtype):
        nbytes = size * np.dtype(dtype).itemsize
        host = cuda_call(cudart.cudaMallocHost(nbytes))
        import ctypes

        pointer = ctypes.cast(host, ctypes.POINTER(np.ctypeslib.as_ctypes_type(np.dtype(dtype))))
        self.host = np.ctypeslib.as_array(pointer, (size,))
        self.device = cuda_call(cudart.cudaMalloc(nbytes))
        self.nbytes = nbytes

    def free(self):
        cuda_call(cudart.cudaFree(self.device))
        cuda_call(cudart.cudaFreeHost(self.host.ctypes.data))


def allocate_buffers(engine, profile_idx=None):
    inputs, outputs, bindings = [], [], []
    stream = cuda_call(cudart.cudaStreamCreate())
    for name in [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]:
        if profile_idx is None:
            shape = engine.get_tensor_shape(name)
        else:
            is_input = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
            shape = (
                engine.get_tensor_profile_shape(name, profile_idx)[-1] if is_input else engine.get_tensor_shape(name)
            )
        if any(s < 0 for s in shape):
            raise ValueError(f"{name} has a dynamic shape, but no profile was given: {shape}")
        memory = HostDeviceMem(trt.volume(shape), trt.nptype(engine.get_tensor_dtype(name)))
        bindings.append(int(memory.device))
        (inputs if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT else outputs).append(memory)
    return inputs, outputs, bindings, stream


def do_inference(context, engine, bindings, inputs, outputs, stream):
    to_device = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
    to_host = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
    for inp in inputs:
        cuda_call(cudart.cudaMemcpyAsync(inp.device, inp.host.ctypes.data, inp.nbytes, to_device, stream))
    for i in range(engine.num_io_tensors):
        context.set_tensor_address(engine.get_tensor_name(i), bindings[i])
    assert context.execute_async_v3(stream_handle=stream)
    for out in outputs:
        cuda_call(cudart.cudaMemcpyAsync(out.host.ctypes.data, out.device, out.nbytes, to_host, stream))
    cuda_call(cudart.cudaStreamSynchronize(stream))
    return [out.host for out in outputs]


def free_buffers(inputs, outputs, stream):
    for mem in inputs + outputs:
        mem.free()
    cuda_call(cudart.cudaStreamDestroy(stream))
