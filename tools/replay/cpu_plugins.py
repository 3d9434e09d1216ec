"""Networks with plugins: Python plugins, quick layers and C++ plugins of versions 2 and 3 of the contract."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import onnx

import dovetail as dt
from dovetail.testing import host_device
from replay.cpu_models import Run
from replay.recorder import BuildRecorder
from tests.support.dynamic_plugins import FillPlugin, PositivePlugin
from tests.support.plugins import ScalePlugin
from tests.support.typed import TypedPlugin

__all__ = ["PLUGIN_CASES", "make_plugin_chain", "mark_outputs"]

PLUGIN_CASES: dict[str, Run] = {}
_LINEAR = dt.TensorFormat.LINEAR
_F = dt.BuilderFlag


def _case(run: Run) -> Run:
    PLUGIN_CASES[run.__name__.lstrip("_")] = run
    return run


def mark_outputs(network: Any, *tensors: Any) -> Any:
    """Mark the tensors as outputs ``y0``, ``y1`` and so on, and return the network."""
    for index, tensor in enumerate(tensors):
        tensor.name = f"y{index}"
        network.mark_output(tensor)
    return network


def make_plugin_chain(r: BuildRecorder, shape: Any = (2, 3, 4, 4), count: int = 2, **options: Any) -> Any:
    """Create a network of alternating plugins and ReLUs."""
    network = r.create_network(**options)
    tensor = network.add_input("x", dt.float32, shape)
    for _ in range(count):
        tensor = network.add_plugin_v3([tensor], [], r.make_plugin()).get_output(0)
        tensor = network.add_activation(tensor, dt.ActivationType.RELU).get_output(0)
    return mark_outputs(network, tensor)


# shapes


@_case
def _plugin_static(r: BuildRecorder) -> None:
    r.build(make_plugin_chain(r))


@_case
def _plugin_mixed_formats(r: BuildRecorder) -> None:
    network = r.create_network()
    x = tensor = network.add_input("x", dt.float32, (2, 8, 4, 4))
    for _ in range(3):
        tensor = network.add_plugin_v3([tensor], [], r.make_plugin()).get_output(0)
    r.config.profiling_verbosity = dt.ProfilingVerbosity.DETAILED
    other = network.add_plugin_v3([x], [], r.make_plugin(tactics=(5,))).get_output(0)
    r.build(mark_outputs(network, tensor, other))


@_case
def _plugin_two_profiles(r: BuildRecorder) -> None:
    r.add_profile(x=((1, 3, 4, 4), (2, 3, 4, 4), (8, 3, 4, 4)))
    r.add_profile(x=((9, 3, 4, 4), (16, 3, 4, 4), (32, 3, 4, 4)))
    r.build(make_plugin_chain(r, (-1, 3, 4, 4)))


@_case
def _plugin_open_dims(r: BuildRecorder) -> None:
    r.build(make_plugin_chain(r, (-1, 3, -1, 4)), is_open=True)


@_case
def _plugin_data_dependent(r: BuildRecorder) -> None:
    network = r.create_network()
    x = network.add_input("x", dt.float32, (-1,))
    layer = network.add_plugin_v3([x], [], r.make_plugin(PositivePlugin))
    last = network.add_plugin_v3([layer.get_output(0)], [], r.make_plugin()).get_output(0)
    r.add_profile(x=((1,), (8,), (40,)))
    r.build(mark_outputs(network, layer.get_output(1), last))


@_case
def _plugin_shape_input(r: BuildRecorder) -> None:
    network = r.create_network()
    x, shape = network.add_input("x", dt.float32, (2, 3)), network.add_input("shape", dt.int64, (2,))
    y = network.add_plugin_v3([x], [shape], r.make_plugin(FillPlugin)).get_output(0)
    for bounds in (((1, 1), (2, 3), (4, 5)), ((5, 6), (7, 8), (9, 10))):
        profile = r.builder.create_optimization_profile()
        profile.set_shape_input("shape", *bounds)
        r.config.add_optimization_profile(profile)
    r.build(mark_outputs(network, y))


# types


@_case
def _plugin_fp16_int8_ranges(r: BuildRecorder) -> None:
    for flag in (_F.FP16, _F.INT8, _F.BF16):
        r.config.set_flag(flag)
    network = r.create_network(strongly_typed=False)
    tensors = [network.add_input("x", dt.float32, (4, 8))]
    for _ in range(2):
        plugin = r.make_plugin(TypedPlugin, slow=())
        tensors.append(network.add_plugin_v3([tensors[-1]], [], plugin).get_output(0))
    mark_outputs(network, tensors[-1])
    for tensor, bounds in zip(tensors, ((-1.27, 1.0), (-2.54, 2.54), (-5.0, 5.0)), strict=True):
        tensor.dynamic_range = bounds
    r.build(network)


@_case
def _plugin_calibrated(r: BuildRecorder) -> None:
    r.config.set_flag(_F.INT8)
    batches = [{"x": np.random.default_rng(i).uniform(-1, 1, (4, 8)).astype(np.float32)} for i in range(3)]
    r.config.int8_calibrator = dt.ArrayCalibrator(batches, dt.CalibrationAlgoType.MINMAX_CALIBRATION, None)
    network = r.create_network(strongly_typed=False)
    tensor = network.add_input("x", dt.float32, (4, 8))
    for _ in range(2):
        tensor = network.add_plugin_v3([tensor], [], r.make_plugin(TypedPlugin, slow=())).get_output(0)
    r.build(mark_outputs(network, tensor))


# control flow


def _make_loop(r: BuildRecorder, size: int) -> Any:
    network = r.create_network()
    x = network.add_input("x", dt.float32, (size,))
    tensor = network.add_plugin_v3([x], [], r.make_plugin()).get_output(0)
    loop = network.add_loop()
    loop.add_trip_limit(network.add_constant((), np.array(3, np.int32)).get_output(0), dt.TripLimit.COUNT)
    state = loop.add_recurrence(tensor)
    state.set_input(1, network.add_plugin_v3([state.get_output(0)], [], r.make_plugin()).get_output(0))
    return mark_outputs(network, loop.add_loop_output(state.get_output(0), dt.LoopOutput.LAST_VALUE).get_output(0))


PLUGIN_CASES["plugin_loop"] = lambda r: r.build(_make_loop(r, 4))
PLUGIN_CASES["plugin_loop_open_dims"] = lambda r: r.build(_make_loop(r, -1), is_open=True)


@_case
def _plugin_if(r: BuildRecorder) -> None:
    network = r.create_network()
    x, condition = network.add_input("x", dt.float32, (4,)), network.add_input("p", dt.bool, ())
    conditional = network.add_if_conditional()
    conditional.set_condition(condition)
    inside = conditional.add_input(x).get_output(0)
    yes = network.add_plugin_v3([inside], [], r.make_plugin()).get_output(0)
    no = network.add_activation(inside, dt.ActivationType.RELU).get_output(0)
    r.build(mark_outputs(network, conditional.add_output(yes, no).get_output(0)))


# memory, providers and libraries


class _InPlacePlugin(ScalePlugin, dt.IPluginV3OneBuildV2):
    formats = (_LINEAR,)
    tactics = ()

    def get_aliased_input(self, output_index: int) -> int:
        self.note("get_aliased_input", output_index)
        return 0


def _build_in_place(is_enabled: bool, r: BuildRecorder) -> None:
    r.config.set_preview_feature(dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, is_enabled)
    network = r.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    y = network.add_plugin_v3([x], [], r.make_plugin(_InPlacePlugin)).get_output(0)
    r.build(mark_outputs(network, y, network.add_activation(x, dt.ActivationType.RELU).get_output(0)))


PLUGIN_CASES["plugin_alias"] = partial(_build_in_place, True)
PLUGIN_CASES["plugin_alias_without_feature"] = partial(_build_in_place, False)


@_case
def _plugin_on_device(r: BuildRecorder) -> None:
    r.exits.enter_context(host_device())
    r.config.providers = ["host_device", "cpu"]
    network = r.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    plugin = r.make_plugin(preferred_memory="device", formats=(_LINEAR,), tactics=(), types=(dt.float32,))
    tensor = network.add_plugin_v3([x], [], plugin).get_output(0)
    tensor = network.add_activation(tensor, dt.ActivationType.RELU).get_output(0)
    r.build(mark_outputs(network, network.add_plugin_v3([tensor], [], r.make_plugin(tactics=())).get_output(0)))


@_case
def _plugin_with_onnxruntime(r: BuildRecorder) -> None:
    r.config.providers = ["onnxruntime", "cpu"]
    r.config.max_num_tactics = 1
    r.build(make_plugin_chain(r, count=3))


@_case
def _plugin_workspace(r: BuildRecorder) -> None:
    r.config.set_memory_pool_limit(dt.MemoryPoolType.WORKSPACE, 1 << 20)
    network = r.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    plugin = r.make_plugin(metadata_string="meta", get_workspace_size=lambda self, i, o: 128 * self.tactic)
    r.build(mark_outputs(network, network.add_plugin_v3([x], [], plugin).get_output(0)))


_LAYERS = """import numpy as np
from dovetail import layer


@layer('replay::leaky')
def leaky(x, *, alpha: float = 0.1):
    return np.where(x > 0, x, x * x.dtype.type(alpha))
"""
_LEAKY = """<ir_version: 10, opset_import: ["" : 20, "replay" : 1]> g (float[N,8] x) => (float[N,8] y) {
    t = replay.leaky<alpha = 0.5>(x) y = Relu(t) }"""


@_case
def _plugin_quick_layer(r: BuildRecorder) -> None:
    path = r.folder / "replay_layers.py"
    path.write_text(_LAYERS)
    registry = r.builder.get_plugin_registry()
    library = registry.load_library(path)
    r.exits.callback(registry.deregister_library, library)
    r.config.plugins_to_serialize = [path]
    r.add_profile(x=((1, 8), (4, 8), (16, 8)))
    r.build_model(onnx.parser.parse_model(_LEAKY))


def _build_native(name: str, plugin: str, version: str, fields: list[Any], r: BuildRecorder) -> None:
    if not sys.platform.startswith("linux"):
        raise RuntimeError("C++ plugins are replayed on Linux only")
    from tests.support.native_libraries import compile_library

    registry = r.builder.get_plugin_registry()
    library = registry.load_library(compile_library(name))
    r.exits.callback(registry.deregister_library, library)
    creator = registry.get_creator(plugin, version)
    layer = creator.create_plugin("p", dt.PluginFieldCollection(fields), dt.TensorRTPhase.BUILD)
    network = r.create_network()
    x = network.add_input("x", dt.float32, (-1, 3))
    r.add_profile(x=((1, 3), (2, 3), (4, 3)))
    r.build(mark_outputs(network, network.add_plugin_v3([x], [], layer).get_output(0)))


_MODE = dt.PluginField("mode", b"tactics", dt.PluginFieldType.CHAR)
_FACTOR = dt.PluginField("factor", np.array([2.0], np.float32), dt.PluginFieldType.FLOAT32)
PLUGIN_CASES["plugin_native_v3"] = partial(_build_native, "probe", "Probe", "1", [_MODE])
PLUGIN_CASES["plugin_native_v2"] = partial(_build_native, "older", "Scale", "2", [_FACTOR])
