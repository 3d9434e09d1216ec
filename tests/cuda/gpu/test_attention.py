"""Attention and the operators of language models on a GPU: right, the same in every run, and what they cost."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import onnx
import pytest

from tests.cuda.gpu.attention_rows import ROWS, make_inputs, make_model, make_packed
from tests.cuda.gpu.building import check_on_device

ERRORS = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}
"""The largest difference from the reference, in norms."""
HEAD = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]> g '
CONTRIB = {
    "group": """(float16[2,1,512] q, float16[2,1,128] k, float16[2,1,128] v, float16[2,2,99,64] a, float16[2,2,99,64] b,
        float16[128,32] c, float16[128,32] d) => (float16[2,1,512] y, float16[2,2,100,64] pk, float16[2,2,100,64] pv) {
        t = Constant<value=int32{100}>() s = Constant<value=int32[2]{99,99}>()
        y, pk, pv = com.microsoft.GroupQueryAttention<num_heads=8, kv_num_heads=2, do_rotary=1>(
        q, k, v, a, b, s, t, c, d) }""",
    "heads": """(float16[2,64,128] q, float16[2,90,128] k, float16[2,90,128] v, float16[384] b, float16[1,2,64,90] m) =>
        (float16[2,64,128] y) { y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, b, , m) }""",
    "skip": """(float16[2,64,96] x, float16[2,64,96] s, float16[96] g, float16[96] h) =>
        (float16[2,64,96] y, float16[2,64,96] t) {
        y, , , t = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(x, s, g, h) }""",
    "rotation": """(float16[2,5,256] x, int64[2,5] p, float16[9,32] c, float16[9,32] s) => (float16[2,5,256] y) {
        r = com.microsoft.RotaryEmbedding<num_heads=4>(x, p, c, s) y = com.microsoft.QuickGelu(r) }""",
}


@pytest.mark.parametrize("dtype", list(ERRORS))
@pytest.mark.parametrize(
    "row",
    [(2, 77, 77, 3, 3, 40, 1), (1, 197, 197, 2, 2, 64, 0), (2, 1, 300, 8, 2, 128, 0), (1, 65, 65, 2, 2, 16, 1)],
    ids=["causal", "odd", "one query", "small"],
)
def test_every_way_is_right(cuda: Any, row: tuple[int, ...], dtype: str) -> None:
    model = make_model(row, dtype if dtype != "float32" else "float")
    engine = check_on_device(model, make_inputs(model), ERRORS[dtype])
    (table,) = [each for each in engine.manifest.tuning if each.name.startswith("attention")]
    wrong = [each for each in table.candidates if each.status not in ("timed", "cached")]
    assert not wrong, wrong


@pytest.mark.parametrize("name", list(ROWS))
def test_attention_of_known_models_is_one_kernel(cuda: Any, name: str) -> None:
    model = make_model(ROWS[name])
    engine = check_on_device(model, make_inputs(model), ERRORS["float16"])
    (table,) = [each for each in engine.manifest.tuning if each.name.startswith("attention")]
    (chosen,) = [each for each in table.candidates if each.chosen]
    assert chosen.name.startswith("attention")


@pytest.mark.parametrize("name", list(CONTRIB))
def test_operators_of_language_models(cuda: Any, name: str) -> None:
    model = onnx.parser.parse_model(HEAD + CONTRIB[name])
    inputs = make_inputs(model)
    if name == "rotation":
        inputs[1] = np.arange(10).reshape(2, 5) % 9
    check_on_device(model, inputs, ERRORS["float16"])


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("bits", [4, 8])
def test_products_of_packed_weights(cuda: Any, bits: int, rows: int) -> None:
    model = make_packed(rows, 256, 192, bits)
    engine = check_on_device(model, make_inputs(model), ERRORS["float16"])
    (table,) = [each for each in engine.manifest.tuning if each.name.startswith("computed")]
    assert all(each.status in ("timed", "cached") for each in table.candidates), table.candidates
