"""What has no elements: loops that never run, and inputs with a dimension of 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import dovetail as dt
from tests.support.plugins import PlainCreator, ScalePlugin

X = np.ones((3, 4), np.float32)


def _parse(text: str) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "test" : 1]>\n{text}')
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def _registry() -> dt.PluginRegistry:
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", lambda factor: ScalePlugin(factor)), "")
    return registry


@pytest.mark.parametrize("op", ["Neg", "test.TestScale<factor = -1.0>"])
@pytest.mark.parametrize(("rows", "expected"), [("3", (0, 3, 4)), ("n", (0, 0, 4))])
def test_what_a_loop_that_never_runs_collects_has_its_rank(
    op: str, rows: str, expected: tuple[int, ...], tmp_path: Path
) -> None:
    """Sizes that only a round would tell are 0."""
    model = _parse(f"""g (float[{rows},4] x, int64 count) => (float y)
        {{ last, parts = Loop(count, "", x) <body = b (int64 i, bool go, float[{rows},4] s)
             => (bool on, float[{rows},4] t, float[{rows},4] part) {{ on = Identity(go) t = {op}(s) part = Abs(t) }}>
           bias = Constant<value = float[1,1,4] {{1, 2, 3, 4}}>() y = Add(bias, parts) }}""")
    engine = dt.compile(model, providers=["cpu"], registry=_registry())
    assert engine(X, np.array(0)).shape == expected
    assert engine(X, np.array(2)).shape == (2, 3, 4)
    engine.save(tmp_path / "loop.plan")
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestScale", lambda factor: ScalePlugin(factor)), "")
    assert runtime.load_engine(tmp_path / "loop.plan")(X, np.array(0)).shape == expected


def _padded(providers: Any) -> dt.Engine:
    """A slice that cuts one off, and two in front of it: one more than comes in, and two when nothing does."""
    text = """g (float[n] x) => (float y)
        <int64[1] one = {1}, int64[1] end = {9223372036854775807}, int64[2] pads = {2, 0}>
        { s = Slice(x, one, end) p = Pad(s, pads) y = Cos(p) }"""
    return dt.compile(_parse(text), providers=providers)


def test_a_partition_gives_what_an_empty_input_makes() -> None:
    engine = _padded(None)
    assert [engine(np.zeros(size, np.float32)).shape[0] for size in (1, 0, 3)] == [2, 2, 4]


def test_kernels_give_what_an_empty_input_makes() -> None:
    engine = _padded(["cpu"])
    assert [engine(np.zeros(size, np.float32)).shape[0] for size in (1, 0, 3)] == [2, 2, 4]


def test_an_empty_input_whose_shapes_were_not_worked_out_is_named() -> None:
    """Of two dims that are broadcast the plan stores the larger one, which is wrong for 0 and 1."""
    model = _parse("""g (float[n] x, float[m] z) => (float y)
        { a = Add(x, z) c = Concat<axis = 0>(a, x) y = Cos(c) }""")
    engine = dt.compile(model, providers=["cpu"])
    assert engine(np.zeros(1, np.float32), np.zeros(3, np.float32)).shape == (4,)
    with pytest.raises(dt.InputError, match="a dimension of an input is 0"):
        engine(np.zeros(1, np.float32), np.zeros(0, np.float32))
    assert engine(np.zeros(3, np.float32), np.zeros(1, np.float32)).shape == (6,)


@pytest.mark.parametrize(
    ("product", "kind", "expected"),
    [("MatMulInteger(x, w)", "int32", 0), ("QLinearMatMul(x, s, z, w, s, z, s, z)", "uint8", 5)],
)
def test_a_sum_of_no_products_of_integers_is_zero(product: str, kind: str, expected: int) -> None:
    """ONNX Runtime gives what was in memory before."""
    model = _parse(f"""g (uint8[n,0] x) => ({kind} y) <uint8[0,64] w = {{}}, float s = {{1}}, uint8 z = {{5}}>
        {{ y = {product} }}""")
    engine = dt.compile(model)
    for rows in (3, 4):
        np.testing.assert_array_equal(engine(np.zeros((rows, 0), np.uint8)), np.full((rows, 64), expected))
