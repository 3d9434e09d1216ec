"""Each V2 plugin file, from the network to results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail_tensorrt import v2
from tests.tensorrt.v2_files import FILES, PluginFile, build_plan, import_file, make_fields, run_plan


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
@pytest.mark.parametrize("is_dynamic", [True, False])
def test_a_v2_plugin_is_built_loaded_and_run(file: PluginFile, is_dynamic: bool) -> None:
    creator = getattr(import_file(file.path), file.creator)()
    plugin = creator.create_plugin("layer", make_fields(file.fields))
    plan = build_plan(file, lambda network, inputs: network.add_plugin_v2(inputs, plugin), is_dynamic=is_dynamic)
    for batch in (1, 2, 4) if is_dynamic else (2,):
        inputs = file.make_inputs(batch)
        found = run_plan(plan, [v2.adapt_creator(creator)], inputs)
        for got, wanted in zip(found, file.expected(*inputs), strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_the_layer_is_a_v2_layer_with_a_clone_of_the_plugin() -> None:
    file = FILES[0]
    plugin = import_file(file.path).CircPadPlugin(make_fields(file.fields))
    seen: list[Any] = []

    def add(network: Any, inputs: list[Any]) -> Any:
        seen.append(network.add_plugin_v2(inputs, plugin))
        return seen[0]

    build_plan(file, add)
    layer = seen[0]
    assert isinstance(layer, v2.IPluginV2Layer)
    assert layer.type == dt.LayerType.PLUGIN_V2
    assert type(layer.plugin) is type(plugin)
    assert layer.plugin is not plugin
    assert "[PluginV2]" in layer.name
