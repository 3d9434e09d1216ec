# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""Shared weights: one download that all plugins of all contexts use, freed when the last of them is gone.

A resource lives in the registry under a key. The first ``acquire_plugin_resource`` keeps a *clone* of what it is
given, so ``clone`` is where to initialise; every later call returns that same object and counts one more user. The
last ``release_plugin_resource`` calls ``release``. A plugin has no detach: it lets go in ``destroy``.
"""

from __future__ import annotations

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array

KEY = "weights of the projection"


class SharedWeights(dt.IPluginResource):
    """A matrix that is costly to get."""

    downloads, releases = 0, 0

    def __init__(self):
        super().__init__()
        self.matrix = None  # the constructor makes nothing: only clones are kept

    def clone(self):
        twin = SharedWeights()
        twin.matrix = np.random.default_rng(7).random((64, 64), np.float32)  # stands for the download
        SharedWeights.downloads += 1
        return twin

    def release(self):
        self.matrix = None
        SharedWeights.releases += 1


class ProjectPlugin(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """y = x @ W, with W from the registry."""

    plugin_name, plugin_version, plugin_namespace, num_outputs = "Project", "1", "", 1

    def __init__(self):
        super().__init__()
        self.weights = None

    def get_capability_interface(self, kind):
        return self

    def clone(self):
        return ProjectPlugin()  # a clone is a new user: it acquires for itself and owes its own release

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprs):
        return [dt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.format == dt.TensorFormat.LINEAR and in_out[pos].desc.type == dt.float32

    def ignore(self, *told):
        pass  # nothing depends on what these are told

    configure_plugin = set_tactic = ignore

    def on_shape_change(self, inputs, outputs):
        if self.weights is None:  # called before the first run and at every change of shapes; acquire once
            self.weights = dt.get_plugin_registry().acquire_plugin_resource(KEY, SharedWeights())

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        np.matmul(x, self.weights.matrix, out=y)

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        return dt.PluginFieldCollection()  # the weights are not in the plan

    def destroy(self):
        if self.weights is not None:
            self.weights = None
            dt.get_plugin_registry().release_plugin_resource(KEY)


@dt.register_plugin
class ProjectCreator(dt.IPluginCreatorV3One):
    """Makes the plugin; it has no fields."""

    name, plugin_version, plugin_namespace, field_names = "Project", "1", "", dt.PluginFieldCollection()

    def create_plugin(self, name, field_collection, phase):
        return ProjectPlugin()


def main() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    tensor = network.add_input("x", dt.float32, (8, 64))
    for _ in range(3):
        tensor = network.add_plugin_v3([tensor], [], ProjectPlugin()).get_output(0)
    network.mark_output(tensor)
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    print(f"built: {SharedWeights.downloads} download")  # by the run of each layer that ends every build
    SharedWeights.downloads = SharedWeights.releases = 0

    x = np.random.default_rng(0).random((8, 64), np.float32)
    contexts = [engine.create_execution_context() for _ in range(2)]
    results = [context.run([x])[0] for context in contexts]
    print(f"3 layers in 2 contexts ran: {SharedWeights.downloads} download, {SharedWeights.releases} releases")
    assert (SharedWeights.downloads, SharedWeights.releases) == (1, 0)
    contexts[0].close()
    assert SharedWeights.releases == 0, "three plugins of the second context still use it"
    contexts[1].close()
    assert SharedWeights.releases == 1
    print("both contexts closed: released")

    matrix = SharedWeights().clone().matrix
    for result in results:
        np.testing.assert_allclose(result, x @ matrix @ matrix @ matrix, rtol=1e-4)


if __name__ == "__main__":
    main()
