"""Clipping in one type and one format for all tensors: the plain IPluginV2."""

import json

import numpy as np
import tensorrt as trt

from dovetail.plugin import as_array


class ClipPlugin(trt.IPluginV2):
    def __init__(self, low, high, shape=None):
        trt.IPluginV2.__init__(self)
        self.num_outputs = 1
        self.plugin_type = "ClipV2"
        self.plugin_version = "1"
        self.low, self.high = low, high
        self.shape = shape

    def get_output_shape(self, index, inputs):
        return inputs[index]

    def supports_format(self, dtype, format):
        return dtype == trt.DataType.FLOAT and format == trt.TensorFormat.LINEAR

    def configure_with_format(self, input_shapes, output_shapes, dtype, format, max_batch_size):
        assert dtype == trt.DataType.FLOAT
        self.shape = list(input_shapes[0])

    def execute_async(self, batch_size, inputs, outputs, workspace, stream_handle):
        desc = trt.PluginTensorDesc()
        desc.dims, desc.type, desc.format = [batch_size, *self.shape], trt.DataType.FLOAT, trt.TensorFormat.LINEAR
        np.clip(as_array(inputs[0], desc), self.low, self.high, out=as_array(outputs[0], desc))

    def serialize(self):
        return json.dumps([self.low, self.high, self.shape]).encode()

    def clone(self):
        return ClipPlugin(self.low, self.high, self.shape)


class ClipCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name = "ClipV2"
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection(
            [
                trt.PluginField("low", np.array([-1], np.float32), trt.PluginFieldType.FLOAT32),
                trt.PluginField("high", np.array([1], np.float32), trt.PluginFieldType.FLOAT32),
            ]
        )

    def create_plugin(self, name, fc):
        given = {"low": -1.0, "high": 1.0} | {field.name: float(field.data[0]) for field in fc}
        return ClipPlugin(given["low"], given["high"])

    def deserialize_plugin(self, name, data):
        return ClipPlugin(*json.loads(data))
