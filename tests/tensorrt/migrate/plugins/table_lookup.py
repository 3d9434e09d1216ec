"""A lookup table made in initialize and dropped in terminate: IPluginV2DynamicExt, struct bytes, a workspace."""

import struct

import numpy as np
import tensorrt as trt

from dovetail.plugin import as_array


class TablePlugin(trt.IPluginV2DynamicExt):
    """y = table[x], where table[i] = scale * i * i."""

    FORMAT = "<if"

    def __init__(self, size: int, scale: float) -> None:
        super().__init__()
        self.size, self.scale = size, scale
        self.num_outputs = 1
        self.plugin_type = "Table"
        self.plugin_version = "2"
        self.table = None

    def initialize(self):
        self.table = self.scale * np.arange(self.size, dtype=np.float32) ** 2

    def terminate(self):
        self.table = None

    def get_output_datatype(self, index, input_types):
        return trt.float32

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        return inputs[0]

    def supports_format_combination(self, pos, in_out, num_inputs):
        wanted = trt.int32 if pos < num_inputs else trt.float32
        return in_out[pos].format == trt.TensorFormat.LINEAR and in_out[pos].type == wanted

    def configure_plugin(self, inputs, outputs):
        pass

    def get_workspace_size(self, inputs, outputs):
        # one number for each index, cut to the table
        return int(np.prod(inputs[0].dims)) * 4

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = as_array(inputs[0], input_desc[0])
        index = as_array(workspace, input_desc[0]) if x.size else x
        np.clip(x, 0, self.size - 1, out=index)
        as_array(outputs[0], output_desc[0])[...] = self.table[index]

    def get_serialization_size(self):
        return struct.calcsize(self.FORMAT)

    def serialize(self):
        return struct.pack(self.FORMAT, self.size, self.scale)

    def destroy(self):
        del self.size

    def clone(self):
        twin = TablePlugin(self.size, self.scale)
        twin.plugin_namespace = self.plugin_namespace
        if self.table is not None:
            twin.initialize()
        return twin


class TableCreator(trt.IPluginCreator):
    def __init__(self):
        super().__init__()
        self.name = "Table"
        self.plugin_version = "2"
        self.field_names = trt.PluginFieldCollection(
            [
                trt.PluginField("size", np.array([8], np.int32), trt.PluginFieldType.INT32),
                trt.PluginField("scale", np.array([1], np.float32), trt.PluginFieldType.FLOAT32),
            ]
        )

    def create_plugin(self, name, field_collection):
        values = {field.name: field.data[0] for field in field_collection}
        return TablePlugin(int(values.get("size", 8)), float(values.get("scale", 1.0)))

    def deserialize_plugin(self, name, serialized_plugin):
        return TablePlugin(*struct.unpack(TablePlugin.FORMAT, serialized_plugin))
