"""Types and shapes of what plugins make, asked without a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir
import pytest

import dovetail as dt
from dovetail.network.plugin_outputs import infer_plugin_outputs


@pytest.fixture
def registry() -> Iterator[dt.PluginRegistry]:
    made = dt.PluginRegistry()
    yield made
    made.close()


def _value(name: str, *dims: int | str) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(dims))


def _dims(value: ir.Value) -> list[Any]:
    assert value.shape is not None
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape]


def test_every_output_has_a_type_and_a_shape(registry: dt.PluginRegistry) -> None:
    def split(x: Any, *, keep: int) -> Any:
        return x[:, :keep], x[:, keep:]

    shapes: Any = lambda x, *, keep: ((x[0], keep), (x[0], x[1] - keep))  # noqa: E731
    registry.register_creator(dt.layer("AcmeSplit", outputs=2, shape=shapes)(split).creator)
    attributes = [ir.AttrInt64("keep", 3)]
    first, second = infer_plugin_outputs("AcmeSplit", "acme", [_value("x", "N", 8)], attributes, registry=registry)
    assert (first.dtype, second.dtype) == (ir.DataType.FLOAT, ir.DataType.FLOAT)
    assert (_dims(first), _dims(second)) == (["N", 3], ["N", 5])


def test_inputs_are_left_as_they_are(registry: dt.PluginRegistry) -> None:
    registry.register_creator(dt.layer("AcmeSame")(_same).creator)
    x = _value("x", 2, 3)
    (y,) = infer_plugin_outputs("AcmeSame", "acme", [x], [], registry=registry)
    assert _dims(y) == [2, 3]
    assert (_dims(x), x.producer()) == ([2, 3], None)


def _same(x: Any) -> Any:
    return x


def test_an_operator_without_a_plugin_is_named(registry: dt.PluginRegistry) -> None:
    with pytest.raises(dt.UnsupportedOpError, match="AcmeNothing"):
        infer_plugin_outputs("AcmeNothing", "acme", [_value("x", 2)], [], registry=registry)
