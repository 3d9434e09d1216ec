"""Plugins and the registry: what fails is printed, logged and answered; the objects of scripts come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail_tensorrt import trt
from tests.support.plugins import PlainCreator, ScalePlugin
from tests.support.trt_objects import KeptMessages, make_network

X = np.float32([1, 2])


class _Failing(ScalePlugin):
    """Fails in one of its methods."""

    fails_in = ""

    def __init__(self, factor: float = 1.0, *rest: Any) -> None:
        super().__init__(factor, *rest)
        self.plugin_name = "Failing"

    def _maybe(self, method: str) -> None:
        if type(self).fails_in == method:
            raise ValueError(f"broken {method}")

    def enqueue(self, *arguments: Any) -> Any:
        self._maybe("enqueue")
        return super().enqueue(*arguments)

    def get_output_data_types(self, input_types: Any) -> Any:
        self._maybe("get_output_data_types")
        return super().get_output_data_types(input_types)

    def supports_format_combination(self, *arguments: Any) -> bool:
        self._maybe("supports_format_combination")
        return bool(super().supports_format_combination(*arguments))

    def configure_plugin(self, in_: Any, out: Any) -> Any:
        self._maybe("configure_plugin")
        return super().configure_plugin(in_, out)

    def attach_to_context(self, resource_context: Any) -> Any:
        self._maybe("attach_to_context")
        return super().attach_to_context(resource_context)


def _engine(logger: Any) -> Any:
    builder, network = make_network(logger)
    builder.get_plugin_registry().register_creator(PlainCreator("Failing", _Failing), "")
    x = network.add_input("x", trt.float32, (2,))
    layer = network.add_plugin_v3(inputs=[x], shape_inputs=[], plugin=_Failing(2.0))
    if layer is None:
        return None
    network.mark_output(layer.get_output(0))
    return builder.build_engine_with_config(network, builder.create_builder_config())


@pytest.fixture(autouse=True)
def _mended() -> Any:
    yield
    _Failing.fails_in = ""


def test_a_plugin_runs() -> None:
    engine = _engine(KeptMessages())
    y = np.zeros(2, np.float32)
    assert engine.create_execution_context().execute_v2([X.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(y, 2 * X)


def test_a_failing_run_is_false_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    logger = KeptMessages()
    context = _engine(logger).create_execution_context()
    _Failing.fails_in = "enqueue"
    y = np.zeros(2, np.float32)
    assert not context.execute_v2([X.ctypes.data, y.ctypes.data])
    printed = capsys.readouterr().err
    assert "[ERROR] Exception thrown from enqueue() ValueError: broken enqueue" in printed
    assert "in _maybe" in printed
    assert logger.errors[0].startswith("IExecutionContext.execute_async_v3: Error Code 2: Internal Error (")
    assert context.error_recorder.num_errors() == 1


@pytest.mark.parametrize("method", ["configure_plugin", "supports_format_combination"])
def test_a_failing_build_is_none_and_printed(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    logger = KeptMessages()
    _Failing.fails_in = method
    assert _engine(logger) is None
    assert f"broken {method}" in "".join(logger.errors)


class _OneTactic(_Failing):
    formats = (dovetail.TensorFormat.LINEAR,)  # type: ignore[assignment]
    tactics = ()  # type: ignore[assignment]


def _build_one(logger: Any, plugin: Any) -> Any:
    builder, network = make_network(logger)
    x = network.add_input("x", trt.float32, (2,))
    layer = network.add_plugin_v3(inputs=[x], shape_inputs=[], plugin=plugin)
    layer.name = "the layer"
    network.mark_output(layer.get_output(0))
    return builder.build_serialized_network(network, builder.create_builder_config())


def test_a_plugin_with_one_candidate_that_raises_gives_no_plan() -> None:
    logger = KeptMessages()
    _Failing.fails_in = "enqueue"
    assert _build_one(logger, _OneTactic(2.0)) is None
    text = "".join(logger.errors)
    assert "layer 'the layer'" in text
    assert "enqueue raised ValueError: broken enqueue" in text


def test_a_plugin_that_writes_nothing_gives_no_plan() -> None:
    class Silent(_OneTactic):
        def enqueue(self, *arguments: Any) -> None:
            pass

    logger = KeptMessages()
    assert _build_one(logger, Silent(2.0)) is None
    assert "wrote none of its outputs" in "".join(logger.errors)


def test_an_alias_without_the_preview_feature_gives_no_plan() -> None:
    class InPlace(_OneTactic, dovetail.IPluginV3OneBuildV2):
        def get_aliased_input(self, output_index: int) -> int:
            return 0

    logger = KeptMessages()
    assert _build_one(logger, InPlace(2.0)) is None
    assert "ALIASED_PLUGIN_IO_10_03" in "".join(logger.errors)


@pytest.mark.parametrize(("declared", "value"), [("INT64", 7), ("INT64", 2**40), ("FLOAT16", 0.5), ("INT8", -3)])
def test_the_parser_gives_fields_their_declared_types(declared: str, value: Any) -> None:
    kind = trt.PluginFieldType[declared]
    seen: list[Any] = []

    class Creator(PlainCreator):
        def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
            seen.extend((field.type, field.size) for field in field_collection)
            return _OneTactic(2.0)

    builder, network = make_network(KeptMessages())
    creator = Creator("Failing", _OneTactic)
    creator.field_names = trt.PluginFieldCollection([trt.PluginField("k", None, kind)])
    builder.get_plugin_registry().register_creator(creator, "")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    )
    model.graph.node[0].op_type = "Failing"
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("k", value))
    parser = trt.OnnxParser(network, KeptMessages())
    assert parser.parse(model.SerializeToString())
    assert set(seen) == {(kind, 1)}


def test_a_plugin_that_fails_at_once_is_not_added(capsys: pytest.CaptureFixture[str]) -> None:
    logger = KeptMessages()
    _Failing.fails_in = "get_output_data_types"
    assert _engine(logger) is None
    assert logger.errors[0].startswith("INetworkDefinition.add_plugin_v3: ")
    assert "[ERROR] Exception thrown from get_output_data_types() ValueError" in capsys.readouterr().err


def test_a_plugin_that_cannot_be_attached_gives_no_context(capsys: pytest.CaptureFixture[str]) -> None:
    logger = KeptMessages()
    engine = _engine(logger)
    _Failing.fails_in = "attach_to_context"
    assert engine.create_execution_context() is None
    assert "Exception thrown from attach_to_context() ValueError" in capsys.readouterr().err


def test_the_registry_answers() -> None:
    logger = KeptMessages()
    registry = trt.Builder(logger).get_plugin_registry()
    creator = PlainCreator("TestScale", ScalePlugin)
    assert registry.register_creator(creator, "here")
    assert not registry.register_creator(PlainCreator("TestScale", ScalePlugin), "here")
    assert registry.get_creator("TestScale", "1", "here") is creator
    assert registry.get_creator("TestScale", "1") is None
    assert creator in registry.all_creators
    assert registry.deregister_creator(creator)
    assert not registry.deregister_creator(creator)
    assert registry.load_library("/no/such/library.py") is None
    assert len(logger.errors) == 2
    assert trt.get_builder_plugin_registry(trt.EngineCapability.STANDARD) is trt.get_plugin_registry()
    assert trt.get_builder_plugin_registry(trt.EngineCapability.SAFETY) is None


def test_resources_are_shared_by_key() -> None:
    class Counter(trt.IPluginResource):
        released = 0

        def clone(self) -> Any:
            return Counter()

        def release(self) -> None:
            Counter.released += 1

    registry = trt.get_plugin_registry()
    first = registry.acquire_plugin_resource("counter", Counter())
    assert registry.acquire_plugin_resource("counter", Counter()) is first
    assert registry.release_plugin_resource("counter")
    assert Counter.released == 0
    assert registry.release_plugin_resource("counter")
    assert Counter.released == 1
    assert not registry.release_plugin_resource("counter")


def test_a_plan_whose_plugin_is_not_registered_is_refused() -> None:
    logger = KeptMessages()
    plan = _engine(logger).serialize()
    runtime = trt.Runtime(logger)
    assert runtime.deserialize_cuda_engine(plan) is None
    assert "Failing" in logger.errors[0]
    assert runtime.get_plugin_registry().register_creator(PlainCreator("Failing", _Failing), "")
    assert runtime.deserialize_cuda_engine(plan) is not None


def test_built_in_plugins_are_registered_once() -> None:
    pytest.importorskip("dovetail_tensorrt.builtin", reason="the built-in plugins are not here", exc_type=ImportError)
    logger = KeptMessages()
    assert trt.init_libnvinfer_plugins(logger, "")
    assert trt.init_libnvinfer_plugins(logger, "")
    assert trt.get_plugin_registry().get_creator("EfficientNMS_TRT", "1", "") is not None


def test_a_tuple_is_a_plugin_layer() -> None:
    _, network = make_network(KeptMessages())
    x = network.add_input("x", trt.float32, (2,))
    layer = network.add_plugin(([x], [], ScalePlugin(3.0)))
    assert isinstance(layer, dovetail.IPluginV3Layer)


def test_plugins_of_scripts_get_addresses_of_a_device_where_there_is_one() -> None:
    assert issubclass(trt.IPluginV3OneBuildV2, trt.IPluginV3OneBuild)
    assert issubclass(trt.IPluginV3OneBuild, dovetail.IPluginV3OneBuild)
    assert trt.IPluginV3OneBuild.preferred_memory == trt.IPluginV3OneBuildV2.preferred_memory == "device"


def test_built_in_plugins_are_added_as_scripts_of_version_10_do() -> None:
    """There they are V2: the creator gets no phase, and the network takes them by ``add_plugin_v2``."""
    logger = KeptMessages()
    trt.init_libnvinfer_plugins(logger, "")
    builder, network = make_network(logger)
    creator = trt.get_plugin_registry().get_plugin_creator("EfficientNMS_TRT", "1")
    counts = {"max_output_boxes": 5, "background_class": -1, "score_activation": 0, "box_coding": 0}
    whole, real = trt.PluginFieldType.INT32, trt.PluginFieldType.FLOAT32
    fields = [trt.PluginField(name, np.array([value], np.int32), whole) for name, value in counts.items()]
    for name in ("score_threshold", "iou_threshold"):
        fields.append(trt.PluginField(name, np.array([0.5], np.float32), real))
    plugin = creator.create_plugin("nms", trt.PluginFieldCollection(fields))
    inputs = [network.add_input(name, trt.float32, (1, 10, size)) for name, size in (("boxes", 4), ("scores", 3))]
    layer = network.add_plugin_v2(inputs, plugin)
    assert layer is not None, logger.errors
    outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
    assert [tuple(output.shape) for output in outputs] == [(1, 1), (1, 5, 4), (1, 5), (1, 5)]
    for output in outputs:
        network.mark_output(output)
    assert builder.build_serialized_network(network, builder.create_builder_config()) is not None, logger.errors
