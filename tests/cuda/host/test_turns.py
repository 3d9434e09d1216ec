"""Regions that read across what they write become tiles that read along one side and write along the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ElementRegion
from dovetail_cuda.tune.turns import turn_region
from tests.cuda.inputs import make_inputs

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
TURNED = {
    "two": "(float[70,50] x) => (float[50,70] y) { y = Transpose(x) }",
    "image": "(float16[2,36,7,9] x) => (float16[2,7,9,36] y) { a = Relu(x) y = Transpose<perm=[0,2,3,1]>(a) }",
    "back": "(float[2,7,9,36] x) => (float[2,36,7,9] y) { y = Transpose<perm=[0,3,1,2]>(x) }",
    "with a straight one": "(float[40,33] x, float[33,40] z, float[40] b) => (float[33,40] y) {"
    " t = Transpose(x) s = Add(t, z) y = Mul(s, b) }",
    "cut": """(float[40,64] x) => (float[60,40] y) {
        t = Transpose(x) s = Constant<value=int64[1]{2}>() e = Constant<value=int64[1]{62}>() y = Slice(t, s, e) }""",
    "padded": """(float[20,30] x) => (float[34,20] y) {
        p = Constant<value=int64[4]{0,1,0,3}>() q = Pad(x, p) y = Transpose(q) }""",
}
STRAIGHT = {
    "same order": "(float[70,50] x) => (float[70,50] y) { y = Relu(x) }",
    "outer": "(float[40,30,50] x) => (float[30,40,50] y) { y = Transpose<perm=[1,0,2]>(x) }",
    "narrow": "(float[400,3] x) => (float[3,400] y) { y = Transpose(x) }",
    "sums": "(float[40,50] x) => (float[50,40] y) { t = Transpose(x) y = Softmax(t) }",
}


def _find_region(text: str) -> ElementRegion:
    (region,) = plan_partition(ir.from_proto(onnx.parser.parse_model(HEAD + text))).regions
    assert isinstance(region, ElementRegion)
    return region


@pytest.mark.parametrize("name", TURNED)
def test_a_turned_region_is_right(paper: Any, name: str) -> None:
    assert turn_region(_find_region(TURNED[name])).rows is not None
    model = onnx.parser.parse_model(HEAD + TURNED[name])
    inputs = make_inputs(model)
    expected = dovetail.compile(model, providers=["cpu"])(*inputs)
    np.testing.assert_array_equal(dovetail.compile(model, providers=["cuda", "cpu"])(*inputs), expected)


@pytest.mark.parametrize("name", STRAIGHT)
def test_others_stay_as_they_are(name: str) -> None:
    region = _find_region(STRAIGHT[name])
    assert turn_region(region) is region
