"""Shapes that onnx-shape-inference would get wrong or take minutes for."""

from __future__ import annotations

import time

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from dovetail.errors import ModelError
from dovetail.network.importer.importer import import_model

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


def make(text: str, opset: int = 21) -> ir.Model:
    return import_model(parser.parse_model(HEADER.replace("21", str(opset)) + text))


def shapes(model: ir.Model) -> list[str]:
    return [str(value.shape) for value in model.graph.outputs]


def test_split_by_a_constant() -> None:
    text = "agraph (float[6] x) => (float[a] y, float[b] z) <int64[2] s = {2, 4}> { y, z = Split<axis = 0>(x, s) }"
    assert shapes(make(text)) == ["[2]", "[4]"]


def test_split_by_an_input() -> None:
    text = "agraph (float[N,6] x, int64[2] s) => (float[N,a] y, float[N,b] z) { y, z = Split<axis = -1>(x, s) }"
    assert shapes(make(text)) == ["[N,value_s_0]", "[N,value_s_1]"]


def test_split_by_something_computed() -> None:
    text = """agraph (float[6] x, float[2] f) => (float[a] y, float[b] z)
        { s = Cast<to = 7>(f) y, z = Split<axis = 0>(x, s) }"""
    first, second = shapes(make(text))
    assert first != second
    assert "6" not in first + second
    assert "3" not in first + second


def test_split_along_an_axis_that_is_not_there() -> None:
    with pytest.raises(ModelError, match="axis 5 is out of range"):
        make("agraph (float[6] x, int64[2] s) => (float[a] y, float[b] z) { y, z = Split<axis = 5>(x, s) }")


def test_squeeze_by_an_input_keeps_the_rank_right() -> None:
    model = make("agraph (float[1,3,1,5] x, int64[1] a) => (float[p,q,r] y) { y = Squeeze(x, a) }")
    shape = model.graph.outputs[0].shape
    assert shape is not None
    assert len(shape) == 3
    assert not any(isinstance(dim, int) for dim in shape)


def test_squeeze_by_a_constant() -> None:
    text = "agraph (float[1,3,1,5] x) => (float[p,q,r] y) <int64[1] a = {-2}> { y = Squeeze(x, a) }"
    assert shapes(make(text)) == ["[1,3,5]"]


def test_unique_along_an_axis() -> None:
    text = "agraph (float[2,N] x) => (float y, int64 i, int64 v, int64 c) { y, i, v, c = Unique<axis = 1>(x) }"
    y, i, v, c = make(text).graph.outputs
    assert y.shape is not None
    assert i.shape is not None
    assert c.shape is not None
    assert y.shape[0] == 2
    assert y.shape[1] == i.shape[0] == c.shape[0]
    assert str(v.shape) == "[N]"
    assert [value.dtype for value in (i, v, c)] == [ir.DataType.INT64] * 3


def test_long_vectors_are_quick() -> None:
    start = time.perf_counter()
    text = """agraph (float[9000000] x, float[N] z) => (float[M] y, float[K] w)
        { y = Concat<axis = 0>(x, x) w = Concat<axis = 0>(x, z) }"""
    assert shapes(make(text)) == ["[18000000]", "[N + 9000000]"]
    assert time.perf_counter() - start < 5


def test_long_integers_are_data() -> None:
    model = make("agraph (int64[1] x) => (int64[M] y) <int64[1] w = {1}> { t = Add(w, w) y = Mul(x, t) }")
    twin = ir.to_proto(model)
    twin.graph.initializer[0].CopyFrom(ir.to_proto(ir.tensor(np.arange(500_000), name="w")))
    start = time.perf_counter()
    assert shapes(import_model(twin)) == ["[500000]"]
    assert time.perf_counter() - start < 5


def test_a_shape_with_too_many_dimensions() -> None:
    with pytest.raises(ModelError, match="a shape of 1000 dimensions"):
        make("agraph (float[4] x, int64[1000] s) => (float y) { y = Reshape(x, s) }")


@pytest.mark.parametrize("op", ["Add", "Mul", "Less", "Max"])
def test_shapes_that_cannot_be_broadcast(op: str) -> None:
    kind = "bool" if op == "Less" else "float"
    with pytest.raises(ModelError, match="2 and 3 cannot be broadcast"):
        make(f"agraph (float[4,2] x, float[4,3] z) => ({kind}[a,b] y) {{ y = {op}(x, z) }}")


def test_the_old_broadcast_attribute() -> None:
    text = "agraph (float[2,3,4] x, float[3] z) => (float[2,3,4] y) { y = Add<broadcast = 1, axis = 1>(x, z) }"
    assert [node.op_type for node in make(text, opset=6).graph] == ["Unsqueeze", "Add"]


_KEPT_OUT = """agraph (float[N,1] x, float[N,M] z) => (float[a,b] y) <int64[2] o = {1, 1}, int64[2] m = {-1, -1}>
    { s = Shape(z) e = Equal(s, m) w = Where(e, o, s) y = Expand(x, w) }"""


def test_a_choice_that_keeps_minus_one_out_of_sizes_is_known() -> None:
    assert shapes(make(_KEPT_OUT)) == ["[N,M]"]


def test_a_choice_by_what_callers_pass_is_not_known() -> None:
    text = """agraph (float[N,1] x, int64[2] s) => (float[a,b] y) <int64[2] o = {1, 1}, int64[2] m = {-1, -1}>
        { e = Equal(s, m) w = Where(e, o, s) y = Expand(x, w) }"""
    assert "value_s_0" not in shapes(make(text))[0]


def test_a_choice_between_sizes_that_may_be_equal_is_not_known() -> None:
    text = _KEPT_OUT.replace("{-1, -1}", "{4, 4}")
    assert shapes(make(text)) != ["[N,M]"]
