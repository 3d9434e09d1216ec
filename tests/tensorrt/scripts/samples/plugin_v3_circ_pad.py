"""A plugin in Python that pads in a circle: registered, used from ONNX, built, saved, loaded and run."""

import ctypes
import logging

import numpy as np
import tensorrt as trt
from onnx import TensorProto, helper

from common import TRT_LOGGER, allocate_buffers, do_inference, free_buffers

logging.basicConfig(level=logging.INFO)
log = logging.getLogger("CircPad")


def array_at(address, shape, dtype):
    count = int(np.prod(shape))
    buffer = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(buffer, dtype).reshape(shape)


class CircPadPlugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    def __init__(self, fc=None, phase=None):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.pads = []
        self.X_shape = []
        self.num_outputs = 1
        self.plugin_namespace = ""
        self.plugin_name = "CircPadPlugin"
        self.plugin_version = "1"
        self.timing_cache_id = ""
        self.tactic = None
        if phase is not None:
            self.phase = phase
        if fc is not None:
            assert fc[0].name == "pads"
            self.pads = fc[0].data

    def get_capability_interface(self, type):
        return self

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        output_dims = trt.DimsExprs(inputs[0])
        for i in range(np.size(self.pads) // 2):
            last = len(output_dims) - i - 1
            total = exprBuilder.constant(int(self.pads[i * 2] + self.pads[i * 2 + 1]))
            output_dims[last] = exprBuilder.operation(trt.DimensionOperation.SUM, inputs[0][last], total)
        return [output_dims]

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([trt.PluginField("pads", self.pads, trt.PluginFieldType.INT32)])

    def configure_plugin(self, inp, out):
        pass

    def on_shape_change(self, inp, out):
        self.X_shape = tuple(inp[0].dims)

    def supports_format_combination(self, pos, in_out, num_inputs):
        assert num_inputs == 1
        desc = in_out[pos].desc
        if desc.format != trt.TensorFormat.LINEAR:
            return False
        return desc.type == (trt.float32 if pos == 0 else in_out[0].desc.type)

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        dtype = trt.nptype(input_desc[0].type)
        a = array_at(inputs[0], tuple(input_desc[0].dims), dtype)
        out = array_at(outputs[0], tuple(output_desc[0].dims), dtype)
        pairs = [(0, 0)] * a.ndim
        for i in range(np.size(self.pads) // 2):
            pairs[a.ndim - i - 1] = (int(self.pads[i * 2]), int(self.pads[i * 2 + 1]))
        np.copyto(out, np.pad(a, pairs, mode="wrap"))

    def attach_to_context(self, context):
        return self.clone()

    def set_tactic(self, tactic):
        self.tactic = tactic

    def get_valid_tactics(self):
        return [1, 2]

    def clone(self):
        cloned_plugin = CircPadPlugin()
        cloned_plugin.__dict__.update(self.__dict__)
        return cloned_plugin


class CircPadPluginCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name = "CircPadPlugin"
        self.plugin_namespace = ""
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection([trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)])

    def create_plugin(self, name, fc, phase):
        return CircPadPlugin(fc, phase)


def make_model(shape, pads):
    node = helper.make_node("CircPadPlugin", ["X"], ["Y"], name="circ_pad", pads=pads)
    graph = helper.make_graph(
        [node, helper.make_node("Neg", ["Y"], ["Z"], name="neg")],
        "test",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("Z", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    shape, pads = (10, 3, 32, 32), [1, 1, 1, 1]
    plg_registry = trt.get_plugin_registry()
    my_plugin_creator = CircPadPluginCreator()
    assert plg_registry.register_creator(my_plugin_creator, "")
    assert not plg_registry.register_creator(CircPadPluginCreator(), "")
    assert plg_registry.get_creator("CircPadPlugin", "1", "") is my_plugin_creator
    assert plg_registry.get_creator("NoSuchPlugin", "1", "") is None

    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network()
    parser = trt.OnnxParser(network, TRT_LOGGER)
    assert parser.parse(make_model(shape, pads).SerializeToString()), parser.get_error(0)
    assert network.get_layer(0).name == "circ_pad"
    assert network.get_output(0).shape == (10, 3, 34, 34)
    config = builder.create_builder_config()
    plan = builder.build_serialized_network(network, config)
    engine = trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(plan)
    log.info("Engine built successfully.")

    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    inputs, outputs, bindings, stream = allocate_buffers(engine)
    context = engine.create_execution_context()
    np.copyto(inputs[0].host, x.ravel())
    [z] = do_inference(context, engine, bindings, inputs, outputs, stream)
    expected = -np.pad(x, [[0, 0], [0, 0], [1, 1], [1, 1]], "wrap")
    if np.allclose(z.reshape(expected.shape), expected):
        print("Inference result is correct!")
    else:
        print("Inference result is incorrect!")
    free_buffers(inputs, outputs, stream)
