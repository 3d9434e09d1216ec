"""C++ plugins in networks, plans and the checker; what breaks is told by plugin and callback."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.allocators import HostAllocator
from dovetail.errors import DovetailError
from dovetail.loggers import ErrorCode, ErrorRecorder
from dovetail.plugin.check import check_path
from dovetail.plugin.libraries import PluginLibrary
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry
from tests.support.native_libraries import VERSION_8, Compile
from tests.support.plugins import build_engine

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def probe(compile_library: Compile) -> Iterator[PluginLibrary]:
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("probe"))
    yield library
    registry.deregister_library(library)


def run_probe(mode: str) -> np.ndarray:
    """Build a network of one probe, save and load it, run it."""
    fields = dt.PluginFieldCollection([dt.PluginField("mode", mode.encode(), dt.PluginFieldType.CHAR)])
    creator = get_plugin_registry().get_creator("Probe", "1")
    plugin = creator.create_plugin("p", fields, dt.TensorRTPhase.BUILD)
    plan, runtime = build_engine(plugin, creator, shape=(-1, 3), profile=((1, 3), (2, 3), (4, 3)))
    return np.asarray(runtime.deserialize_cuda_engine(plan)(X))


@pytest.mark.parametrize("mode", ["", "workspace", "tactics", "shapes doubled", "allocates"])
def test_a_plan_runs(probe: PluginLibrary, mode: str) -> None:
    np.testing.assert_array_equal(run_probe(mode), X)


class Offered(dt.IPluginResourceContext):
    """A context whose allocator and recorder a test can look at."""

    gpu_allocator = HostAllocator()
    error_recorder = ErrorRecorder()


def test_an_attached_plugin_uses_its_context(probe: PluginLibrary) -> None:
    fields = dt.PluginFieldCollection([dt.PluginField("mode", b"allocates", dt.PluginFieldType.CHAR)])
    plugin = probe.creators[0].create_plugin("p", fields, dt.TensorRTPhase.RUNTIME)
    context = Offered()
    attached = plugin.get_capability_interface(dt.PluginCapabilityType.RUNTIME).attach_to_context(context)
    runtime = attached.get_capability_interface(dt.PluginCapabilityType.RUNTIME)
    y = np.zeros_like(X)
    desc = dt.PluginTensorDesc(X.shape, dt.float32, dt.TensorFormat.LINEAR)
    assert runtime.enqueue([desc], [desc], [X.ctypes.data], [y.ctypes.data], 0, 0) == 0
    np.testing.assert_array_equal(y, X)
    assert context.error_recorder.get_error_code(0) is ErrorCode.INVALID_STATE
    assert context.error_recorder.get_error_desc(0) == "the probe reports"
    attached.destroy()  # gives its memory back to the allocator, or ends the process


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("create throws", "Probe: createPlugin threw an exception: the creator complains"),
        ("create null", "createPlugin returned null"),
        ("capability null", r"get_capability_interface\(RUNTIME\) returned None"),
        ("capability wrong", r"getCapabilityInterface\(RUNTIME\) returned another interface"),
        ("namespace null", "getPluginNamespace returned null"),
        ("clone null", "clone returned null"),
        ("clone throws", "Probe: clone threw an exception: the probe complains"),
        ("types unset", "getOutputDataTypes: output 0 was given no type"),
        ("types status", "getOutputDataTypes returned status 11"),
        ("shapes unset", "output 0 was given no rank from 0 to 8: nbDims is -1"),
        ("shapes null", "output 0, dimension 1 is null, or no expression of this call"),
        ("shapes throws", "Probe: getOutputShapes threw an exception: the probe complains"),
        ("shapes status", "getOutputShapes returned status 12"),
        ("supports throws", "Probe: supportsFormatCombination threw an exception"),
        ("configure throws", "Probe: configurePlugin threw an exception"),
        ("configure status", "configure_plugin returned status 13"),
        ("tactics negative", "getNbTactics returned a number out of range"),
        ("tactic status", "set_tactic returned status 14"),
        ("shape change status", "on_shape_change returned status 15"),
        ("enqueue throws", "Probe: enqueue threw an exception: the probe complains"),
        ("enqueue throws a number", "Probe: enqueue threw an exception: an exception that is no std::exception"),
        ("enqueue status", "enqueue returned status 18"),
        ("attach throws", "Probe: attachToContext threw an exception"),
        ("attach null", "attachToContext returned null"),
        ("fields null", "getFieldsToSerialize returned null"),
    ],
)
def test_what_breaks_is_told(probe: PluginLibrary, mode: str, words: str) -> None:
    with pytest.raises(DovetailError, match=words) as caught:
        run_probe(mode)
    assert "Probe" in str(caught.value)


def test_the_example_pads(compile_library: Compile) -> None:
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("pad_plugin"))
    try:
        fields = dt.PluginFieldCollection(
            [
                dt.PluginField("size", np.array([4], np.int32), dt.PluginFieldType.INT32),
                dt.PluginField("value", np.array([7], np.float32), dt.PluginFieldType.FLOAT32),
            ]
        )
        creator = registry.get_creator("Pad", "1")
        plugin = creator.create_plugin("pad", fields, dt.TensorRTPhase.BUILD)
        plan, runtime = build_engine(plugin, creator, shape=(2, 3, 2, 6))
        image = np.random.default_rng(0).random((2, 3, 2, 6), np.float32)
        expected = np.full((2, 3, 4, 4), 7, np.float32)
        expected[:, :, :2, :] = image[:, :, :, :4]
        np.testing.assert_array_equal(runtime.deserialize_cuda_engine(plan)(image), expected)
    finally:
        registry.deregister_library(library)


def test_the_example_with_a_data_dependent_size_runs(compile_library: Compile) -> None:
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("bar_plugin"))
    try:
        engine = build_bar(library)
        x = np.random.default_rng(0).standard_normal((3, 2, 4, 5)).astype(np.float32)
        results = engine(x, np.array([2]))
        positive = x[:, 0].reshape(3, -1)[:, x[0, 0].ravel() > 0]
        expected = np.stack([positive, 2 * positive, 3 * positive])
        np.testing.assert_array_equal(results["y"], np.stack([expected, expected]))
        assert results["k"] == positive.shape[1]
    finally:
        registry.deregister_library(library)


def build_bar(library: PluginLibrary) -> Any:
    plugin = library.creators[0].create_plugin("bar", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    builder = dt.Builder()
    network = builder.create_network()
    x, s = network.add_input("x", dt.float32, (-1, 2, 4, 5)), network.add_input("s", dt.int64, (1,))
    layer = network.add_plugin_v3([x], [s], plugin)
    for index, name in enumerate("yk"):
        layer.get_output(index).name = name
        network.mark_output(layer.get_output(index))
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 2, 4, 5), (2, 2, 4, 5), (3, 2, 4, 5))
    profile.set_shape_input("s", [1], [2], [4])
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    return dt.Runtime().deserialize_cuda_engine(builder.build_serialized_network(network, config))


def test_a_plugin_of_the_older_interface_runs(compile_library: Compile) -> None:
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("older"))
    try:
        fields = dt.PluginFieldCollection(
            [dt.PluginField("factor", np.array([3], np.float32), dt.PluginFieldType.FLOAT32)]
        )
        creator = registry.get_creator("Scale", "2")
        plugin = creator.create_plugin("s", fields, dt.TensorRTPhase.BUILD)
        plan, runtime = build_engine(plugin, creator, shape=(-1, 3), profile=((1, 3), (2, 3), (4, 3)))
        np.testing.assert_array_equal(runtime.deserialize_cuda_engine(plan)(X), 3 * X)
    finally:
        registry.deregister_library(library)


@pytest.fixture(scope="module", params=[(VERSION_8,), pytest.param((), marks=pytest.mark.slow)], ids=["v8", "now"])
def implicit(compile_library: Compile, request: pytest.FixtureRequest) -> Iterator[PluginLibrary]:
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("implicit", *request.param))
    yield library
    registry.deregister_library(library)


@pytest.mark.parametrize("name", ["OneType", "Extended", "InOut"])
def test_plugins_that_never_see_the_batch_run(implicit: PluginLibrary, name: str) -> None:
    creator = get_plugin_registry().get_creator(name, "1")
    plugin = creator.create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    plan, runtime = build_engine(plugin, creator, shape=(-1, 3), profile=((1, 3), (2, 3), (4, 3)))
    engine = runtime.deserialize_cuda_engine(plan)
    for batch in (2, 4):
        x = np.ones((batch, 3), np.float32)
        np.testing.assert_array_equal(engine(x), x + np.arange(batch, dtype=np.float32)[:, None])


def test_plugins_that_never_see_the_batch_need_the_other_sizes(implicit: PluginLibrary) -> None:
    creator = get_plugin_registry().get_creator("InOut", "1")
    plugin = creator.create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    with pytest.raises(DovetailError, match="input 0, dimension 1 varies"):
        build_engine(plugin, creator, shape=(2, -1), profile=((2, 1), (2, 2), (2, 3)))


def test_older_creators_are_found_by_their_library(implicit: PluginLibrary) -> None:
    assert ctypes.CDLL(implicit.path).countOlderCreators() == 3


def pooled(x: np.ndarray) -> np.ndarray:
    """The largest of each 2 by 2 window."""
    return np.asarray(x.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).max(axis=(3, 5)))


@pytest.mark.parametrize("data_type", [dt.float32, dt.float16, dt.bfloat16, dt.fp8, dt.int8])
def test_the_example_pools_all_its_types(compile_library: Compile, data_type: dt.DataType) -> None:
    registry = PluginRegistry()
    creator = registry.load_library(compile_library("pool_plugin")).creators[0]
    plugin = creator.create_plugin("pool", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    runtime = plugin.get_capability_interface(dt.PluginCapabilityType.RUNTIME)
    x = (np.random.default_rng(0).standard_normal((2, 3, 4, 6)) * 20).astype(data_type.numpy)
    y = np.zeros((2, 3, 2, 3), data_type.numpy)
    descs = [dt.PluginTensorDesc(array.shape, data_type, dt.TensorFormat.LINEAR) for array in (x, y)]
    assert runtime.enqueue(descs[:1], descs[1:], [x.ctypes.data], [y.ctypes.data], 0, 0) == 0
    np.testing.assert_array_equal(y.astype(np.float32), pooled(x.astype(np.float32)))


def test_the_example_pools_to_the_scale_of_its_output(compile_library: Compile) -> None:
    creator = PluginRegistry().load_library(compile_library("pool_plugin")).creators[0]
    plugin = creator.create_plugin("pool", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    runtime = plugin.get_capability_interface(dt.PluginCapabilityType.RUNTIME)
    x = np.array([[[[1, 2, -100, -90], [3, 4, -80, -70], [100, 5, 7, 6], [6, 5, 0, 0]]]], np.int8)
    y = np.zeros((1, 1, 2, 2), np.int8)
    descs = [
        dt.PluginTensorDesc(array.shape, dt.int8, dt.TensorFormat.LINEAR, scale)
        for array, scale in ((x, 0.5), (y, 0.25))
    ]
    assert runtime.enqueue(descs[:1], descs[1:], [x.ctypes.data], [y.ctypes.data], 0, 0) == 0
    assert y.ravel().tolist() == [8, -128, 127, 14]


def test_the_example_shares_its_weights(compile_library: Compile) -> None:
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("shared_weights_plugin"))
    try:
        weights = np.array([1, 10, 100], np.float32)
        fields = dt.PluginFieldCollection([dt.PluginField("weights", weights, dt.PluginFieldType.FLOAT32)])
        creator = registry.get_creator("Weigh", "1")
        plugin = creator.create_plugin("w", fields, dt.TensorRTPhase.BUILD)
        plan, runtime = build_engine(plugin, creator, shape=(2, 3))
        engines = [runtime.deserialize_cuda_engine(plan) for _ in range(2)]
        for engine in engines:
            np.testing.assert_array_equal(engine(X), X * weights)
    finally:
        registry.deregister_library(library)


def test_an_onnx_node_gets_a_plugin_in_cpp(compile_library: Compile) -> None:
    node = helper.make_node("Scale", ["x"], ["y"], domain="acme", plugin_version="2", factor=3.0)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets)
    registry = get_plugin_registry()
    library = registry.load_library(compile_library("older"))
    try:
        np.testing.assert_array_equal(dt.compile(model)(X), 3 * X)
    finally:
        registry.deregister_library(library)


@pytest.mark.parametrize(
    "target",
    [
        "pad_plugin:Pad",
        "older:Scale",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("bar_plugin:Bar", "pool_plugin:Pool")),
    ],
)
def test_plugins_pass_the_checker(compile_library: Compile, target: str) -> None:
    source, _, name = target.partition(":")
    report = check_path(f"{compile_library(source)}:{name}")
    assert report.ok, report.failures


@pytest.mark.slow
@pytest.mark.parametrize("name", ["OneType", "Extended", "InOut"])
def test_plugins_that_never_see_the_batch_pass_the_checker(implicit: PluginLibrary, name: str) -> None:
    report = check_path(f"{implicit.path}:{name}")
    assert report.ok, report.failures


@pytest.mark.parametrize(
    ("mode", "rule", "words"),
    [
        ("enqueue status", "R", "enqueue returned 18"),
        ("enqueue crashes", "R61", "enqueue"),
        ("enqueue throws past noexcept", "R61", "enqueue"),
    ],
)
def test_the_checker_tells_the_callback(compile_library: Compile, mode: str, rule: str, words: str) -> None:
    report = check_path(f"{compile_library('probe')}:Probe", fields={"mode": mode}, shapes=["2x3"])
    found = [(failure.rule.id, failure.message) for failure in report.failures]
    assert [message for number, message in found if number.startswith(rule) and words in message], found
