"""Rule 1.4: outputs that share memory with inputs, and the lengths of names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as trt
from dovetail.plugin import as_array
from tests.conformance.contract.authors import (
    Many,
    Plus,
    PlusCreator,
    build,
    load,
    one_plugin,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


# aliasing


class InPlace(Plus, trt.IPluginV3OneBuildV2):
    """x += addend."""

    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        assert inputs[0] == outputs[0]
        as_array(inputs[0], input_desc[0])[...] += self.addend


def _preview(config: Any) -> None:
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)


def test_an_aliased_output_has_the_address_of_its_input() -> None:
    engine = load(build(one_plugin(InPlace()), configure=_preview), PlusCreator(InPlace))
    assert engine.get_aliased_input_tensor("y0") == "x"
    context = engine.create_execution_context()
    x = X.copy()
    for name in ("x", "y0"):
        context.set_tensor_address(name, x.ctypes.data)
    for turn in (1, 2):
        context.execute_async_v3(0)
        np.testing.assert_array_equal(x, X + turn)


@pytest.mark.parametrize("index", [1, -2, 7])
def test_an_alias_names_an_input(index: int) -> None:
    class Wrong(InPlace):
        def get_aliased_input(self, output_index: int) -> int:
            return index

    with pytest.raises(trt.PluginError, match="get_aliased_input"):
        build(one_plugin(Wrong()), configure=_preview)


def test_an_input_is_aliased_at_most_once() -> None:
    class Greedy(Many, trt.IPluginV3OneBuildV2):
        def get_aliased_input(self, output_index: int) -> int:
            return 0

    with pytest.raises(trt.PluginError, match="get_aliased_input"):
        build(one_plugin(Greedy()), configure=_preview)


@pytest.mark.parametrize("factor", [2, 0])
def test_an_aliased_output_is_as_large_as_its_input(factor: int) -> None:
    class Growing(InPlace):
        tactics = (1, 2)

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            rows = exprBuilder.operation(trt.DimensionOperation.PROD, inputs[0][0], exprBuilder.constant(factor))
            return [trt.DimsExprs([rows, inputs[0][1]])]

        def compute(self, *args: Any) -> None:
            raise AssertionError("it would write past the end of the input")

    with pytest.raises(trt.PluginError, match="shares memory"):
        build(one_plugin(Growing()), configure=_preview)


def test_the_first_build_class_is_never_asked_for_aliases() -> None:
    engine = load(build(one_plugin(Plus()), configure=_preview), PlusCreator())
    assert engine.get_aliased_input_tensor("y0") is None


# names


@pytest.mark.parametrize("attribute", ["plugin_name", "plugin_version", "plugin_namespace"])
@pytest.mark.parametrize("value", [None, 3, "x" * 1024])
def test_names_are_strings_of_at_most_1023_bytes(attribute: str, value: Any) -> None:
    plugin = Plus()
    setattr(plugin, attribute, value)
    with pytest.raises(trt.PluginError, match=attribute):
        build(one_plugin(plugin))


def test_long_names_are_fine() -> None:
    name = "n" * 1023
    plugin = Plus()
    plugin.plugin_name = name
    creator = PlusCreator()
    creator.name = name
    np.testing.assert_array_equal(load(build(one_plugin(plugin)), creator)(X), X + 1)
