"""Conversions of element types, by a layer, by the type of an output and by a parsed model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from dovetail_tensorrt import trt
from tests.support.trt_objects import KeptMessages

ENTRIES = ["cast", "identity", "output type", "model"]
PROVIDERS = [None, ["cpu"]]
ONNX_TYPES = {trt.float32: TensorProto.FLOAT, trt.float16: TensorProto.FLOAT16}


def _fill(network: Any, logger: Any, entry: str, source: Any, target: Any, count: int) -> None:
    if entry == "model":
        number = {trt.uint8: TensorProto.UINT8, trt.int8: TensorProto.INT8, trt.int32: TensorProto.INT32}[target]
        graph = helper.make_graph(
            [helper.make_node("Cast", ["x"], ["y"], to=number)],
            "cast",
            [helper.make_tensor_value_info("x", ONNX_TYPES[source], [count])],
            [helper.make_tensor_value_info("y", number, [count])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
        return
    x = network.add_input("x", source, (count,))
    if entry == "cast":
        layer = network.add_cast(x, target)
    elif entry == "identity":
        layer = network.add_identity(x)
        layer.set_output_type(0, target)
    else:
        layer = network.add_activation(x, trt.ActivationType.RELU)
    y = layer.get_output(0)
    y.name = "y"
    network.mark_output(y)
    if entry == "output type":
        y.dtype = target


def _convert(entry: str, values: np.ndarray, source: Any, target: Any, providers: Any = None) -> np.ndarray:
    logger = KeptMessages()
    builder = trt.Builder(logger)
    network = builder.create_network()
    _fill(network, logger, entry, source, target, values.size)
    config = builder.create_builder_config()
    config.providers = providers
    engine = builder.build_engine_with_config(network, config)
    context = engine.create_execution_context()
    x, y = values.astype(trt.nptype(source)), np.zeros(values.size, trt.nptype(target))
    assert engine.get_tensor_dtype("y") == target
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    return y


@pytest.mark.parametrize("providers", PROVIDERS)
@pytest.mark.parametrize("source", [trt.float32, trt.float16])
@pytest.mark.parametrize("entry", ENTRIES)
def test_floats_become_uint8_by_truncation_towards_zero(entry: str, source: Any, providers: Any) -> None:
    values = np.array([0.0, 0.5, 0.99, 1.5, 2.5, 127.5, 128.0, 254.9, 255.5], np.float32)
    result = _convert(entry, values, source, trt.uint8, providers)
    np.testing.assert_array_equal(result, [0, 0, 0, 1, 2, 127, 128, 254, 255])


@pytest.mark.parametrize("providers", PROVIDERS)
def test_a_cast_to_uint8_does_not_saturate(providers: Any) -> None:
    values = np.array([-1.0, -1.5, -300.0, 256.0, 300.0], np.float32)
    np.testing.assert_array_equal(_convert("cast", values, trt.float32, trt.uint8, providers), [255, 255, 212, 0, 44])


def test_an_identity_layer_takes_back_its_conversion() -> None:
    network = trt.Builder(KeptMessages()).create_network()
    layer = network.add_identity(network.add_input("x", trt.float32, (2,)))
    layer.set_output_type(0, trt.uint8)
    assert layer.get_output(0).dtype == trt.uint8
    layer.set_output_type(0, trt.float16)
    assert layer.get_output(0).dtype == trt.float16
    layer.reset_output_type(0)
    assert layer.get_output(0).dtype == trt.float32


@settings(max_examples=20, deadline=None)
@given(
    values=st.lists(st.floats(0, 255.875, width=16), min_size=1, max_size=70),
    entry=st.sampled_from(ENTRIES),
    source=st.sampled_from([trt.float32, trt.float16]),
    target=st.sampled_from([trt.uint8, trt.int32]),
    providers=st.sampled_from(PROVIDERS),
)
def test_values_in_range_are_truncated_by_every_entry(
    values: list[float], entry: str, source: Any, target: Any, providers: Any
) -> None:
    array = np.array(values, np.float32)
    np.testing.assert_array_equal(_convert(entry, array, source, target, providers), np.trunc(array))
