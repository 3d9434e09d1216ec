"""C++ plugins that keep pointers to memory or objects which are gone, or rely on memory of earlier runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin.check import check_path
from dovetail.plugin.libraries import PluginLibrary
from dovetail.plugin.registry import get_plugin_registry
from tests.support.native_libraries import Compile
from tests.support.plugins import build_engine

QUICK = {
    "None": set(),
    "KeepsData": {"R39"},
    "KeepsInputDescs": {"R64"},
    "PartsNone": set(),
    "PartsRuntimeKnowsTheOriginal": {"R56"},
    "WorkspaceOncePerShape": {"R47"},
}
ALL = {
    "KeepsDataAtBuild": {"R39"},
    "KeepsDataAtRuntime": {"R39"},
    "KeepsField": {"R39"},
    "KeepsFieldCopy": {"R39"},
    "KeepsCollection": {"R39"},
    "KeepsText": {"R39"},
    "KeepsFieldName": {"R39"},
    "KeepsLayerName": {"R39"},
    "KeepsLastCollection": {"R37", "R39"},
    "SerializesData": {"R39"},
    "SerializesField": {"R39"},
    "SerializesCollection": {"R39"},
    "ReadsDataInDestructor": {"R39"},
    "ReadsDataInClone": {"R39"},
    "KeepsConfigured": {"R64"},
    "KeepsOutputDescs": {"R64"},
    "KeepsRunDescs": {"R64"},
    "KeepsAddresses": {"R64"},
    "WorkspaceAlways": set(),
    "WorkspaceOnce": {"R47"},
    "WorkspaceEverySecondRun": {"R47"},
    "OutputOnce": {"R47"},
    "OutputOncePerShape": {"R47"},
    "PartsShareRuntime": {"R56"},
    "PartsAttachedKnowTheOriginal": {"R56"},
    "PartsCoreKnowsTheOriginal": {"R56"},
    "PartsBuildKnowsTheOriginal": {"R56"},
}


def find_failures(compile_library: Compile, fault: str) -> dict[str, str]:
    report = check_path(f"{compile_library('stale')}:{fault}", shapes=["2x3", "4x3"], timeout_s=20)
    return {failure.rule.id: failure.message for failure in report.failures}


@pytest.mark.parametrize(("fault", "rules"), QUICK.items(), ids=QUICK)
def test_a_stale_pointer_is_reported_by_its_rule(compile_library: Compile, fault: str, rules: set[str]) -> None:
    found = find_failures(compile_library, fault)
    assert set(found) == rules, found


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "rules"), ALL.items(), ids=ALL)
def test_every_stale_pointer_is_reported_by_its_rule(compile_library: Compile, fault: str, rules: set[str]) -> None:
    found = find_failures(compile_library, fault)
    assert set(found) == rules, found


def test_the_report_names_the_argument_and_the_callback(compile_library: Compile) -> None:
    (message,) = find_failures(compile_library, "ReadsDataInClone").values()
    assert "clone read the data of field 'gain'" in message


@pytest.fixture(scope="module")
def library(compile_library: Compile) -> Iterator[PluginLibrary]:
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("stale"))
    yield library
    registry.deregister_library(library)


def make_plugin(fault: str, phase: dt.TensorRTPhase = dt.TensorRTPhase.BUILD) -> dt.IPluginV3:
    field = dt.PluginField("gain", np.array([3], np.float32), dt.PluginFieldType.FLOAT32)
    creator = get_plugin_registry().get_creator(fault, "1")
    plugin: dt.IPluginV3 = creator.create_plugin("layer", dt.PluginFieldCollection([field]), phase)
    return plugin


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("fault", ["SerializesData", "SerializesField", "KeepsFieldName"])
@pytest.mark.parametrize("phase", list(dt.TensorRTPhase))
def test_fields_over_the_memory_of_their_creation_are_refused(fault: str, phase: dt.TensorRTPhase) -> None:
    plugin = make_plugin(fault, phase)
    runtime = plugin.get_capability_interface(dt.PluginCapabilityType.RUNTIME)
    with pytest.raises(dt.PluginError, match=r"over the memory of createPlugin, which is freed[\s\S]*rule R39"):
        runtime.get_fields_to_serialize()


@pytest.mark.usefixtures("library")
def test_a_build_of_a_plugin_that_stores_its_arguments_fails() -> None:
    plugin = make_plugin("SerializesData")
    with pytest.raises(dt.PluginError, match="rule R39"):
        build_engine(plugin, get_plugin_registry().get_creator("SerializesData", "1"), shape=(2, 3))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("fault", ["KeepsData", "KeepsDataAtBuild", "KeepsDataAtRuntime", "KeepsText"])
def test_an_engine_overwrites_fields_in_both_phases(fault: str) -> None:
    """A kept pointer gives NaN in every run, and not the value that happens to be there."""
    x = np.ones((2, 3), np.float32)
    plan, runtime = build_engine(make_plugin(fault), get_plugin_registry().get_creator(fault, "1"), shape=(2, 3))
    y = runtime.deserialize_cuda_engine(plan)(x)
    expected = 3 * x if fault == "KeepsDataAtBuild" else np.full_like(x, np.nan)
    np.testing.assert_array_equal(y, expected)
