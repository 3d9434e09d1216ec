"""Custom layers in half precision: a plugin is asked what it takes, and stays where it does not take the type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin.registry import PluginRegistry
from tests.support.plugins import Calls, PlainCreator
from tests.support.typed import TypedPlugin

WEIGHTS = np.random.default_rng(0).uniform(-0.5, 0.5, (8, 8)).astype(np.float32)


class FloatOnly(TypedPlugin):
    types = (dt.float32,)


class Failing(TypedPlugin):
    def get_output_data_types(self, input_types: Any) -> Any:
        if dt.float16 in input_types:
            raise ValueError("no halves here")
        return super().get_output_data_types(input_types)


def _compile(plugin: Any, precision: str | dt.PrecisionOptions = "fp16") -> dt.Engine:
    """A product, the plugin, and another product, in half precision."""
    network = dt.Builder().create_network()
    tensor = network.add_input("x", dt.float32, (4, 8))
    for name in ("before", "custom", "after"):
        if name == "custom":
            layer: Any = network.add_plugin_v3([tensor], [], plugin)
        else:
            weights = network.add_constant((8, 8), dt.Weights(WEIGHTS)).get_output(0)
            none = dt.MatrixOperation.NONE
            layer = network.add_matrix_multiply(tensor, none, weights, none)
        layer.name = name
        tensor = layer.get_output(0)
    tensor.name = "y"
    network.mark_output(tensor)
    registry = PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", type(plugin)), "")
    return dt.compile(network, precision=precision, registry=registry)


def _types(engine: dt.Engine) -> dict[str, tuple[str, str]]:
    return {row.layer: (row.type, row.reason) for row in engine.manifest.precision}


def test_a_plugin_that_takes_halves_gets_them() -> None:
    calls: Calls = []
    engine = _compile(TypedPlugin(2.0, calls))
    assert _types(engine)["custom"] == ("fp16", "")
    x = np.random.default_rng(1).uniform(-1, 1, (4, 8)).astype(np.float32)
    np.testing.assert_allclose(engine(x), 2 * x @ WEIGHTS @ WEIGHTS, atol=5e-3)
    program = engine.manifest.programs[0]
    (step,) = [step for step in program.steps if step.kind == "plugin"]
    assert [program.values[index].dtype for index in (*step.inputs, *step.outputs)] == ["float16", "float16"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FloatOnly, "plugin 'TestScale' takes no HALF"),
        (Failing, "plugin 'TestScale' fails when it is asked: get_output_data_types raised ValueError: no halves here"),
    ],
)
def test_a_plugin_that_does_not_stays_in_fp32_between_halves(kind: Any, reason: str) -> None:
    engine = _compile(kind(2.0))
    assert _types(engine)["custom"] == ("fp32", reason)
    assert _types(engine)["before"] == _types(engine)["after"] == ("fp16", "")
    x = np.random.default_rng(1).uniform(-1, 1, (4, 8)).astype(np.float32)
    np.testing.assert_allclose(engine(x), 2 * x @ WEIGHTS @ WEIGHTS, atol=5e-3)


def test_a_plugin_is_kept_by_the_name_of_its_operator() -> None:
    kept = _compile(TypedPlugin(2.0), dt.PrecisionOptions(float_type="fp16", keep_ops=["TestScale"]))
    assert _types(kept)["custom"] == ("fp32", "operator TestScale is kept")
    with pytest.raises(dt.UsageError, match=r"no operator 'Scale'; expected MatMul, TestScale"):
        _compile(TypedPlugin(2.0), dt.PrecisionOptions(float_type="fp16", keep_ops=["Scale"]))
