"""Operators of com.microsoft in Triton's interpreter, against the kernels of ``cpu``."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from tests.cuda.host.ways import check_ways, make_inputs

pytestmark = pytest.mark.usefixtures("small_attention")

HEAD = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]> g '
MODELS = {
    "activations": """(float[3,8] x, float[8] b) => (float[3,8] y, float[3,8] z, float[3,8] u, float[3,8] v) {
        y = com.microsoft.Gelu(x) z = com.microsoft.BiasGelu(x, b) t = com.microsoft.FastGelu(x, b)
        u = com.microsoft.FastGelu(t) v = com.microsoft.QuickGelu<alpha=1.5>(x) }""",
    "product": """(float[2,8,6] x, float[2,5,8] z) => (float[2,6,5] y) {
        y = com.microsoft.FusedMatMul<alpha=0.5, transA=1, transB=1>(x, z) }""",
    "product by batch": """(float[6,3,8] x, float[3,8,4] z) => (float[3,6,4] y) {
        y = com.microsoft.FusedMatMul<transBatchA=1>(x, z) }""",
    "skip": """(float[2,5,8] x, float[5,8] s, float[8] g, float[8] h, float[8] b) =>
        (float[2,5,8] y, float[2,5,8] t, float[2,5,8] z) {
        y, , , t = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(x, s, g, h, b)
        z = com.microsoft.SkipLayerNormalization(t, x, g) }""",
    "skip moments": """(float[5,8] x, float[5,8] s, float[8] g) => (float[5,8] y, float[5,1] m, float[5,1] i) {
        y, m, i = com.microsoft.SkipLayerNormalization(x, s, g) }""",
    "skip root": """(float16[2,5,8] x, float16[2,5,8] s, float16[8] g) => (float16[2,5,8] y, float16[2,5,8] t) {
        y, , , t = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=1e-5>(x, s, g) }""",
    "root": """(float[2,5,8] x, float[8] g) => (float[2,5,8] y, float[2,5,1] i) {
        y, i = SimplifiedLayerNormalization<axis=-1, epsilon=1e-5>(x, g) }""",
    "embedding": """(int32[2,5] w, int32[2,5] t, float[7,8] a, float[5,8] b, float[3,8] c, float[8] g, float[8] h,
        int32[2,5] m) => (float[2,5,8] y, int32[2] n, float[2,5,8] e) {
        y, n, e = com.microsoft.EmbedLayerNormalization(w, t, a, b, c, g, h, m) }""",
    "rotation": """(float[2,5,24] x, int64[2,5] p, float[9,4] c, float[9,4] s) => (float[2,5,24] y, float[2,5,24] z) {
        y = com.microsoft.RotaryEmbedding<num_heads=3>(x, p, c, s)
        z = com.microsoft.RotaryEmbedding<num_heads=3, interleaved=1>(y, p, c, s) }""",
    "rotation of a part": """(float[2,3,5,12] x, int64[1] p, float[9,4] c, float[9,4] s) => (float[2,3,5,12] y) {
        y = com.microsoft.RotaryEmbedding<num_heads=3, rotary_embedding_dim=8>(x, p, c, s) }""",
    "heads with a bias": """(float[1,17,32] q, float[1,18,32] k, float[1,18,32] v, float[96] b, int32[1,18] m) =>
        (float[1,17,32] y) { y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, b, m) }""",
    "rotation of ONNX": """(float[2,3,5,8] x, float[2,5,4] c, float[2,5,4] s, int64[2,5] p, float[9,4] e) =>
        (float[2,3,5,8] y, float[2,3,5,8] z) { y = RotaryEmbedding(x, c, s)
        z = RotaryEmbedding<interleaved=1>(x, e, e, p) }""",
}
ATTENTION = {
    "packed": """(float[2,20,2,3,16] q) => (float[2,20,32] y)
        { y = com.microsoft.MultiHeadAttention<num_heads=2, unidirectional=1>(q) }""",
    "lengths": """(float[2,20,32] q, float[2,20,32] k, float[2,20,32] v, int32[2] m, float[1,2,20,20] a) =>
        (float[2,20,32] y) { y = com.microsoft.MultiHeadAttention<num_heads=2, scale=0.3>(q, k, v, , m, a) }""",
    "cached": """(float[1,2,32] q, float[1,2,32] k, float[1,2,32] v, float[1,2,38,16] a, float[1,2,38,16] b) =>
        (float[1,2,32] y, float[1,2,40,16] pk, float[1,2,40,16] pv)
        { y, pk, pv = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, , , , a, b) }""",
}


def _list(results: Any) -> list[Any]:
    return list(results.values()) if isinstance(results, dict) else [results]


@pytest.mark.parametrize("name", list(MODELS))
def test_an_operator_gives_what_cpu_gives(paper: Any, name: str) -> None:
    model = onnx.parser.parse_model(HEAD + MODELS[name])
    inputs = list(make_inputs(model).values())
    expected = _list(dovetail.compile(model, providers=["cpu"])(*inputs))
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    for result, right in zip(_list(engine(*inputs)), expected, strict=True):
        tolerance = 3e-3 if right.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(result, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", list(ATTENTION))
def test_attention_of_heads_gives_what_cpu_gives(name: str) -> None:
    model = onnx.parser.parse_model(HEAD + ATTENTION[name])
    inputs = make_inputs(model)
    if name == "lengths":
        inputs["m"] = np.array([20, 7], np.int32)
    check_ways(model, inputs, 1e-4)


@pytest.mark.parametrize(("length", "past", "attributes"), [(5, 0, ""), (1, 30, ""), (3, 30, ", local_window_size=7")])
def test_attention_to_a_cache_gives_what_cpu_gives(length: int, past: int, attributes: str) -> None:
    total = length + past
    cache = f", float[2,2,{past},16] a, float[2,2,{past},16] b" if past else ""
    text = f"""(float[2,{length},64] q, float[2,{length},32] k, float[2,{length},32] v{cache}, int32[2] s,
        float[64,8] c, float[64,8] d) => (float[2,{length},64] y, float[2,2,{total},16] pk, float[2,2,{total},16] pv)
        {{ t = Constant<value=int32{{{total}}}>()
        y, pk, pv = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2, do_rotary=1{attributes}>(
        q, k, v, {"a, b" if past else ", "}, s, t, c, d) }}"""
    model = onnx.parser.parse_model(HEAD + text)
    inputs = make_inputs(model)
    inputs["s"] = np.array([total - 1, total - 2 if past else total - 1], np.int32)
    check_ways(model, inputs, 1e-4)


def test_a_cache_is_filled_behind_the_past_of_each_sample(paper: Any) -> None:
    text = """(float[2,1,64] q, float[2,1,32] k, float[2,1,32] v, float[2,2,4,16] a, float[2,2,4,16] b, int32[2] s) =>
        (float[2,1,64] y, float[2,2,5,16] pk, float[2,2,5,16] pv) { t = Constant<value=int32{5}>()
        y, pk, pv = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>(q, k, v, a, b, s, t) }"""
    model = onnx.parser.parse_model(HEAD + text)
    inputs = make_inputs(model)
    inputs["s"] = np.array([4, 2], np.int32)
    expected = _list(dovetail.compile(model, providers=["cpu"])(*inputs.values()))
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    for result, right in zip(_list(engine(*inputs.values())), expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-4)
