# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""Two tactics: the builder times both ways to compute a layer, and a timing cache remembers.

``get_valid_tactics`` offers positive numbers; the builder sets each with ``set_tactic``, runs it, checks that the
results agree, and keeps the faster. A plugin opts in to the timing cache with a ``timing_cache_id``. Builds with
that cache then run nothing, and their plans are equal byte for byte.
"""

from __future__ import annotations

import copy

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array


class DistancePlugin(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """Squared distances between all points and all centres: (n, d), (m, d) -> (n, m)."""

    plugin_name, plugin_version, plugin_namespace, num_outputs = "Distance", "1", "", 1
    timing_cache_id = ""  # shapes, types and formats are part of every key; put attributes here, if there are any
    tactic, runs = 0, 0

    def get_capability_interface(self, kind):
        return self

    def clone(self):
        return copy.copy(self)  # carries the tactic, which is set before the clones of contexts are made

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprs):
        return [dt.DimsExprs([inputs[0][0], inputs[1][0]])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.format == dt.TensorFormat.LINEAR and in_out[pos].desc.type == dt.float32

    def ignore(self, *told):
        pass  # nothing depends on what these are told

    configure_plugin = on_shape_change = ignore

    def get_valid_tactics(self):
        return [1, 2]

    def set_tactic(self, tactic):
        self.tactic = tactic

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        DistancePlugin.runs += 1
        (points, centres), out = map(as_array, inputs, input_desc), as_array(outputs[0], output_desc[0])
        if self.tactic == 1:  # all differences, as the definition says
            np.sum((points[:, None] - centres[None]) ** 2, axis=-1, out=out)
        else:  # |a - b|^2 = |a|^2 - 2ab + |b|^2: one matrix product
            np.matmul(points, -2 * centres.T, out=out)
            out += (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        return dt.PluginFieldCollection()


@dt.register_plugin
class DistanceCreator(dt.IPluginCreatorV3One):
    """Makes the plugin; it has no fields."""

    name, plugin_version, plugin_namespace, field_names = "Distance", "1", "", dt.PluginFieldCollection()

    def create_plugin(self, name, field_collection, phase):
        return DistancePlugin()


def build(cache: bytes, *flags: dt.BuilderFlag) -> tuple[bytes, bytes]:
    """The plan, and the timing cache after the build."""
    builder = dt.Builder()
    network = builder.create_network()
    inputs = [network.add_input("points", dt.float32, (256, 32)), network.add_input("centres", dt.float32, (64, 32))]
    network.mark_output(network.add_plugin_v3(inputs, [], DistancePlugin()).get_output(0))
    config = builder.create_builder_config()
    config.set_timing_cache(config.create_timing_cache(cache))
    for flag in flags:
        config.set_flag(flag)
    return builder.build_serialized_network(network, config), config.get_timing_cache().serialize()


def main() -> None:
    first, cache = build(b"")
    print(f"first build: {DistancePlugin.runs} runs to measure")
    assert DistancePlugin.runs > 2

    DistancePlugin.runs = 0
    second, _ = build(cache, dt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    third, _ = build(cache, dt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    print(f"two builds with the cache: {DistancePlugin.runs} runs, plans equal: {second == third}")
    assert DistancePlugin.runs == 2  # nothing is timed, and each build runs its choice once
    assert second == third

    engine = dt.Runtime().deserialize_cuda_engine(first)
    for way in engine.manifest.tuning[0].candidates:
        print(f"  tactic {way.tactic}: {way.time_us:8.1f} us  {'<- chosen' if way.chosen else ''}")
    points, centres = (np.random.default_rng(n).random((n, 32), np.float32) for n in (256, 64))
    expected = ((points[:, None] - centres[None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(engine(points, centres), expected, rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    main()
