# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""Pad: a custom layer for shapes that vary, from the class to a plan that is loaded and run.

The plugin is one class that has all three capabilities: core (who it is), build (what it accepts and declares) and
runtime (how it computes). Its creator makes it again when the plan is loaded. Written out in full, as the contract has
it: change the one import and the class runs in other engines of the same contract.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array


class PadPlugin(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """Puts every image of a batch into the corner of a canvas of zeros, ``size`` by ``size``."""

    def __init__(self, size):
        dt.IPluginV3.__init__(self)
        dt.IPluginV3OneCore.__init__(self)
        dt.IPluginV3OneBuild.__init__(self)
        dt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = "Pad", "1", ""
        self.num_outputs = 1
        self.size = size

    def get_capability_interface(self, kind):
        return self  # one object is all three

    def clone(self):
        twin = PadPlugin(self.size)
        twin.__dict__.update(self.__dict__)  # a clone carries everything, what was set later included
        return twin

    # build

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprs):
        batch, channels, size = inputs[0][0], inputs[0][1], exprs.constant(self.size)
        return [dt.DimsExprs([batch, channels, size, size])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.format == dt.TensorFormat.LINEAR and in_out[pos].desc.type == dt.float32

    def configure_plugin(self, inputs, outputs):
        pass  # told min, opt and max of the profile; nothing here depends on them

    # runtime

    def on_shape_change(self, inputs, outputs):
        pass  # told the shapes of the runs to come

    def set_tactic(self, tactic):
        pass  # always 0: there is only one way to pad

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        height, width = x.shape[2:]
        y[...] = 0
        y[:, :, :height, :width] = x

    def attach_to_context(self, context):
        return self.clone()  # every execution context gets an object of its own

    def get_fields_to_serialize(self):
        size = np.array([self.size], np.int32)
        return dt.PluginFieldCollection([dt.PluginField("size", size, dt.PluginFieldType.INT32)])


class PadCreator(dt.IPluginCreatorV3One):
    """Makes the plugin from fields: for a network when building, for a plan when loading."""

    def __init__(self):
        dt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = "Pad", "1", ""
        self.field_names = dt.PluginFieldCollection([dt.PluginField("size", None, dt.PluginFieldType.INT32)])

    def create_plugin(self, name, field_collection, phase):
        return PadPlugin(size=int(field_collection[0].data[0]))  # copied: the field's memory goes after this call


def main() -> None:
    dt.get_plugin_registry().register_creator(PadCreator())

    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1, 3, -1, -1))
    layer = network.add_plugin_v3([x], [], PadPlugin(size=32))
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))

    profile = builder.create_optimization_profile()
    profile.set_shape("x", min=(1, 3, 8, 8), opt=(4, 3, 24, 24), max=(8, 3, 32, 32))
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pad.plan")
        path.write_bytes(plan)
        with dt.load(path) as engine:
            print(engine)
            for shape in ((1, 3, 8, 8), (4, 3, 24, 20), (8, 3, 32, 32)):
                image = np.random.default_rng(0).random(shape, np.float32)
                expected = np.zeros((*shape[:2], 32, 32), np.float32)
                expected[:, :, : shape[2], : shape[3]] = image
                np.testing.assert_array_equal(engine(image), expected)
                print(f"{shape} -> {expected.shape}")


if __name__ == "__main__":
    main()
