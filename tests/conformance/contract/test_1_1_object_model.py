"""Rule 1.1: one IPluginV3 object, three capabilities, clones that are whole, interfaces that say what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as trt
from tests.conformance.contract.authors import (
    Parts,
    PartsCreator,
    Plus,
    PlusCreator,
    build,
    details,
    load,
    methods,
    one_plugin,
    run_bound,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_one_class_for_all_capabilities() -> None:
    engine = load(build(one_plugin(Plus(2.0))), PlusCreator())
    np.testing.assert_array_equal(engine(X), X + 2)


def test_capabilities_in_three_objects_and_no_build_capability_at_run_time() -> None:
    plan = build(one_plugin(Parts(5.0)))
    engine = load(plan, PartsCreator())
    np.testing.assert_array_equal(engine(X), X * 5)
    np.testing.assert_array_equal(run_bound(engine, {"x": X})["y0"], X * 5)


def test_the_bases_linearise_with_either_build_class() -> None:
    class V2(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime):
        pass

    assert issubclass(V2, trt.IPluginV3OneBuild)
    assert issubclass(Plus, trt.IPluginCapability)


def test_capabilities_have_the_contracts_numbers() -> None:
    assert {c.name: c.value for c in trt.PluginCapabilityType} == {"CORE": 0, "BUILD": 1, "RUNTIME": 2}
    assert {c.name: c.value for c in trt.APILanguage} == {"CPP": 0, "PYTHON": 1}


@pytest.mark.parametrize("missing", list(trt.PluginCapabilityType))
def test_a_build_phase_object_needs_all_three(missing: Any) -> None:
    class Lacking(Plus):
        def get_capability_interface(self, type: Any) -> Any:
            return None if type == missing else self

    with pytest.raises(trt.PluginError, match=missing.name):
        build(one_plugin(Lacking()))


@pytest.mark.parametrize("missing", [trt.PluginCapabilityType.CORE, trt.PluginCapabilityType.RUNTIME])
def test_a_runtime_phase_object_needs_core_and_runtime(missing: Any) -> None:
    class Lacking(Plus):
        def get_capability_interface(self, type: Any) -> Any:
            return None if type == missing else self

    with pytest.raises(trt.PluginError, match=missing.name):
        load(build(one_plugin(Plus())), PlusCreator(Lacking))


def test_the_build_capability_of_a_runtime_phase_object_is_not_used() -> None:
    asked: list[Any] = []

    class Runtime(Plus):
        def get_capability_interface(self, type: Any) -> Any:
            asked.append(type)
            if type == trt.PluginCapabilityType.BUILD:
                raise AssertionError("no build capability at run time")
            return self

    engine = load(build(one_plugin(Plus())), PlusCreator(Runtime))
    np.testing.assert_array_equal(engine(X), X + 1)
    assert trt.PluginCapabilityType.BUILD not in asked


def test_the_capability_is_looked_up_once_and_not_for_every_run() -> None:
    trace: list[Any] = []
    engine = load(build(one_plugin(Plus())), PlusCreator(Plus, trace))
    context = engine.create_execution_context()
    run_bound(engine, {"x": X}, context)
    del trace[:]
    for _ in range(5):
        context.execute_async_v3(0)
    assert [method for _, method, _ in trace] == ["enqueue"] * 5


@pytest.mark.parametrize(
    ("cls", "kind", "version"),
    [
        (trt.IPluginV3, "PLUGIN", (1, 0)),
        (trt.IPluginV3OneCore, "PLUGIN_V3ONE_CORE", (1, 0)),
        (trt.IPluginV3OneBuild, "PLUGIN_V3ONE_BUILD", (1, 0)),
        (trt.IPluginV3OneBuildV2, "PLUGIN_V3ONE_BUILD", (2, 0)),
        (trt.IPluginV3OneRuntime, "PLUGIN_V3ONE_RUNTIME", (1, 0)),
        (trt.IPluginCreatorV3One, "PLUGIN CREATOR_V3ONE", (1, 0)),
        (trt.IPluginResource, "IPluginResource", (1, 0)),
    ],
)
def test_interfaces_say_their_kind_and_version(cls: Any, kind: str, version: tuple[int, int]) -> None:
    instance = cls()
    info = instance.interface_info
    assert (info.kind, (info.major, info.minor)) == (kind, version)
    assert instance.api_language == trt.APILanguage.PYTHON


def test_clones_get_everything_the_author_copies_and_nothing_of_the_engine() -> None:
    seen: list[set[str]] = []

    class Watched(Plus):
        def clone(self) -> Any:
            seen.append(set(self.__dict__))
            return super().clone()

    engine = load(build(one_plugin(Watched())), PlusCreator(Watched))
    engine(X)
    assert all(names == set(Plus().__dict__) for names in seen)


def test_a_clone_of_none_is_an_error_that_names_the_plugin() -> None:
    class Barren(Plus):
        def clone(self) -> Any:
            return None

    with pytest.raises(trt.PluginError, match=r"Plus.*clone returned None"):
        build(one_plugin(Barren()))


def test_no_two_threads_or_contexts_share_an_object() -> None:
    trace: list[Any] = []
    engine = load(build(one_plugin(Plus())), PlusCreator(Plus, trace))
    contexts = [engine.create_execution_context() for _ in range(3)]
    for context in contexts:
        run_bound(engine, {"x": X}, context)
    users = [number for number, method, _ in trace if method == "enqueue"]
    assert len(set(users)) == 3
    resources = details(trace, "attach_to_context")
    assert len({id(resource) for resource in resources}) == 3


def test_every_object_the_engine_made_is_destroyed_once_and_the_users_is_not() -> None:
    trace: list[Any] = []

    def whole_life() -> int:
        plugin = Plus(1.0, trace)
        plan = build(one_plugin(plugin))
        engine = load(plan, PlusCreator(Plus, trace))
        engine(X)
        engine.close()
        return plugin.number

    users = whole_life()
    import gc

    gc.collect()
    destroyed = [number for number, method, _ in trace if method == "destroy"]
    assert len(destroyed) == len(set(destroyed))
    assert users not in destroyed
    created = {number for number, _, _ in methods(trace)} - {users}
    assert created == set(destroyed)
