"""Two outputs of different types and ranks, asked by index: IPluginV2DynamicExt, names imported one by one."""

import copy

import numpy as np
from tensorrt import (
    DataType,
    DimsExprs,
    IPluginCreator,
    IPluginV2DynamicExt,
    PluginField,
    PluginFieldCollection,
    PluginFieldType,
    TensorFormat,
)

from dovetail.plugin import as_array


class MinMax(IPluginV2DynamicExt):
    """The largest value of each row, and where it is."""

    num_outputs = 2
    plugin_type = "MinMax"
    plugin_version = "1"
    plugin_namespace = "acme"

    def __init__(self, keep_dims: bool = False) -> None:
        IPluginV2DynamicExt.__init__(self)
        self.keep_dims = keep_dims

    def get_output_datatype(self, index, input_types):
        if index == 0:
            return input_types[0]
        return DataType.INT32

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        dims = inputs[0]
        if self.keep_dims:
            dims[len(dims) - 1] = exprBuilder.constant(1)
            return dims
        return DimsExprs([dims[i] for i in range(len(dims) - 1)])

    def supports_format_combination(self, pos, in_out, num_inputs):
        if any(desc.format != TensorFormat.LINEAR for desc in in_out[: pos + 1]):
            return False
        if pos == 2:
            return in_out[2].type == DataType.INT32
        return in_out[pos].type == DataType.FLOAT

    def configure_plugin(self, in_, out):
        self.row_length = in_[0].desc.dims[-1]
        for desc in out:
            self.out_rank = len(desc.desc.dims)

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = as_array(inputs[0], input_desc[0])
        assert x.shape[-1] == self.row_length, (x.shape, self.row_length)
        values, indices = (as_array(o, d) for o, d in zip(outputs, output_desc, strict=True))
        values[...] = x.max(-1, keepdims=self.keep_dims)
        indices[...] = x.argmax(-1, keepdims=self.keep_dims)

    def serialize(self):
        return bytes([self.keep_dims])

    def clone(self):
        return copy.copy(self)


class MinMaxCreator(IPluginCreator):
    def __init__(self):
        IPluginCreator.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "MinMax", "1", "acme"
        self.field_names = PluginFieldCollection(
            [PluginField("keep_dims", np.array([0], np.int32), PluginFieldType.INT32)]
        )

    def create_plugin(self, name, fc):
        for field in fc:
            if field.name == "keep_dims":
                return MinMax(bool(field.data[0]))
        return MinMax()

    def deserialize_plugin(self, name, data):
        return MinMax(bool(data[0]))
