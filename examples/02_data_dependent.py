# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""Bar: an output whose shape depends on a shape input's value and on the data itself.

``X`` holds images of three channels and ``S`` how often to repeat; ``Y`` gets the pixels that are lit in any image:

    Y[repeat, channel, image, k]     repeat < value of S (a shape input),  channel < 3,  image < X.shape[0],
                                     k < number of lit pixels: known only when enqueue has run, and written by it into
                                     a second output, the size tensor

The run uses the low-level API: addresses, and an output allocator that is asked for memory once the size is known.
"""

from __future__ import annotations

import copy

import numpy as np

import dovetail as dt
from dovetail.plugin import address_of, as_array, write_scalar


class BarPlugin(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """Gathers lit pixels; output 1 is the size tensor of output 0."""

    plugin_name, plugin_version, plugin_namespace, num_outputs = "Bar", "1", "", 2

    def get_capability_interface(self, kind):
        return self

    def clone(self):
        return copy.copy(self)

    def get_output_data_types(self, input_types):
        return [input_types[0], dt.int32]

    def get_output_shapes(self, inputs, shape_inputs, exprs):
        images, _, height, width = inputs[0]
        most = exprs.operation(dt.DimensionOperation.PROD, height, width)
        usual = exprs.operation(dt.DimensionOperation.FLOOR_DIV, most, exprs.constant(2))
        lit = exprs.declare_size_tensor(1, usual, most)  # tuned for half of the pixels, memory for all of them
        repeats = shape_inputs[0][0]  # the value of S looks like a dimension
        return [dt.DimsExprs([repeats, exprs.constant(3), images, lit]), dt.DimsExprs(0)]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        allowed = ((dt.float32, dt.float16), (in_out[0].desc.type,), (dt.int32,))[pos]  # X, Y, size
        return desc.format == dt.TensorFormat.LINEAR and desc.type in allowed

    def ignore(self, *told):
        pass  # nothing depends on what these are told

    configure_plugin = on_shape_change = set_tactic = ignore

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = as_array(inputs[0], input_desc[0])
        lit = (x > 0).any(axis=(0, 1))
        repeats, channels, images, _ = output_desc[0].dims  # the last one is -1: only we know it
        shape = (repeats, channels, images, int(lit.sum()))
        as_array(outputs[0], output_desc[0], shape=shape)[...] = x[:, :, lit].transpose(1, 0, 2)
        write_scalar(outputs[1], dt.int32, shape[3])

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        return dt.PluginFieldCollection()


class BarCreator(dt.IPluginCreatorV3One):
    """Makes the plugin; it has no fields."""

    name, plugin_version, plugin_namespace, field_names = "Bar", "1", "", dt.PluginFieldCollection()

    def create_plugin(self, name, field_collection, phase):
        return BarPlugin()


class Memory(dt.IOutputAllocator):
    """Memory for one output, made when its size is known."""

    def reallocate_output(self, tensor_name, memory, size, alignment):
        self.bytes = np.empty(size, np.uint8)
        return address_of(self.bytes)

    def notify_shape(self, tensor_name, shape):
        self.shape = tuple(shape)


def main() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x, s = network.add_input("X", dt.float32, (-1, 3, 8, 8)), network.add_input("S", dt.int32, (1,))
    layer = network.add_plugin_v3([x], [s], BarPlugin())
    layer.get_output(0).name = "Y"
    network.mark_output(layer.get_output(0))
    profile = builder.create_optimization_profile()
    profile.set_shape("X", (1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
    profile.set_shape_input("S", (1,), (2,), (4,))
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)

    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(BarCreator())
    context = runtime.deserialize_cuda_engine(plan).create_execution_context()
    images = np.random.default_rng(0).normal(-1.0, 1.0, (2, 3, 8, 8)).astype(np.float32)
    repeats, output = np.array([3], np.int32), Memory()
    context.set_input_shape("X", images.shape)
    context.set_tensor_address("X", address_of(images))
    context.set_tensor_address("S", address_of(repeats))
    context.set_output_allocator("Y", output)
    print("before the run:", tuple(context.get_tensor_shape("Y")), "at most", context.get_max_output_size("Y"), "bytes")
    assert tuple(context.get_tensor_shape("Y")) == (3, 3, 2, -1)
    assert context.execute_async_v3(0)
    print("after the run: ", output.shape, "in", output.bytes.nbytes, "bytes")

    pixels = images[:, :, (images > 0).any(axis=(0, 1))]
    expected = np.broadcast_to(pixels.transpose(1, 0, 2), (3, 3, 2, pixels.shape[2]))
    np.testing.assert_array_equal(output.bytes.view(np.float32).reshape(output.shape), expected)


if __name__ == "__main__":
    main()
