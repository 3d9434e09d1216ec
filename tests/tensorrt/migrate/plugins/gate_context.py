"""A dynamic plugin with its context and its bounds: attach, detach, max, status codes, class attributes."""

import numpy as np
import tensorrt as trt

from dovetail.plugin import as_array


class Gate(trt.IPluginV2DynamicExt):
    """y = x where x is above the threshold, else 0, row block by row block."""

    plugin_type = "Gate"
    plugin_version = "1"
    plugin_namespace = ""
    num_outputs = 1

    def __init__(self, threshold=0.0):
        trt.IPluginV2DynamicExt.__init__(self)
        self.threshold = threshold
        self.allocator = None
        self.block = 1
        self.buffer = 0

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        return trt.DimsExprs([inputs[0][i] for i in range(len(inputs[0]))])

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].type == trt.float32 and in_out[pos].format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inp, out):
        self.block = max(1, inp[0].max[0] // 2)

    def initialize(self):
        if self.threshold != self.threshold:
            return 1
        return 0

    def attach_to_context(self, cudnn, cublas, allocator):
        self.allocator = allocator
        self.buffer = allocator.allocate(64, 256, 0)

    def detach_from_context(self):
        self.allocator.deallocate(self.buffer)
        self.allocator, self.buffer = None, 0

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        assert self.buffer, "not attached"
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        for start in range(0, x.shape[0], self.block):
            rows = slice(start, start + self.block)
            np.multiply(x[rows], x[rows] > self.threshold, out=y[rows])

    def serialize(self):
        return np.float64(self.threshold).tobytes()

    def clone(self):
        return Gate(self.threshold)


class GateCreator(trt.IPluginCreator):
    name = "Gate"
    plugin_version = "1"

    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("threshold", np.array([0], np.float32), trt.PluginFieldType.FLOAT32)]
        )

    def create_plugin(self, name, fc):
        return Gate(*(float(f.data[0]) for f in fc if f.name == "threshold"))

    def deserialize_plugin(self, name, data):
        return Gate(float(np.frombuffer(data)[0]))
