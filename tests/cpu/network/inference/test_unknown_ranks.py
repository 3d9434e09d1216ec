"""Shapes that inference must not guess, and ranks that it must not lose."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import dovetail as dt
from dovetail.network.importer.importer import import_model
from dovetail.network.inference.dim_exprs import describe_shape
from dovetail.network.inference.shapes import ShapeInference
from tests.support.plugins import PlainCreator, ScalePlugin

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def _parse(text: str, opset: int = 20) -> onnx.ModelProto:
    """A model whose outputs say nothing of their shape."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "test" : 1]>\n{text}')
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def _shapes(model: onnx.ModelProto) -> dict[str, str | None]:
    imported = import_model(model)
    inference = ShapeInference(imported.opset_imports)
    inference.infer_graph(imported.graph)
    values = [value for node in imported.graph for value in node.outputs]
    return {value.name or "": None if value.shape is None else describe_shape(value.shape) for value in values}


HIDDEN = "q = SequenceConstruct(x, x) h = ConcatFromSequence<axis = 0>(q)"
"""Something of which nobody knows the rank before the run."""


@pytest.mark.parametrize(
    ("body", "opset", "shape"),
    [
        ("s = Shape(x) y = ConstantOfShape(s)", 20, "[n,4]"),
        ("s = Shape(x) t = Mod(s, s) y = ConstantOfShape(t)", 20, "[_d0,_d1]"),
        (f"{HIDDEN} y = ReduceMax<keepdims = 0>(h)", 20, "[]"),
        (f"{HIDDEN} y = ReduceMax<keepdims = 0>(h)", 13, "[]"),
        (f"{HIDDEN} y = ReduceMax(h)", 20, None),
        (f"{HIDDEN} y = Flatten<axis = 2>(h)", 20, "[_d0,_d1]"),
        ("y = Slice<starts = [1], ends = [3], axes = [1]>(x)", 9, "[n,2]"),
        ("y = Slice<starts = [1], ends = [100]>(x)", 9, "[max(0, min(100, n) - min(1, n)),4]"),
        ("y, i = TopK<k = 2>(x)", 9, "[n,2]"),
    ],
)
def test_ranks_that_are_known(body: str, opset: int, shape: str | None) -> None:
    shapes = _shapes(_parse(f"g (float[n,4] x) => (float y) {{ {body} }}", opset))
    assert shapes["y"] == shape


@pytest.mark.parametrize(
    "body",
    [
        "one = Constant<value_ints = [1]>() y = Expand(h, one)",
        "y = Compress<axis = 0>(h, b)",
        "y = Attention<q_num_heads = 1, kv_num_heads = 1>(a, a, h)",
        "y = Attention<q_num_heads = 1, kv_num_heads = 1>(a, h, a)",
    ],
)
def test_nothing_is_said_of_what_depends_on_an_unknown_rank(body: str) -> None:
    text = f"g (float[n,4] x, bool[2] b, float[1,2,4] a) => (float y) {{ {HIDDEN} {body} }}"
    assert _shapes(_parse(text, 23))["y"] is None


def test_expanding_something_of_unknown_rank_gives_its_own_shape() -> None:
    model = _parse(
        f"g (float[n,4] x) => (float y) <int64[1] one = {{1}}> {{ {HIDDEN} e = Expand(h, one) y = Relu(e) }}"
    )
    for providers in (None, ["cpu"]):
        np.testing.assert_array_equal(dt.compile(model, providers=providers)(X), np.concatenate([X, X]))


@pytest.mark.parametrize("end", [-(2**63) + 1, -(2**63), -(2**31), -9, -3])
def test_a_shape_that_is_read_backwards_keeps_its_first_size(end: int) -> None:
    text = f"""g (float[n,4] x) => (float y)
        <int64[1] a = {{-1}}, int64[1] e = {{{end}}}, int64[1] zero = {{0}}, float one = {{1}}>
        {{ s = Shape(x) r = Slice(s, a, e, zero, a) y = Expand(one, r) }}"""
    for providers in (None, ["cpu"]):
        assert dt.compile(_parse(text), providers=providers)(X).shape == (4, 3)


@pytest.mark.parametrize(("policy", "shape"), [("not_larger", (4, 5)), ("not_smaller", (6, 8)), ("stretch", (6, 5))])
@pytest.mark.parametrize("rows", ["3", "n"])
def test_sizes_that_follow_from_the_aspect_ratio(policy: str, shape: tuple[int, int], rows: str) -> None:
    text = f"""g (float[{rows},4] x) => (float y) <int64[2] sizes = {{6, 5}}>
        {{ r = Resize<mode = "nearest", keep_aspect_ratio_policy = "{policy}">(x, "", "", sizes) y = Neg(r) }}"""
    for providers in (None, ["cpu"]):
        assert dt.compile(_parse(text), providers=providers)(X).shape == shape


@pytest.mark.parametrize("rows", ["2", "n"])
def test_a_choice_that_is_broadcast_by_its_condition_is_as_long_as_that(rows: str) -> None:
    text = f"""g (bool[{rows}] c, float[5] z) => (int64 y, int64 w) <int64[1] k = {{-1}}, int64[1] e = {{-9}}>
        {{ s = Shape(z) v = Where(c, s, s) y = Neg(v) w = Slice(v, k, e, zero, k) }}"""
    model = _parse(text.replace("<int64[1] k", "<int64[1] zero = {0}, int64[1] k"))
    for providers in (None, ["cpu"]):
        results = dt.compile(model, providers=providers)(np.array([True, False]), np.zeros(5, np.float32))
        assert [results[name].tolist() for name in ("y", "w")] == [[-5, -5], [5, 5]]


def test_a_plugin_behind_a_computed_fill_can_be_built() -> None:
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", lambda factor: ScalePlugin(factor)), "")
    text = """g (float[n,4] x) => (float y) { s = Shape(x) c = ConstantOfShape<value = float[1] {1.5}>(s)
        m = ReduceMin<keepdims = 0>(c) d = test.TestScale<factor = -1.0>(c) y = Sub(d, m) }"""
    for providers in (None, ["cpu"]):
        engine = dt.compile(_parse(text), providers=providers, registry=registry)
        np.testing.assert_array_equal(engine(X), np.full((3, 4), -3.0, np.float32))


def test_what_comes_out_of_a_sequence_has_no_known_rank() -> None:
    """The others here rest on it."""
    assert _shapes(_parse(f"g (float[n,4] x) => (float y) {{ {HIDDEN} y = Neg(h) }}"))["h"] is None
