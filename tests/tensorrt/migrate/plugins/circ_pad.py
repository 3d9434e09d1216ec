"""Circular padding of the last dimensions: IPluginV2DynamicExt, parameters as JSON text, state set when configured."""

import json

import numpy as np
import tensorrt as trt

from dovetail.plugin import as_array


class CircPadPlugin(trt.IPluginV2DynamicExt):
    def __init__(self, fc=None):
        trt.IPluginV2DynamicExt.__init__(self)
        self.pads = []
        self.X_shape = []

        self.num_outputs = 1
        self.plugin_namespace = ""
        self.plugin_type = "CircPadPlugin"
        self.plugin_version = "1"

        if fc is not None:
            assert fc[0].name == "pads"
            self.pads = [int(pad) for pad in fc[0].data]

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        output_dims = trt.DimsExprs(inputs[0])

        # the pads come in pairs, the last dimension first
        for i in range(len(self.pads) // 2):
            output_dims[len(output_dims) - i - 1] = exprBuilder.operation(
                trt.DimensionOperation.SUM,
                inputs[0][len(output_dims) - i - 1],
                exprBuilder.constant(self.pads[i * 2] + self.pads[i * 2 + 1]),
            )

        return output_dims

    def serialize(self):
        return json.dumps({"pads": self.pads})

    def configure_plugin(self, inp, out):
        x_dims = inp[0].desc.dims
        self.X_shape = np.zeros((len(x_dims),))
        for i in range(len(x_dims)):
            self.X_shape[i] = x_dims[i]

    def supports_format_combination(self, pos, in_out, num_inputs):
        assert num_inputs == 1
        assert pos < len(in_out)

        desc = in_out[pos]
        if desc.format != trt.TensorFormat.LINEAR:
            return False

        # first input should be float16 or float32
        if pos == 0:
            return desc.type == trt.DataType.FLOAT or desc.type == trt.DataType.HALF

        # output should have the same type as the input
        if pos == 1:
            return in_out[0].type == desc.type

        return False

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = as_array(inputs[0], input_desc[0])
        assert tuple(self.X_shape) == x.shape
        width = [(0, 0)] * x.ndim
        for i in range(len(self.pads) // 2):
            width[x.ndim - i - 1] = (self.pads[i * 2], self.pads[i * 2 + 1])
        as_array(outputs[0], output_desc[0])[...] = np.pad(x, width, "wrap")

    def clone(self):
        cloned_plugin = CircPadPlugin()
        cloned_plugin.__dict__.update(self.__dict__)
        return cloned_plugin


class CircPadPluginCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name = "CircPadPlugin"
        self.plugin_namespace = ""
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pads", np.array([], dtype=np.int32), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name, fc):
        return CircPadPlugin(fc)

    def deserialize_plugin(self, name, data):
        j = dict(json.loads(data.decode("utf-8")))
        deserialized = CircPadPlugin()
        deserialized.__dict__.update(j)
        return deserialized
