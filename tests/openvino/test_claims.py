"""What is left to others, and the reason that is told."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dovetail.build.assign.support import Support, find_support
from dovetail.provider.loader import get_provider
from dovetail.provider.schemas.schema_check import check_registry

BODIES = "then_branch = t () => (double[n] a) { a = Neg(x) }, else_branch = e () => (double[n] b) { b = Abs(x) }"
LEFT = {
    "double precision": ("(double[n] x) => (double[n] y) { y = Sin(x) }", "has no float64, or computes it in fewer"),
    "strings": ("(string[n] x) => (string[n] y) { y = Identity(x) }", "has no object"),
    "sequences": ("(float[n] x) => (seq(float[n]) y) { y = SequenceConstruct(x) }", "has no seq(tensor(float))"),
    "unknown rank": (
        "(float[n] x, int64[k] s) => (float[m] y) { h = Reshape(x, s)  y = Sin(h) }",
        "must know the number of dimensions",
    ),
    "wide sums": ("(int64[n] x) => (int64[n] y) { y = Add(x, x) }", "64-bit integers in 32 bits"),
    "ties": ("(float[n] x, int64[1] k) => (float[k] y, int64[k] i) { y, i = TopK(x, k) }", "equal values in another"),
    "infinity": ("(float[n] x) => (float[1] y) { y = ReduceMax(x) }", "infinity for the largest number"),
    "repeats": ("(float[n] x, int64[1] r) => (float[m] y) { y = Tile(x, r) }", "repeats wrongly"),
    "8 bits": ("(float[n] x) => (float8e4m3fn[n] y) { y = Cast <to = 17> (x) }", "rounds to 8 bits otherwise"),
    "random": ("(float[n] x) => (float[n] y) { y = RandomNormalLike(x) }", "random numbers of its own"),
    "bodies": (f"(bool c, double[n] x) => (double[n] y) {{ y = If <{BODIES}> (c) }}", "in its body, "),
}


def _ask(text: str, opset: int = 21) -> Support:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> g {text}')
    return find_support(ir.from_proto(onnx.shape_inference.infer_shapes(model)), providers=["openvino"])[-1]


@pytest.mark.parametrize("case", LEFT)
def test_what_it_computes_otherwise_is_left_to_others(case: str) -> None:
    text, expected = LEFT[case]
    assert expected in _ask(text).reason


def test_sizes_are_taken() -> None:
    assert _ask("(int64[4] x) => (int64[4] y) { y = Mul(x, x) }").provider == "openvino"
    assert _ask("(float[n, 4] x) => (int64[2] y) { y = Shape(x) }").provider == "openvino"


def test_an_opset_that_nobody_checked_is_left() -> None:
    assert "was not checked with ai.onnx at opset 99" in _ask("(float[n] x) => (float[n] y) { y = Relu(x) }", 99).reason


def test_the_registry_agrees_with_the_schemas() -> None:
    problems = [p for p in check_registry(get_provider("openvino").kernels) if p.what.startswith("the range")]
    assert problems == []
