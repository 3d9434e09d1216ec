"""A script that makes a CUDA context of its own, as PyCUDA does, and a plugin with memory in it."""

import numpy as np
import tensorrt as trt
from cuda.bindings import driver, runtime

LOGGER = trt.Logger(trt.Logger.WARNING)
SHAPE = (64, 256)


def check(call):
    error, *results = call
    assert int(error) == 0, error
    return results[0] if len(results) == 1 else results


def make_context():
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    try:
        return check(driver.cuCtxCreate(None, 0, device))
    except TypeError:
        return check(driver.cuCtxCreate(0, device))


class CopyPlugin(trt.IPluginV2DynamicExt):
    def __init__(self, fc=None):
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs, self.plugin_namespace, self.plugin_type, self.plugin_version = 1, "", "Copy", "1"
        self.count = 0 if fc is None else int(fc[0].data)
        self.between = None

    def initialize(self):
        self.between = check(runtime.cudaMalloc(4 * self.count))

    def terminate(self):
        if self.between is not None:
            check(runtime.cudaFree(self.between))
            self.between = None

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        return trt.DimsExprs(inputs[0])

    def serialize(self):
        return str(self.count).encode()

    def configure_plugin(self, inp, out):
        pass

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].format == trt.TensorFormat.LINEAR and in_out[pos].type == trt.float32

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        check(runtime.cudaMemcpyAsync(self.between, inputs[0], 4 * self.count, kind, stream))
        check(runtime.cudaMemcpyAsync(outputs[0], self.between, 4 * self.count, kind, stream))

    def clone(self):
        cloned = CopyPlugin()
        cloned.__dict__.update(self.__dict__)
        return cloned


class CopyCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name, self.plugin_namespace, self.plugin_version = "Copy", "", "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("count", np.array([]), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name, fc):
        return CopyPlugin(fc)

    def deserialize_plugin(self, name, data):
        plugin = CopyPlugin()
        plugin.count = int(data)
        return plugin


def build(creator):
    builder = trt.Builder(LOGGER)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, SHAPE)
    relu = network.add_activation(x, trt.ActivationType.RELU)
    count = trt.PluginField("count", np.array([np.prod(SHAPE)], np.int32), trt.PluginFieldType.INT32)
    plugin = creator.create_plugin("copy", trt.PluginFieldCollection([count]))
    copy = network.add_plugin_v2([relu.get_output(0)], plugin)
    total = network.add_elementwise(copy.get_output(0), x, trt.ElementWiseOperation.SUM)
    total.get_output(0).name = "y"
    network.mark_output(total.get_output(0))
    return builder.build_serialized_network(network, builder.create_builder_config())


def main():
    own = make_context()
    creator = CopyCreator()
    trt.get_plugin_registry().register_creator(creator, "")
    engine = trt.Runtime(LOGGER).deserialize_cuda_engine(build(creator))
    context, stream = engine.create_execution_context(), check(runtime.cudaStreamCreate())
    host = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    result = np.empty_like(host)
    x, y = check(runtime.cudaMalloc(host.nbytes)), check(runtime.cudaMalloc(host.nbytes))
    context.set_tensor_address("x", x)
    context.set_tensor_address("y", y)
    to_device, to_host = (
        getattr(runtime.cudaMemcpyKind, f"cudaMemcpy{way}") for way in ("HostToDevice", "DeviceToHost")
    )
    for number in range(4):
        check(runtime.cudaMemcpyAsync(x, host.ctypes.data + 0 * number, host.nbytes, to_device, stream))
        assert context.execute_async_v3(stream)
        check(runtime.cudaMemcpyAsync(result.ctypes.data, y, host.nbytes, to_host, stream))
        check(runtime.cudaStreamSynchronize(stream))
        assert np.allclose(result, np.maximum(host, 0) + host)
        host *= -1
    assert int(check(driver.cuCtxGetCurrent())) == int(own)
    del context, engine
    check(driver.cuCtxDestroy(own))
    print("A context of its own: correct")


main()
