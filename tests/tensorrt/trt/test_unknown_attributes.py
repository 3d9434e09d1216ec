"""Attributes that a class does not have: AttributeError as in the binding, and never a value that nothing reads."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dovetail import ContractEnum
from dovetail_tensorrt import trt
from tests.support.layer_cases import CASES, Sketch
from tests.support.trt_objects import KeptMessages, relu_network

for family in ("windows", "elements", "shapes", "axes", "images", "special"):
    importlib.import_module(f"tests.cpu.network.api.cases_{family}")

SUBCLASSED = {
    "IDebugListener",
    "IErrorRecorder",
    "IGpuAllocator",
    "IGpuAsyncAllocator",
    "IInt8Calibrator",
    "IInt8EntropyCalibrator",
    "IInt8EntropyCalibrator2",
    "IInt8LegacyCalibrator",
    "IInt8MinMaxCalibrator",
    "IOutputAllocator",
    "IPluginCapability",
    "IPluginCreatorInterface",
    "IPluginCreatorV3One",
    "IPluginCreatorV3Quick",
    "IPluginResource",
    "IPluginResourceContext",
    "IPluginV3",
    "IPluginV3OneBuild",
    "IPluginV3OneBuildV2",
    "IPluginV3OneCore",
    "IPluginV3OneRuntime",
    "IPluginV3QuickAOTBuild",
    "IPluginV3QuickBuild",
    "IPluginV3QuickCore",
    "IPluginV3QuickRuntime",
    "IProgressMonitor",
    "IStreamReader",
    "IStreamReaderV2",
    "IStreamWriter",
    "IVersionedInterface",
}
"""Interfaces that programs subclass; their instances accept any attribute."""


def _objects() -> dict[str, Any]:
    logger = trt.Logger(trt.Logger.ERROR)
    builder, network = relu_network(logger)
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    weights = network.add_constant((2, 3), np.ones((2, 3), np.float32)).get_output(0)
    total = network.add_elementwise(network.get_output(0), weights, trt.ElementWiseOperation.SUM).get_output(0)
    network.mark_output(total)
    engine = builder.build_engine_with_config(network, config)
    refitter = trt.Refitter(engine, logger)
    parser = trt.OnnxParser(builder.create_network(), logger)
    assert not parser.parse(b"")
    found = [
        logger,
        builder,
        network,
        config,
        builder.create_optimization_profile(),
        config.create_timing_cache(b""),
        network.get_input(0),
        network.add_loop(),
        network.add_if_conditional(),
        parser,
        parser.get_error(0),
        trt.OnnxParserRefitter(refitter, logger),
        refitter,
        engine,
        engine.create_execution_context(),
        engine.create_engine_inspector(),
        engine.create_runtime_config(),
        engine.create_serialization_config(),
        engine.serialize(),
        trt.Runtime(logger),
        trt.get_plugin_registry(),
        trt.TimingCacheKey.parse("key"),
        trt.TimingCacheValue(),
        trt.PluginField(),
        trt.PluginFieldCollection(),
        trt.PluginTensorDesc(),
        trt.DynamicPluginTensorDesc(),
        trt.Weights(),
        trt.Dims((1, 2)),
        trt.Dims2(1, 2),
        trt.DimsHW(1, 2),
        trt.Dims3(1, 2, 3),
        trt.Dims4(1, 2, 3, 4),
        trt.Permutation((1, 0)),
        trt.DimsExprs(2),
        trt.IExprBuilder(),
        trt.IExprBuilder().constant(2),
        trt.ISymExpr(),
        trt.ISymExprs(),
        trt.Profiler(),
        trt.IPluginV3().interface_info,
    ]
    return {type(each).__name__: each for each in (*found, *_boundary_layers(builder.create_network()))} | _layers()


def _boundary_layers(network: Any) -> list[Any]:
    x = network.add_input("x", trt.float32, (2, 3))
    condition = network.add_input("c", trt.bool, ())
    count = network.add_constant((), np.array(2, np.int32)).get_output(0)
    loop, conditional = network.add_loop(), network.add_if_conditional()
    recurrence = loop.add_recurrence(x)
    entering = conditional.add_input(x)
    return [
        loop.add_trip_limit(count, trt.TripLimit.COUNT),
        recurrence,
        loop.add_iterator(x),
        loop.add_loop_output(recurrence.get_output(0), trt.LoopOutput.LAST_VALUE),
        conditional.set_condition(condition),
        entering,
        conditional.add_output(entering.get_output(0), x),
    ]


def _layers() -> dict[str, Any]:
    """One layer of each class, from the cases that walk over every ``add_*``."""
    found: dict[str, Any] = {}
    for case in CASES:
        sketch = Sketch()
        case.make(sketch)
        found.update({type(layer).__name__: layer for layer in sketch.network})
    return found


OBJECTS = _objects()


def _settable(instance: Any) -> list[str]:
    kind = type(instance)
    names = [name for name in dir(kind) if not name.startswith("_") and hasattr(getattr(kind, name), "__set__")]
    return [name for name in names if getattr(getattr(kind, name), "fset", True) is not None]


def test_every_class_of_the_module_rejects_unknown_attributes_or_is_subclassed_by_programs() -> None:
    classes = {name: getattr(trt, name) for name in trt.__all__ if isinstance(getattr(trt, name), type)}
    closed = {kind for name, kind in classes.items() if name not in SUBCLASSED and not issubclass(kind, ContractEnum)}
    with_dict = {kind.__name__ for kind in closed if kind.__dictoffset__}
    assert with_dict == {"InterfaceInfo", "TimingCacheKey"}, "which are frozen dataclasses"
    assert len(closed) > 80


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_an_unknown_attribute_raises_attribute_error(name: str) -> None:
    instance = OBJECTS[name]
    with pytest.raises(AttributeError, match="no_such_attribute"):
        instance.no_such_attribute = 1
    assert not hasattr(instance, "no_such_attribute")


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("IConvolutionLayer", "stride", "stride_nd"),
        ("IConvolutionLayer", "dilation", "dilation_nd"),
        ("IConvolutionLayer", "kernel_size", "kernel_size_nd"),
        ("IPoolingLayer", "window_size", "window_size_nd"),
        ("IPaddingLayer", "pre_padding", "pre_padding_nd"),
        ("ISoftMaxLayer", "axis", "axes"),
        ("IShuffleLayer", "reshape_dim", "reshape_dims"),
        ("IBuilderConfig", "builder_optimisation_level", "builder_optimization_level"),
        ("IBuilderConfig", "max_aux_stream", "max_aux_streams"),
        ("INetworkDefinition", "nmae", "name"),
        ("ITensor", "d_type", "dtype"),
        ("IOptimizationProfile", "extra_memory", "extra_memory_target"),
        ("OnnxParser", "flag", "flags"),
        ("IExecutionContext", "nvtx_verbosty", "nvtx_verbosity"),
        ("Runtime", "DLA_cores", "DLA_core"),
        ("Builder", "max_thread", "max_threads"),
        ("Refitter", "weight_validation", "weights_validation"),
        ("ICudaEngine", "error_recoder", "error_recorder"),
        ("Logger", "min_severty", "min_severity"),
    ],
)
def test_the_message_names_the_class_the_attribute_and_the_nearest_one(kind: str, name: str, meant: str) -> None:
    text = rf"'{kind}' object has no attribute '{name}'\n  fix: did you mean .*'{meant}'"
    with pytest.raises(AttributeError, match=text):
        setattr(OBJECTS[kind], name, 1)


@pytest.mark.parametrize(
    ("kind", "name"), [("ICudaEngine", "num_layers"), ("ITensor", "is_network_input"), ("Weights", "size")]
)
def test_a_read_only_attribute_says_that_it_has_no_setter(kind: str, name: str) -> None:
    with pytest.raises(AttributeError, match="has no setter"):
        setattr(OBJECTS[kind], name, 1)


@pytest.mark.parametrize("name", sorted({*SUBCLASSED, "ILogger", "IProfiler"} - {"IVersionedInterface"}))
def test_a_subclass_of_an_interface_accepts_any_attribute(name: str) -> None:
    kind = type("Mine", (getattr(trt, name),), {})
    try:
        instance = kind()
    except TypeError as error:  # an interface with abstract methods
        pytest.skip(f"{name} is abstract: {error}")
    instance.anything = 1
    assert instance.anything == 1


@pytest.mark.parametrize("kind", [trt.Logger, trt.Builder, trt.Runtime])
def test_a_subclass_of_a_class_of_the_module_accepts_any_attribute(kind: Any) -> None:
    class Mine(kind):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(*() if kind is trt.Logger else (trt.Logger(),))
            self.anything = 1

    assert Mine().anything == 1


def test_a_layer_that_was_parsed_does_not_accept_what_it_ignores() -> None:
    weights = numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv")],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    logger = KeptMessages()
    network = trt.Builder(logger).create_network()
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    layer = next(layer for layer in network if layer.name == "conv")
    layer.__class__ = trt.IConvolutionLayer
    assert tuple(layer.stride_nd) == (1, 1)
    with pytest.raises(AttributeError, match=r"'stride_nd' of layer 'conv' cannot be set.*\n  fix: add a layer"):
        layer.stride_nd = (2, 2)
    with pytest.raises(AttributeError, match="no attribute 'stride'"):
        layer.stride = (2, 2)
    layer.precision = trt.float32
    layer.name = "renamed"
    assert (layer.precision, layer.name) == (trt.float32, "renamed")


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_misspelt_attribute_is_never_accepted(data: Any) -> None:
    instance = OBJECTS[data.draw(st.sampled_from(sorted(OBJECTS)))]
    known = _settable(instance) or ["name"]
    name = data.draw(st.sampled_from(known))
    position = data.draw(st.integers(0, len(name) - 1))
    letter = data.draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz_"))
    edits = [name[:position] + name[position + 1 :], name[:position] + letter + name[position:]]
    edits += [name[:position] + letter + name[position + 1 :], name + "s", name.upper(), name.removesuffix("_nd")]
    misspelt = data.draw(st.sampled_from(edits))
    if not misspelt or hasattr(type(instance), misspelt):
        return
    with pytest.raises(AttributeError):
        setattr(instance, misspelt, 1)


def test_the_layers_of_this_test_are_those_of_the_module() -> None:
    kinds = {kind.__name__ for kind in vars(trt).values() if isinstance(kind, type) and issubclass(kind, trt.ILayer)}
    never_made = {"IAttentionInputLayer", "IAttentionOutputLayer", "IDistCollectiveLayer", "IMoELayer"}
    bases = {"ILayer", "IAttentionBoundaryLayer", "ILoopBoundaryLayer", "IIfConditionalBoundaryLayer"}
    assert kinds - never_made - bases - OBJECTS.keys() == set()
