# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""A KV cache: attention that appends to its own inputs, in place, over many steps and without a copy.

Outputs ``keys_out`` and ``values_out`` *are* the inputs ``keys`` and ``values``: ``get_aliased_input`` says so, and a
preview feature allows it. The caches are laid out (time, head, feature), so that growing by one step leaves everything
where it is: the caller reserves the memory once, binds it once, and each step only says that it is one longer.
"""

from __future__ import annotations

import copy

import numpy as np

import dovetail as dt
from dovetail.plugin import address_of, as_array

HEADS, FEATURES, LONGEST = 4, 16, 64


class CachedAttention(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuildV2, dt.IPluginV3OneRuntime):
    """(query, key, value, keys, values) -> (result, keys, values), with key and value as the last of the history."""

    plugin_name, plugin_version, plugin_namespace, num_outputs = "CachedAttention", "1", "", 3

    def get_capability_interface(self, kind):
        return self

    def clone(self):
        return copy.copy(self)

    def get_output_data_types(self, input_types):
        return [dt.float32] * 3

    def get_output_shapes(self, inputs, shape_inputs, exprs):
        return [dt.DimsExprs(inputs[0]), dt.DimsExprs(inputs[3]), dt.DimsExprs(inputs[4])]

    def get_aliased_input(self, output_index):
        return (-1, 3, 4)[output_index]  # result has memory of its own, the caches have that of their inputs

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.format == dt.TensorFormat.LINEAR and in_out[pos].desc.type == dt.float32

    def ignore(self, *told):
        pass  # nothing depends on what these are told

    configure_plugin = on_shape_change = set_tactic = ignore

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        query, key, value, keys, values = map(as_array, inputs, input_desc)
        keys[-1], values[-1] = key, value  # writing inputs is allowed only because they are aliased
        scores = np.einsum("hf,thf->ht", query, keys) / np.sqrt(np.float32(FEATURES))
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        np.einsum("ht,thf->hf", weights, values, out=as_array(outputs[0], output_desc[0]))

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        return dt.PluginFieldCollection()


@dt.register_plugin
class CachedAttentionCreator(dt.IPluginCreatorV3One):
    """Makes the plugin; it has no fields."""

    name, plugin_version, plugin_namespace, field_names = "CachedAttention", "1", "", dt.PluginFieldCollection()

    def create_plugin(self, name, field_collection, phase):
        return CachedAttention()


def build() -> dt.Engine:
    builder = dt.Builder()
    network = builder.create_network()
    inputs = [network.add_input(name, dt.float32, (HEADS, FEATURES)) for name in ("query", "key", "value")]
    inputs += [network.add_input(name, dt.float32, (-1, HEADS, FEATURES)) for name in ("keys", "values")]
    layer = network.add_plugin_v3(inputs, [], CachedAttention())
    for index, name in enumerate(("result", "keys_out", "values_out")):
        layer.get_output(index).name = name
        network.mark_output(layer.get_output(index))
    profile = builder.create_optimization_profile()
    for name in ("keys", "values"):
        profile.set_shape(name, *((time, HEADS, FEATURES) for time in (1, LONGEST // 2, LONGEST)))
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    config.set_preview_feature(dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    return builder.build_engine_with_config(network, config)


def expect(query: np.ndarray, keys: list[np.ndarray], values: list[np.ndarray]) -> np.ndarray:
    """Attention over the whole history, one head after the other."""
    result = []
    for head in range(HEADS):
        weights = np.exp([query[head] @ key[head] / FEATURES**0.5 for key in keys])
        result.append(sum(w * value[head] for w, value in zip(weights, values, strict=True)) / weights.sum())
    return np.stack(result)


def main() -> None:
    engine = build()
    steps = [step.kind for step in engine.manifest.programs[0].steps]
    print("steps of the plan:", steps)
    assert steps == ["plugin"], "no copy before it, none after it"

    arrays = {name: np.zeros((HEADS, FEATURES), np.float32) for name in ("query", "key", "value", "result")}
    caches = {name: np.zeros((LONGEST, HEADS, FEATURES), np.float32) for name in ("keys", "values")}
    context = engine.create_execution_context()
    for name, array in (arrays | caches).items():
        context.set_tensor_address(name, address_of(array))
    for name, array in caches.items():
        context.set_tensor_address(f"{name}_out", address_of(array))

    rng, history = np.random.default_rng(0), {"keys": [], "values": []}
    for time in range(1, LONGEST + 1):
        for name in ("query", "key", "value"):
            arrays[name][...] = rng.normal(size=(HEADS, FEATURES))
        for name in caches:
            context.set_input_shape(name, (time, HEADS, FEATURES))
            history[name].append(arrays[name.removesuffix("s")].copy())
        assert context.execute_async_v3(0)
        np.testing.assert_allclose(arrays["result"], expect(arrays["query"], **history), rtol=1e-4, atol=1e-5)
        assert context.get_tensor_address("keys_out") == address_of(caches["keys"]), "the memory stays where it is"
    for name, array in caches.items():
        np.testing.assert_array_equal(array, np.stack(history[name]))
    print(f"{LONGEST} steps: the history grew from 1 to {LONGEST} at one address")


if __name__ == "__main__":
    main()
