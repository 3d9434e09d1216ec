"""Two layers over one base class, with hooks in the base and in what derives from it: IPluginV2DynamicExt."""

import json

import numpy as np
import tensorrt as trt

from dovetail.plugin import as_array


class RowPlugin(trt.IPluginV2DynamicExt):
    """What layers over rows have in common."""

    plugin_version = "1"
    plugin_namespace = ""

    def __init__(self, **parameters):
        super().__init__()
        self.num_outputs = 1
        self.parameters = parameters
        self.rows = 0

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        return trt.DimsExprs(inputs[0])

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].type == trt.float32 and in_out[pos].format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inp, out):
        self.rows = inp[0].desc.dims[0]

    def compute(self, x):
        raise NotImplementedError

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = as_array(inputs[0], input_desc[0])
        assert self.rows == len(x)
        as_array(outputs[0], output_desc[0])[...] = self.compute(x)

    def serialize(self):
        return json.dumps(self.parameters)

    def clone(self):
        twin = type(self)(**self.parameters)
        twin.__dict__.update(self.__dict__)
        return twin


class ScaledNorm(RowPlugin):
    """x / max(|x|) * scale, the scale made in initialize."""

    plugin_type = "ScaledNorm"

    def __init__(self, scale=1.0):
        super().__init__(scale=scale)
        self.factor = None

    def initialize(self):
        self.factor = np.float32(self.parameters["scale"])

    def terminate(self):
        self.factor = None

    def configure_plugin(self, inp, out):
        super().configure_plugin(inp, out)
        self.width = inp[0].desc.dims[-1]

    def get_workspace_size(self, inp, out):
        return int(np.prod(inp[0].dims)) * 4

    def compute(self, x):
        assert x.shape[-1] == self.width
        return x / np.abs(x).max(-1, keepdims=True) * self.factor


class ScaledNormCreator(trt.IPluginCreator):
    def __init__(self):
        super().__init__()
        self.name, self.plugin_version = ScaledNorm.plugin_type, "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("scale", np.array([1], np.float32), trt.PluginFieldType.FLOAT32)]
        )

    def create_plugin(self, name, fc):
        return ScaledNorm(**{field.name: float(field.data[0]) for field in fc})

    def deserialize_plugin(self, name, data):
        return ScaledNorm(**json.loads(data))
