"""A shift for each channel, from weights; float or half by position: IPluginV2IOExt with bytes of NumPy."""

import numpy as np
import tensorrt as trt

from dovetail.plugin import as_array


class ChannelShift(trt.IPluginV2IOExt):
    def __init__(self, shift, dims=(), dtype=trt.float32):
        trt.IPluginV2IOExt.__init__(self)
        self.plugin_type, self.plugin_version, self.plugin_namespace = "ChannelShift", "1", ""
        self.num_outputs = 1
        self.shift = np.asarray(shift, np.float32)
        self.dims = tuple(dims)
        self.dtype = dtype
        self.table = None

    def get_output_shape(self, index, input_shapes):
        return trt.Dims(input_shapes[0])

    def get_output_data_type(self, index, input_types):
        return input_types[0]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos]
        if desc.format != trt.TensorFormat.LINEAR or desc.type not in (trt.float32, trt.float16):
            return False
        return len(in_out[0].dims) == 3 and desc.type == in_out[0].type

    def configure_plugin(self, in_, out):
        self.dims = tuple(in_[0].dims)
        self.dtype = in_[0].type

    def initialize(self):
        channels = self.dims[0]
        self.table = np.resize(self.shift, channels).reshape(1, channels, 1, 1).astype(trt.nptype(self.dtype))
        return 0

    def terminate(self):
        self.table = None

    def execute_async(self, batch_size, inputs, outputs, workspace, stream_handle):
        desc = trt.PluginTensorDesc()
        desc.dims, desc.type, desc.format = (batch_size, *self.dims), self.dtype, trt.TensorFormat.LINEAR
        np.add(as_array(inputs[0], desc), self.table, out=as_array(outputs[0], desc))
        return 0

    def serialize(self):
        head = np.array([int(self.dtype), len(self.dims), *self.dims], np.int32)
        return head.tobytes() + self.shift.tobytes()

    def clone(self):
        twin = ChannelShift(self.shift, self.dims, self.dtype)
        twin.table = self.table
        return twin


class ChannelShiftCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "ChannelShift", "1", ""
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("shift", np.zeros(1, np.float32), trt.PluginFieldType.FLOAT32)]
        )

    def create_plugin(self, name, fc):
        found = [field.data.copy() for field in fc if field.name == "shift"]
        return ChannelShift(found[0] if found else [1.0])

    def deserialize_plugin(self, name, data):
        dtype, rank = np.frombuffer(data, np.int32, 2)
        dims = np.frombuffer(data, np.int32, rank, 8)
        return ChannelShift(
            np.frombuffer(data, np.float32, -1, 8 + 4 * rank), [int(d) for d in dims], trt.DataType(int(dtype))
        )
