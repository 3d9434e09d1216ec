"""A leaky rectifier with scratch memory of its context: IPluginV2Ext, which never sees the batch."""

import struct

import numpy as np
import tensorrt as trt

from dovetail.plugin import as_array


class LeakyPlugin(trt.IPluginV2Ext):
    def __init__(self, slope, count=0):
        trt.IPluginV2Ext.__init__(self)
        self.plugin_type = "LeakyExt"
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.num_outputs = 1
        self.slope = slope
        self.count = count  # elements without the batch
        self.allocator = None
        self.scratch = 0

    def get_output_shape(self, index, input_shapes):
        return input_shapes[0]

    def get_output_data_type(self, index, input_types):
        return input_types[0]

    def supports_format(self, dtype, format):
        return dtype == trt.float32 and format == trt.TensorFormat.LINEAR

    def configure_plugin(
        self, input_shapes, output_shapes, input_types, output_types, in_bcast, out_bcast, format, max_batch_size
    ):
        self.count = int(np.prod(input_shapes[0]))

    def attach_to_context(self, cudnn, cublas, allocator):
        self.allocator = allocator
        self.scratch = allocator.allocate(16, 256, 0)

    def detach_from_context(self):
        self.allocator.deallocate(self.scratch)
        self.allocator, self.scratch = None, 0

    def get_workspace_size(self, max_batch_size):
        return max_batch_size * self.count * 4

    def execute_async(self, batch_size, inputs, outputs, workspace, stream_handle):
        if not self.scratch:
            return 1  # not attached
        if batch_size * self.count == 0:
            return 0
        desc = trt.PluginTensorDesc()
        desc.dims, desc.type, desc.format = (batch_size, self.count), trt.float32, trt.TensorFormat.LINEAR
        x, low = as_array(inputs[0], desc), as_array(workspace, desc)
        np.multiply(x, np.float32(self.slope), out=low)
        as_array(outputs[0], desc)[...] = np.where(x > 0, x, low)
        return 0

    def serialize(self):
        return struct.pack("fi", self.slope, self.count)

    def clone(self):
        twin = LeakyPlugin(self.slope, self.count)
        twin.plugin_namespace = self.plugin_namespace
        return twin


class LeakyCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name = "LeakyExt"
        self.plugin_version = "1"
        self.plugin_namespace = ""
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("slope", np.array([0.1], np.float32), trt.PluginFieldType.FLOAT32)]
        )

    def create_plugin(self, name, fc):
        slope = 0.1
        for field in fc:
            if field.name == "slope":
                slope = float(field.data[0])
        return LeakyPlugin(slope)

    def deserialize_plugin(self, name, data):
        return LeakyPlugin(*struct.unpack("fi", data))
