# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""Composition: core, build and runtime capabilities as objects of their own.

One class for all is shorter; separate ones keep what only a builder needs out of what is deployed. An object made for
the RUNTIME phase needs no build capability at all. The contract asks ``attach_to_context`` of the runtime capability
for a clone of the *whole* plugin, so that capability must know the plugin it belongs to.
"""

from __future__ import annotations

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array


class CelsiusCore(dt.IPluginV3OneCore):
    """Who the plugin is."""

    plugin_name, plugin_version, plugin_namespace = "Celsius", "1", ""


class CelsiusBuild(dt.IPluginV3OneBuild):
    """What it declares and accepts."""

    num_outputs = 1
    timing_cache_id = metadata_string = "from Fahrenheit"

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprs):
        return [dt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc, first = in_out[pos].desc, in_out[0].desc
        same = desc.type == first.type and desc.format == first.format  # position 0 is always decided before others
        return same and desc.type in (dt.float32, dt.float16) and desc.format == dt.TensorFormat.LINEAR

    def configure_plugin(self, inputs, outputs):
        pass


class CelsiusRuntime(dt.IPluginV3OneRuntime):
    """How it computes."""

    def __init__(self, plugin):
        super().__init__()
        self.plugin = plugin

    def on_shape_change(self, inputs, outputs):
        pass

    def set_tactic(self, tactic):
        pass

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        y[...] = (x - 32) * (5 / 9)

    def attach_to_context(self, context):
        return self.plugin.clone()

    def get_fields_to_serialize(self):
        return dt.PluginFieldCollection()


class CelsiusPlugin(dt.IPluginV3):
    """The plugin: it only hands out its parts."""

    def __init__(self, phase):
        super().__init__()
        self.phase = phase
        self.parts = {
            dt.PluginCapabilityType.CORE: CelsiusCore(),
            dt.PluginCapabilityType.BUILD: CelsiusBuild() if phase == dt.TensorRTPhase.BUILD else None,
            dt.PluginCapabilityType.RUNTIME: CelsiusRuntime(self),
        }

    def get_capability_interface(self, kind):
        return self.parts[kind]

    def clone(self):
        return CelsiusPlugin(self.phase)


@dt.register_plugin
class CelsiusCreator(dt.IPluginCreatorV3One):
    """Makes the plugin for the phase it is asked for."""

    name, plugin_version, plugin_namespace, field_names = "Celsius", "1", "", dt.PluginFieldCollection()

    def create_plugin(self, name, field_collection, phase):
        return CelsiusPlugin(phase)


def main() -> None:
    creator = dt.get_plugin_registry().get_creator("Celsius", "1")
    plugin = creator.create_plugin("convert", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)

    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("fahrenheit", dt.float16, (5,))
    layer = network.add_plugin_v3([x], [], plugin)
    layer.get_output(0).name = "celsius"
    network.mark_output(layer.get_output(0))
    plan = builder.build_serialized_network(network, builder.create_builder_config())

    engine = dt.Runtime().deserialize_cuda_engine(plan)
    print(engine)
    fahrenheit = np.array([-40, 14, 32, 50, 212], np.float16)
    celsius = engine(fahrenheit)
    print(f"{fahrenheit.tolist()} -> {celsius.tolist()}")
    np.testing.assert_allclose(celsius, [-40, -10, 0, 10, 100], atol=0.1)


if __name__ == "__main__":
    main()
