"""A namespace may be an ONNX domain: a node of a domain finds the plugin of that namespace."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail as dt
from dovetail.plugin import as_array
from tests.support.plugins import PlainCreator, ScalePlugin

HEAD = '<ir_version: 10, opset_import: ["" : 21, "my" : 1, "other" : 1]> '
X = np.array([-2.0, 3.0], np.float32)


def _model(op: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {{ y = {op}(x) }}")


class MyScale(ScalePlugin):
    """The plugin of the namespace that is a domain, which changes the sign too."""

    def __init__(self, factor: float = 2.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_namespace = "my"

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        as_array(outputs[0], output_desc[0])[...] *= -1


@pytest.fixture
def registry() -> dt.PluginRegistry:
    return dt.PluginRegistry(parent=dt.get_plugin_registry())


def test_a_layer_of_a_namespace_is_found_by_its_domain() -> None:
    @dt.layer("my::SwishClip")
    def swish_clip(x):  # type: ignore[no-untyped-def]
        return np.clip(x, 0, 1)

    model = _model("my.SwishClip")
    np.testing.assert_array_equal(dt.compile(model)(X), [0.0, 1.0])
    (support,) = dt.find_support(ir.from_proto(model))
    assert support.is_plugin


def test_a_creator_of_a_namespace_is_found_by_its_domain(registry: dt.PluginRegistry) -> None:
    registry.register_creator(PlainCreator("TestScale", MyScale), "my")
    engine = dt.compile(_model("my.TestScale<factor = 2.0>"), registry=registry)
    np.testing.assert_array_equal(engine(X), X * -2)
    with pytest.raises(dt.UnsupportedOpError, match="TestScale"):
        dt.compile(_model("other.TestScale<factor = 2.0>"), registry=registry)


def test_the_namespace_of_the_domain_goes_before_none(registry: dt.PluginRegistry) -> None:
    registry.register_creator(PlainCreator("TestScale", ScalePlugin), "")
    np.testing.assert_array_equal(dt.compile(_model("my.TestScale<factor = 2.0>"), registry=registry)(X), X * 2)
    registry.register_creator(PlainCreator("TestScale", MyScale), "my")
    np.testing.assert_array_equal(dt.compile(_model("my.TestScale<factor = 2.0>"), registry=registry)(X), X * -2)
    np.testing.assert_array_equal(dt.compile(_model("other.TestScale<factor = 2.0>"), registry=registry)(X), X * 2)


def test_the_attribute_goes_before_the_domain(registry: dt.PluginRegistry) -> None:
    registry.register_creator(PlainCreator("TestScale", ScalePlugin), "my")
    with pytest.raises(dt.UnsupportedOpError, match="namespace"):
        dt.compile(_model('my.TestScale<factor = 2.0, plugin_namespace = "elsewhere">'), registry=registry)
