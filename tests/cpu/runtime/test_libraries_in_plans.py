"""Plugin libraries carried in a plan: only with leave, and gone with the engine."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as dt

LIBRARY = """
import numpy as np
import dovetail as dt
from dovetail.plugin import as_array


class Plus(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    def __init__(self):
        self.plugin_name, self.plugin_version, self.plugin_namespace = "CarriedPlus", "1", ""
        self.num_outputs = 1

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return Plus()

    def get_output_data_types(self, types):
        return [types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        return [dt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.format == dt.TensorFormat.LINEAR

    def configure_plugin(self, inputs, outputs):
        pass

    def on_shape_change(self, inputs, outputs):
        pass

    def set_tactic(self, tactic):
        pass

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        return dt.PluginFieldCollection([])

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0]) + 1


class Creator(dt.IPluginCreatorV3One):
    def __init__(self):
        self.name, self.plugin_version, self.plugin_namespace = "CarriedPlus", "1", ""
        self.field_names = dt.PluginFieldCollection([])

    def create_plugin(self, name, field_collection, phase):
        return Plus()


def get_creators():
    return [Creator()]
"""


def _plan(tmp_path: Path) -> bytes:
    library = tmp_path / "plus_library.py"
    library.write_text(LIBRARY)
    builder = dt.Builder()
    builder.get_plugin_registry().load_library(str(library))
    creator = builder.get_plugin_registry().get_creator("CarriedPlus", "1", "")
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    plugin = creator.create_plugin("plus", dt.PluginFieldCollection([]), dt.TensorRTPhase.BUILD)
    network.mark_output(network.add_plugin_v3([x], [], plugin).get_output(0))
    config = builder.create_builder_config()
    config.plugins_to_serialize = [str(library)]
    plan = bytes(builder.build_serialized_network(network, config))
    library.unlink()
    return plan


def test_host_code_is_refused_unless_allowed(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    with pytest.raises(dt.PlanTrustError, match="host_code=True"):
        dt.Runtime().deserialize_cuda_engine(plan)
    path = tmp_path / "m.plan"
    path.write_bytes(plan)
    with pytest.raises(dt.PlanTrustError):
        dt.load(path)
    engine = dt.load(path, host_code=True)
    np.testing.assert_allclose(engine(np.zeros((2, 3), np.float32)), 1.0)


def test_two_engines_that_carry_the_same_library_live_together(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    runtime = dt.Runtime()
    runtime.engine_host_code_allowed = True
    engines = [runtime.deserialize_cuda_engine(plan) for _ in range(2)]
    for engine in engines:
        np.testing.assert_allclose(engine(np.zeros((2, 3), np.float32)), 1.0)
    assert dt.get_plugin_registry().find_creator("CarriedPlus", "1", "") is None
    assert runtime.get_plugin_registry().find_creator("CarriedPlus", "1", "") is None


def test_the_library_leaves_with_its_engine(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    runtime = dt.Runtime()
    runtime.engine_host_code_allowed = True
    gc.collect()
    before = set(sys.modules)
    engine: Any = runtime.deserialize_cuda_engine(plan)
    assert len(set(sys.modules) - before) == 1
    engine.close()
    del engine
    gc.collect()
    assert set(sys.modules) <= before


def test_a_missing_creator_names_what_is_registered(tmp_path: Path) -> None:
    from tests.support.plugins import PlainCreator, ScalePlugin, build_engine

    plan, runtime = build_engine(ScalePlugin(2.0), PlainCreator("TestScale", ScalePlugin), shape=(2, 3))
    other = dt.Runtime()
    other.get_plugin_registry().register_creator(PlainCreator("TestScales", ScalePlugin), "")
    with pytest.raises(dt.PluginError, match="TestScales"):
        other.deserialize_cuda_engine(plan)
    assert runtime.deserialize_cuda_engine(plan)
