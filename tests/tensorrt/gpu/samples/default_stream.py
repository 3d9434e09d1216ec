"""Inputs that are computed on the default stream, runs without a stream, and a plugin that names none."""

import sys

import cupy as cp
import numpy as np
import tensorrt as trt
import torch

LOGGER = trt.Logger(trt.Logger.WARNING)
SIZE = 2048


class TwicePlugin(trt.IPluginV2DynamicExt):
    def __init__(self):
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs, self.plugin_namespace, self.plugin_type, self.plugin_version = 1, "", "Twice", "1"

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        return trt.DimsExprs(inputs[0])

    def serialize(self):
        return b""

    def configure_plugin(self, inp, out):
        pass

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].format == trt.TensorFormat.LINEAR and in_out[pos].type == trt.float32

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        size = 4 * SIZE * SIZE
        views = [cp.cuda.UnownedMemory(address, size, self) for address in (inputs[0], outputs[0])]
        x, y = (cp.ndarray((SIZE, SIZE), cp.float32, cp.cuda.MemoryPointer(view, 0)) for view in views)
        tensor = torch.as_tensor(x, device="cuda")
        cp.copyto(y, cp.asarray(tensor + tensor) * cp.asarray(np.float32([1.0])))

    def clone(self):
        return TwicePlugin()


def build():
    builder = trt.Builder(LOGGER)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, (SIZE, SIZE))
    relu = network.add_activation(x, trt.ActivationType.RELU)
    twice = network.add_plugin_v2([relu.get_output(0)], TwicePlugin())
    last = network.add_activation(twice.get_output(0), trt.ActivationType.RELU)
    last.get_output(0).name = "y"
    network.mark_output(last.get_output(0))
    return builder.build_serialized_network(network, builder.create_builder_config())


class TwiceCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name, self.plugin_namespace, self.plugin_version = "Twice", "", "1"
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name, fc):
        return TwicePlugin()

    def deserialize_plugin(self, name, data):
        return TwicePlugin()


def main(call):
    trt.get_plugin_registry().register_creator(TwiceCreator(), "")
    engine = trt.Runtime(LOGGER).deserialize_cuda_engine(build())
    context = engine.create_execution_context()
    x, y = torch.empty((SIZE, SIZE), device="cuda"), torch.empty((SIZE, SIZE), device="cuda")
    work = torch.randn((SIZE, SIZE), device="cuda") / SIZE
    for number in range(6):
        slow = torch.eye(SIZE, device="cuda")
        for _ in range(40):  # several milliseconds on the default stream
            slow = slow @ work
        x.copy_(slow * 0 + number + 1)
        if call == "execute_v2":
            assert context.execute_v2([x.data_ptr(), y.data_ptr()])
        else:
            context.set_tensor_address("x", x.data_ptr())
            context.set_tensor_address("y", y.data_ptr())
            assert context.execute_async_v3(torch.cuda.current_stream().cuda_stream)
        assert bool((y == 2.0 * (number + 1)).all()), (number, y.flatten()[:4])
        y.zero_()
    print(f"The default stream keeps order with {call}: correct")


main(sys.argv[1])
