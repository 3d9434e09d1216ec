"""A timing cache from one build is used by the next, looked at, edited, and saved."""

import os
import sys
import tempfile

import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.ERROR)


class TwoWays(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """Doubles its input in one of two ways, so that there is something to time."""

    runs = 0

    def __init__(self):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = "TwoWays", "1", ""
        self.num_outputs = 1
        self.timing_cache_id = ""

    def get_capability_interface(self, type):
        return self

    def clone(self):
        twin = TwoWays()
        twin.__dict__.update(self.__dict__)
        return twin

    def get_output_data_types(self, input_types):
        return input_types

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        return [trt.DimsExprs(inputs[0])]

    def configure_plugin(self, inp, out):
        pass

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.format == trt.TensorFormat.LINEAR and in_out[pos].desc.type == trt.float32

    def get_valid_tactics(self):
        return [1, 2]

    def set_tactic(self, tactic):
        self.tactic = tactic

    def on_shape_change(self, inp, out):
        pass

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        import ctypes

        TwoWays.runs += 1
        count = int(np.prod(tuple(input_desc[0].dims)))
        source = np.ctypeslib.as_array(ctypes.cast(inputs[0], ctypes.POINTER(ctypes.c_float)), (count,))
        target = np.ctypeslib.as_array(ctypes.cast(outputs[0], ctypes.POINTER(ctypes.c_float)), (count,))
        target[:] = source + source if self.tactic == 1 else source * 2


def build(cache_bytes):
    builder = trt.Builder(logger)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (64, 64))
    layer = network.add_plugin_v3([x], [], TwoWays())
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    cache = config.create_timing_cache(cache_bytes)
    assert config.set_timing_cache(cache, ignore_mismatch=False)
    before = TwoWays.runs
    plan = builder.build_serialized_network(network, config)
    assert plan is not None
    return config.get_timing_cache(), TwoWays.runs - before


def main():
    path = os.path.join(tempfile.mkdtemp(), "timing.cache")
    cache, first_runs = build(b"")
    assert first_runs > 0
    with open(path, "wb") as f:
        f.write(memoryview(cache.serialize()))
    with open(path, "rb") as f:
        cache, second_runs = build(f.read())
    assert second_runs == 0, second_runs
    keys = cache.queryKeys()
    assert keys
    value = cache.query(keys[0])
    assert value.timingMSec > 0
    value.timingMSec = 5.0
    assert cache.update(keys[0], value)
    assert abs(cache.query(trt.TimingCacheKey.parse(str(keys[0]))).timingMSec - 5.0) < 1e-6
    other = trt.Builder(logger).create_builder_config().create_timing_cache(b"")
    assert other.combine(cache, False)
    assert len(other.queryKeys()) == len(keys)
    assert trt.Builder(logger).create_builder_config().create_timing_cache(b"damaged") is None
    print(f"Timing cache reused: {len(keys)} entries, {second_runs} runs in the second build")


if __name__ == "__main__":
    sys.exit(main())
