"""What ways may differ by where something inside of a region is narrow."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.rounding import find_rounding

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
CASES = {
    "wide": ("float[64,64] x, float[64,64] w", "y = MatMul(x, w)", 0.0),
    "a result that was bfloat16": (
        "float[64,64] x, float[64,64] w",
        "p = MatMul(x, w) n = Cast<to=16>(p) y = Cast<to=1>(n)",
        5e-2,
    ),
    "narrow factors": ("float16[64,64] x, float16[64,64] w", "p = MatMul(x, w) y = Cast<to=1>(p)", 2e-2),
    "a result that was quantized": (
        "float[64,64] x, float[64,64] w, float s, int8 z",
        "p = MatMul(x, w) q = QuantizeLinear(p, s, z) y = DequantizeLinear(q, s, z)",
        2 / 127,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_narrowest_type_inside_says_how_far(case: str) -> None:
    inputs, body, allowed = CASES[case]
    model = onnx.parser.parse_model(f"{HEAD}({inputs}) => (float[64,64] y) {{ {body} }}")
    regions = plan_partition(ir.from_proto(model)).regions
    assert max(map(find_rounding, regions)) == allowed
