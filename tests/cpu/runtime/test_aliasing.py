"""Outputs that share memory with inputs: only with the preview feature, without copies where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin import as_array
from tests.support.plugins import PlainCreator, ScalePlugin


class InPlace(ScalePlugin, dt.IPluginV3OneBuildV2):
    """Adds its factor to x in place."""

    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestInPlace"

    def get_aliased_input(self, output_index: int) -> int:
        self.note("get_aliased_input")
        return 0

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
        self.note("enqueue", (inputs[0], outputs[0]))
        if inputs[0] == outputs[0]:
            as_array(outputs[0], output_desc[0])[...] += np.float32(self.factor)
        else:
            as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0]) + np.float32(self.factor)


def _build(build: Any, *, enabled: bool = True, calls: list | None = None) -> Any:
    builder = dt.Builder()
    network = builder.create_network()
    build(network)
    config = builder.create_builder_config()
    config.set_preview_feature(dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, enabled)
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(
        PlainCreator("TestInPlace", lambda factor: InPlace(factor, calls)), ""
    )
    return runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))


def _simple(network: Any) -> None:
    x = network.add_input("x", dt.float32, (2, 3))
    y = network.add_plugin_v3([x], [], InPlace(5.0)).get_output(0)
    y.name = "y"
    network.mark_output(y)


def test_an_input_is_updated_in_place() -> None:
    calls: list = []
    engine = _build(_simple, calls=calls)
    assert engine.get_aliased_input_tensor("y") == "x"
    assert [step.kind for step in engine.manifest.programs[0].steps] == ["plugin"]
    x = np.zeros((2, 3), np.float32)
    y = engine(x)
    assert y.ctypes.data == x.ctypes.data
    engine(x)
    np.testing.assert_allclose(x, 10.0)
    address = next(detail for name, detail in calls if name == "enqueue")
    assert address == (x.ctypes.data, x.ctypes.data)


def test_without_the_feature_the_build_fails() -> None:
    with pytest.raises(dt.PluginError, match="ALIASED_PLUGIN_IO_10_03 is off"):
        _build(_simple, enabled=False)


def test_both_tensors_need_the_same_address() -> None:
    context = _build(_simple).create_execution_context()
    x, y = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    with pytest.raises(dt.InputError, match="shares memory with input 'x'"):
        context.execute_async_v3(0)
    context.set_tensor_address("y", x.ctypes.data)
    context.execute_async_v3(0)
    np.testing.assert_allclose(x, 5.0)


def test_a_read_only_array_cannot_be_updated_in_place() -> None:
    x = np.zeros((2, 3), np.float32)
    x.flags.writeable = False
    with pytest.raises(dt.InputError, match="read-only"):
        _build(_simple)(x)


def test_a_value_that_is_still_needed_is_copied_first() -> None:
    def shared(network: Any) -> None:
        x = network.add_input("x", dt.float32, (2, 3))
        doubled = network.add_elementwise(x, x, dt.ElementWiseOperation.SUM).get_output(0)
        changed = network.add_plugin_v3([doubled], [], InPlace(5.0)).get_output(0)
        total = network.add_elementwise(doubled, changed, dt.ElementWiseOperation.SUM).get_output(0)
        total.name = "y"
        network.mark_output(total)

    engine = _build(shared)
    np.testing.assert_allclose(engine(np.ones((2, 3), np.float32)), 9.0)


def test_an_intermediate_value_is_updated_in_place() -> None:
    def chain(network: Any) -> None:
        x = network.add_input("x", dt.float32, (2, 3))
        doubled = network.add_elementwise(x, x, dt.ElementWiseOperation.SUM).get_output(0)
        changed = network.add_plugin_v3([doubled], [], InPlace(5.0)).get_output(0)
        result = network.add_unary(changed, dt.UnaryOperation.NEG).get_output(0)
        result.name = "y"
        network.mark_output(result)

    engine = _build(chain)
    assert [step.kind for step in engine.manifest.programs[0].steps] == ["partition", "plugin", "partition"]
    np.testing.assert_allclose(engine(np.ones((2, 3), np.float32)), -7.0)
    np.testing.assert_allclose(engine(np.ones((2, 3), np.float32)), -7.0)


def test_a_constant_is_never_written_to() -> None:
    def constant(network: Any) -> None:
        x = network.add_input("x", dt.float32, (2, 3))
        ones = network.add_constant((2, 3), np.ones((2, 3), np.float32)).get_output(0)
        changed = network.add_plugin_v3([ones], [], InPlace(5.0)).get_output(0)
        total = network.add_elementwise(x, changed, dt.ElementWiseOperation.SUM).get_output(0)
        total.name = "y"
        network.mark_output(total)

    engine = _build(constant)
    for _ in range(2):
        np.testing.assert_allclose(engine(np.zeros((2, 3), np.float32)), 6.0)


class AddsInPlace(InPlace):
    """Adds its factor to its first input in place, then what its second input holds."""

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestAddsInPlace"

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
        as_array(outputs[0], output_desc[0])[...] += np.float32(self.factor)
        as_array(outputs[0], output_desc[0])[...] += as_array(inputs[1], input_desc[1])


@pytest.mark.parametrize("is_input", [True, False], ids=["input", "value"])
def test_a_layer_that_reads_one_tensor_twice_overwrites_a_copy(is_input: bool) -> None:
    builder = dt.Builder()
    builder.get_plugin_registry().register_creator(PlainCreator("TestAddsInPlace", AddsInPlace), "")
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    read = x if is_input else network.add_unary(x, dt.UnaryOperation.NEG).get_output(0)
    network.mark_output(network.add_plugin_v3([read, read], [], AddsInPlace(5.0)).get_output(0))
    config = builder.create_builder_config()
    config.set_preview_feature(dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    engine = builder.build_engine_with_config(network, config)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = (values if is_input else -values) * 2 + 5
    np.testing.assert_array_equal(engine(values.copy()), expected)
