"""A plugin whose enqueue uses CuPy, PyTorch or Triton on the pointers and the stream that it gets."""

import sys

import cupy as cp
import numpy as np
import tensorrt as trt
import torch
import triton
import triton.language as tl
from cuda import cudart

LOGGER = trt.Logger(trt.Logger.WARNING)


@triton.jit
def scale_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


class ScalePlugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    def __init__(self, library):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.library = library
        self.plugin_name, self.plugin_version, self.plugin_namespace = "Scale", "1", ""
        self.num_outputs = 1

    def get_capability_interface(self, type):
        return self

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        return [trt.DimsExprs(inputs[0])]

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([trt.PluginField("library", self.library.encode(), trt.PluginFieldType.CHAR)])

    def configure_plugin(self, inp, out):
        pass

    def on_shape_change(self, inp, out):
        pass

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and desc.type == trt.float32

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        shape = tuple(input_desc[0].dims)
        size = int(np.prod(shape))
        with cp.cuda.ExternalStream(stream):
            views = [cp.cuda.UnownedMemory(address, 4 * size, self) for address in (inputs[0], outputs[0])]
            x, y = (cp.ndarray((size,), cp.float32, cp.cuda.MemoryPointer(view, 0)) for view in views)
            if self.library == "cupy":
                cp.multiply(x, cp.float32(2), out=y)
                return
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            tx, ty = torch.as_tensor(x, device="cuda"), torch.as_tensor(y, device="cuda")
            if self.library == "torch":
                torch.mul(tx, 2, out=ty)
            else:
                scale_kernel[(triton.cdiv(size, 256),)](tx, ty, size, BLOCK=256)

    def attach_to_context(self, context):
        return self.clone()

    def set_tactic(self, tactic):
        pass

    def clone(self):
        cloned = ScalePlugin(self.library)
        cloned.__dict__.update(self.__dict__)
        return cloned


class ScaleCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "Scale", "1", ""
        field = trt.PluginField("library", b"", trt.PluginFieldType.CHAR)
        self.field_names = trt.PluginFieldCollection([field])

    def create_plugin(self, name, fc, phase):
        return ScalePlugin(bytes(fc[0].data).decode())


def check(call):
    error, *results = call
    assert int(error) == 0, error
    return results[0] if len(results) == 1 else results


def build(library):
    builder = trt.Builder(LOGGER)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    x = network.add_input("x", trt.float32, (-1, 8))
    doubled = network.add_plugin_v3([x], [], ScalePlugin(library))
    total = network.add_elementwise(doubled.get_output(0), x, trt.ElementWiseOperation.SUM)
    total.get_output(0).name = "y"
    network.mark_output(total.get_output(0))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 8), (16, 8), (64, 8))
    config.add_optimization_profile(profile)
    return builder.build_serialized_network(network, config)


def main(library):
    trt.get_plugin_registry().register_creator(ScaleCreator(), "")
    engine = trt.Runtime(LOGGER).deserialize_cuda_engine(build(library))
    context, stream = engine.create_execution_context(), check(cudart.cudaStreamCreate())
    rng = np.random.default_rng(1)
    for rows in (16, 1, 64, 16, 16, 16):
        x = rng.standard_normal((rows, 8)).astype(np.float32)
        y = np.empty_like(x)
        context.set_input_shape("x", x.shape)
        memory = {name: check(cudart.cudaMalloc(x.nbytes)) for name in ("x", "y")}
        for name, address in memory.items():
            context.set_tensor_address(name, int(address))
        kinds = cudart.cudaMemcpyKind
        to_device, to_host = kinds.cudaMemcpyHostToDevice, kinds.cudaMemcpyDeviceToHost
        check(cudart.cudaMemcpyAsync(memory["x"], x.ctypes.data, x.nbytes, to_device, stream))
        assert context.execute_async_v3(int(stream))
        check(cudart.cudaMemcpyAsync(y.ctypes.data, memory["y"], y.nbytes, to_host, stream))
        check(cudart.cudaStreamSynchronize(stream))
        np.testing.assert_allclose(y, 3 * x, rtol=1e-6)
        for address in memory.values():
            check(cudart.cudaFree(address))
    print(f"Scaled by {library} on a stream: correct")


if __name__ == "__main__":
    main(sys.argv[1])
