"""C++ plugins of the quick interface: they list their formats, are told ranks, and run with strides."""

from __future__ import annotations

import numpy as np
import pytest

import dovetail as dt
from dovetail.errors import PluginError
from dovetail.plugin.check import check_path
from dovetail.plugin.registry import get_plugin_registry
from tests.support.native_libraries import VERSION_8, Compile


def make_network(dtype: dt.DataType, shape: tuple[int, ...]) -> dt.INetworkDefinition:
    network = dt.Builder().create_network()
    fields = [dt.PluginField("factor", np.array([2], np.float32), dt.PluginFieldType.FLOAT32)]
    creator = get_plugin_registry().get_creator("Turned", "1", "quick")
    plugin = creator.create_plugin("turned", dt.PluginFieldCollection(fields), dt.TensorRTPhase.BUILD)
    network.mark_output(network.add_plugin_v3([network.add_input("x", dtype, shape)], [], plugin).get_output(0))
    return network


@pytest.mark.parametrize("options", [(), (VERSION_8,)], ids=["now", "version 8"])
def test_a_quick_plugin_runs_stored_and_loaded(compile_library: Compile, options: tuple[str, ...]) -> None:
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("quick", *options))
    try:
        for dtype in (dt.float32, dt.int32):
            x = np.arange(12).reshape(4, 3).astype(dtype.numpy)
            engine = dt.compile(make_network(dtype, (-1, 3)), shapes={"x": ((1, 3), (4, 3), (8, 3))})
            assert (engine(x) == 2 * x.T).all()
            plan = bytes(engine.serialize())
            assert (dt.Runtime().deserialize_cuda_engine(plan)(x[:2]) == 2 * x[:2].T).all()
        with pytest.raises(PluginError, match="getOutputDataTypes returned status 1"):
            make_network(dt.float32, (2, 2, 2))
    finally:
        registry.deregister_library(library)


@pytest.mark.slow
def test_a_quick_plugin_passes_the_check(compile_library: Compile) -> None:
    assert not check_path(f"{compile_library('quick')}:Turned", shapes=["4x3"]).failures
