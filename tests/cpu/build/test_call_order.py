"""The order in which a build calls a plugin (rules 1.2-A and 1.2-B)."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import dovetail as dt
from tests.support.plugins import PlainCreator, ScalePlugin, build_engine


def _names(calls: list[tuple[str, Any]]) -> list[str]:
    """Method names with repeats folded."""
    return [name for name, _ in groupby(name for name, _ in calls)]


def test_adding_a_plugin_asks_the_users_object_and_keeps_a_clone() -> None:
    calls: list[tuple[str, Any]] = []
    network = dt.Builder().create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    layer = network.add_plugin_v3(inputs=[x], shape_inputs=[], plugin=(plugin := ScalePlugin(2.0, calls)))
    assert _names(calls)[:2] == ["get_output_data_types", "clone"]
    assert layer.plugin is not plugin
    assert layer.name == "(Unnamed Layer* 0) [PluginV3_V3ONE]"
    assert layer.get_output(0).name == "(Unnamed Layer* 0) [PluginV3_V3ONE]_output"
    assert tuple(layer.get_output(0).shape) == (2, 3)
    assert layer.get_output(0).dtype == dt.float32


def test_two_tactics_are_timed_in_order() -> None:
    calls: list[tuple[str, Any]] = []
    plan, _ = build_engine(ScalePlugin(2.0, calls), PlainCreator("TestScale", ScalePlugin))
    names = [name for name, _ in calls]
    first_enqueue = names.index("enqueue")
    before = names[:first_enqueue]
    assert before.index("supports_format_combination") < before.index("attach_to_context")
    assert before.index("attach_to_context") < before.index("configure_plugin") < before.index("get_valid_tactics")
    assert before.index("get_valid_tactics") < before.index("set_tactic")
    assert names[first_enqueue - 2 : first_enqueue] == ["get_workspace_size", "on_shape_change"]
    assert {tactic for name, tactic in calls if name == "set_tactic"} == {1, 2}
    assert names.count("get_fields_to_serialize") >= 1
    tail = [
        n for n in names if n in ("configure_plugin", "set_tactic", "get_workspace_size", "get_fields_to_serialize")
    ]
    assert tail[-4:] == ["configure_plugin", "set_tactic", "get_workspace_size", "get_fields_to_serialize"]
    assert len(plan) > 0


def test_a_plugin_with_one_tactic_runs_once_while_building() -> None:
    class Only(ScalePlugin):
        formats = (dt.TensorFormat.LINEAR,)
        tactics = ()

    calls: list[tuple[str, Any]] = []
    build_engine(Only(2.0, calls), PlainCreator("TestScale", Only))
    names = [name for name, _ in calls]
    assert names.count("enqueue") == 1
    assert names.count("on_shape_change") == 1
    first = names.index("enqueue")
    assert names[first - 2 : first] == ["get_workspace_size", "on_shape_change"]
    assert {tactic for name, tactic in calls if name == "set_tactic"} == {0}


def test_every_clone_is_destroyed_when_the_build_is_over() -> None:
    calls: list[tuple[str, Any]] = []
    build_engine(ScalePlugin(2.0, calls), PlainCreator("TestScale", ScalePlugin))
    names = [name for name, _ in calls]
    # The network's own clone lives as long as the network.
    assert names.count("clone") - names.count("destroy") in (0, 1)


def test_wildcards_and_bounds_reach_configure_plugin() -> None:
    calls: list[tuple[str, Any]] = []
    build_engine(
        ScalePlugin(2.0, calls),
        PlainCreator("TestScale", ScalePlugin),
        shape=(-1, 3, 4, 4),
        profile=((1, 3, 4, 4), (2, 3, 4, 4), (8, 3, 4, 4)),
    )
    inputs, outputs = next(detail for name, detail in calls if name == "configure_plugin")
    for desc in (inputs, outputs):
        assert tuple(desc.desc.dims) == (-1, 3, 4, 4)
        assert tuple(desc.min) == (1, 3, 4, 4)
        assert tuple(desc.opt) == (2, 3, 4, 4)
        assert tuple(desc.max) == (8, 3, 4, 4)
    told = next(detail for name, detail in calls if name == "on_shape_change")
    assert tuple(told[0].dims) == (2, 3, 4, 4)


def test_each_profile_has_a_plugin_of_its_own() -> None:
    def two_profiles(config: Any) -> None:
        second = dt.OptimizationProfile()
        second.set_shape("x", (8, 3), (16, 3), (32, 3))
        config.add_optimization_profile(second)

    calls: list[tuple[str, Any]] = []
    plan, runtime = build_engine(
        ScalePlugin(2.0, calls),
        PlainCreator("TestScale", ScalePlugin),
        shape=(-1, 3),
        profile=((1, 3), (2, 3), (4, 3)),
        configure=two_profiles,
    )
    bounds = {tuple(d[0].max) for name, d in calls if name == "configure_plugin"}
    assert bounds == {(4, 3), (32, 3)}
    engine = runtime.deserialize_cuda_engine(plan)
    assert engine.num_optimization_profiles == 2


def test_proposals_follow_the_documented_order_and_stop_at_the_limit() -> None:
    class Wide(ScalePlugin):
        tactics = ()
        formats = tuple(dt.TensorFormat)
        format_combination_limit = 2

    calls: list[tuple[str, Any]] = []
    build_engine(Wide(2.0, calls), PlainCreator("TestScale", Wide), dtype=dt.float16, shape=(2, 4, 4, 4))
    asked = [detail for name, detail in calls if name == "supports_format_combination"]
    first = [fmt for pos, _, fmt in asked if pos == 0][:2]
    assert first == [dt.TensorFormat.LINEAR, dt.TensorFormat.CHW2]
    configured = {d[0].desc.format for name, d in calls if name == "configure_plugin"}
    assert configured == {dt.TensorFormat.LINEAR, dt.TensorFormat.CHW2}
