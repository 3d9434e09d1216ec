# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""Pool with INT8: a custom layer that takes quantized tensors, and the two ways they get their scales.

1. Strongly typed: the network says INT8 itself, with quantize and dequantize layers around the plugin.
2. Weakly typed: the network is FP32, the builder may choose INT8, and a calibrator finds ranges from sample batches.

Either way the plugin reads the scale in its descriptors: a quantized number q stands for q * scale, and -1 means that
there is no scale. The maximum of quantized numbers is the quantized maximum, so this layer needs the scales only where
its input and its output have different ones.
"""

from __future__ import annotations

import copy
import time

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array


class PoolPlugin(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """Max pooling over windows of ``kernel`` by ``kernel``, ``stride`` apart."""

    plugin_name, plugin_version, plugin_namespace, num_outputs = "Pool", "1", "", 1
    types = (dt.float32, dt.float16, dt.bfloat16, dt.fp8, dt.int8)
    scales = seen = (-1.0, -1.0)

    def __init__(self, kernel, stride):
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def get_capability_interface(self, kind):
        return self

    def clone(self):
        return copy.copy(self)

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprs):
        def windows(size):  # (size - kernel) // stride + 1
            rest = exprs.operation(dt.DimensionOperation.SUB, size, exprs.constant(self.kernel))
            steps = exprs.operation(dt.DimensionOperation.FLOOR_DIV, rest, exprs.constant(self.stride))
            return exprs.operation(dt.DimensionOperation.SUM, steps, exprs.constant(1))

        return [dt.DimsExprs([inputs[0][0], inputs[0][1], windows(inputs[0][2]), windows(inputs[0][3])])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == dt.TensorFormat.LINEAR and desc.type in self.types and desc.type == in_out[0].desc.type

    def configure_plugin(self, inputs, outputs):
        self.scales = (inputs[0].desc.scale, outputs[0].desc.scale)  # kept in the plan by the fields below

    def on_shape_change(self, inputs, outputs):
        PoolPlugin.seen = (inputs[0].scale, outputs[0].scale)  # for the assertion at the end

    def set_tactic(self, tactic):
        pass

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        largest = max_pool(x, self.kernel, self.stride)
        if x.dtype == np.int8 and self.scales[0] != self.scales[1]:
            steps = np.rint(largest.astype(np.float32) * (self.scales[0] / self.scales[1]))
            largest = np.clip(steps, -128, 127).astype(np.int8)
        y[...] = largest
        if x.dtype != np.int8:
            time.sleep(0.002)  # stands for hardware on which INT8 is faster, so that the builder prefers it here

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        sizes = dt.PluginField("sizes", np.array([self.kernel, self.stride], np.int32), dt.PluginFieldType.INT32)
        scales = dt.PluginField("scales", np.array(self.scales, np.float32), dt.PluginFieldType.FLOAT32)
        return dt.PluginFieldCollection([sizes, scales])


@dt.register_plugin
class PoolCreator(dt.IPluginCreatorV3One):
    """Makes the plugin when a plan is loaded, with the scales it was built for."""

    name, plugin_version, plugin_namespace, field_names = "Pool", "1", "", dt.PluginFieldCollection()

    def create_plugin(self, name, field_collection, phase):
        sizes, scales = (field.data.copy() for field in field_collection)
        plugin = PoolPlugin(*sizes.tolist())
        plugin.scales = tuple(scales.tolist())
        return plugin


def max_pool(x, kernel, stride):
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    return windows.max(axis=(4, 5))


def build_strongly_typed(shape, scale):
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, shape)
    factor = network.add_constant((), np.array(scale, np.float32)).get_output(0)
    quantized = network.add_quantize(x, factor, dt.int8).get_output(0)
    pooled = network.add_plugin_v3([quantized], [], PoolPlugin(kernel=3, stride=2)).get_output(0)
    network.mark_output(network.add_dequantize(pooled, factor, dt.float32).get_output(0))
    return builder.build_engine_with_config(network, builder.create_builder_config())


def build_weakly_typed(shape, batches):
    builder = dt.Builder()
    network = builder.create_network(strongly_typed=False)
    x = network.add_input("x", dt.float32, shape)
    network.mark_output(network.add_plugin_v3([x], [], PoolPlugin(kernel=3, stride=2)).get_output(0))
    config = builder.create_builder_config()
    config.set_flag(dt.BuilderFlag.INT8)
    config.int8_calibrator = dt.ArrayCalibrator([{"x": batch} for batch in batches])
    return builder.build_engine_with_config(network, config)


def main() -> None:
    shape, rng = (2, 3, 17, 17), np.random.default_rng(0)
    image, *batches = (rng.normal(size=shape).astype(np.float32) for _ in range(9))
    for name, engine in (
        ("strongly typed, Q/DQ", build_strongly_typed(shape, scale=4 / 127)),
        ("weakly typed, calibrated", build_weakly_typed(shape, batches)),
    ):
        result, (before, after) = engine(image), PoolPlugin.seen
        print(f"{name}: scale {before:.4f} -> {after:.4f}")
        print("  steps:", ", ".join(step.name for step in engine.manifest.programs[0].steps))
        assert -1.0 not in (before, after)
        # Values beyond the range are clipped, all others are off by at most half a step on each side.
        expected = np.clip(max_pool(image, kernel=3, stride=2), -127 * min(before, after), 127 * min(before, after))
        assert np.abs(result - expected).max() <= (before + after) / 2 * 1.001


if __name__ == "__main__":
    main()
