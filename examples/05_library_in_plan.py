# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""A plugin library carried in a plan: one file that has the weights, the steps, and the code of the custom layer.

A library is a Python file with ``get_creators()``; this file is one. ``plugins_to_serialize`` puts it into the plan.
A plan is data and always safe to load, but code is not: such a plan is refused unless the caller allows host code.
The library then belongs to the engine alone, so that two engines that carry it can live side by side.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array


class SoftsignPlugin(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """y = x / (softness + |x|)."""

    plugin_name, plugin_version, plugin_namespace, num_outputs = "SmoothSign", "1", "acme", 1

    def __init__(self, softness):
        super().__init__()
        self.softness = softness

    def get_capability_interface(self, kind):
        return self

    def clone(self):
        return copy.copy(self)

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprs):
        return [dt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.format == dt.TensorFormat.LINEAR and in_out[pos].desc.type == dt.float32

    def ignore(self, *told):
        pass  # nothing depends on what these are told

    configure_plugin = on_shape_change = set_tactic = ignore

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        np.divide(x, np.float32(self.softness) + np.abs(x), out=y)

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        softness = np.array([self.softness], np.float32)
        return dt.PluginFieldCollection([dt.PluginField("softness", softness, dt.PluginFieldType.FLOAT32)])


class SoftsignCreator(dt.IPluginCreatorV3One):
    """Makes the plugin from its one field."""

    name, plugin_version, plugin_namespace = "SmoothSign", "1", "acme"
    field_names = dt.PluginFieldCollection([dt.PluginField("softness", None, dt.PluginFieldType.FLOAT32)])

    def create_plugin(self, name, field_collection, phase):
        return SoftsignPlugin(float(field_collection[0].data[0]))


def get_creators():
    """What makes this file a plugin library."""
    return [SoftsignCreator()]


def main() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (2, 8))
    network.mark_output(network.add_plugin_v3([x], [], SoftsignPlugin(0.5)).get_output(0))
    config = builder.create_builder_config()
    config.plugins_to_serialize = [__file__]
    plan = builder.build_serialized_network(network, config)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "softsign.plan")
        path.write_bytes(plan)
        try:
            dt.load(path)
        except dt.PlanTrustError as error:
            print(error)
        else:
            raise AssertionError("a plan with code was loaded although nobody allowed it")

        x = np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)
        with dt.load(path, host_code=True) as one, dt.load(path, host_code=True) as two:
            np.testing.assert_allclose(one(x), x / (np.float32(0.5) + np.abs(x)), rtol=1e-6)
            np.testing.assert_array_equal(one(x), two(x))
    assert dt.get_plugin_registry().find_creator("SmoothSign", "1", "acme") is None
    print("allowed: two engines ran the code they carry, and took it with them")


if __name__ == "__main__":
    main()
