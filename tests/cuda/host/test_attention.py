"""Attention as one kernel and in steps, in Triton's interpreter, against the kernels of ``cpu``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import onnx
import pytest

import dovetail
from dovetail_cuda.compile.attention import AttentionTile, write_attention
from dovetail_cuda.compile.farm import CompileFarm
from dovetail_cuda.compile.store import KernelStore
from dovetail_cuda.emit.kernels import request_text
from tests.cuda.host.ways import TILES, check_ways, find_attention, make_inputs
from tests.cuda.models import make_block

pytestmark = pytest.mark.usefixtures("small_attention")

HEAD = '<ir_version: 10, opset_import: ["" : 23]> g '
RNG = np.random.default_rng(21)
CASES = {
    "plain": "(float[1,2,20,16] q, float[1,2,20,16] k, float[1,2,20,16] v) => (float[1,2,20,16] y) "
    "{ y = Attention(q, k, v) }",
    "joined": "(float[2,20,32] q, float[2,40,32] k, float[2,40,48] v) => (float[2,20,48] y) "
    "{ y = Attention<q_num_heads=2, kv_num_heads=2>(q, k, v) }",
    "odd": "(float[1,3,37,10] q, float[1,3,71,10] k, float[1,3,71,20] v) => (float[1,3,37,20] y) "
    "{ y = Attention<scale=0.7>(q, k, v) }",
    "one feature": "(float[1,2,20,8] q, float[1,2,20,8] k, float[1,2,20,1] v) => (float[1,2,20,1] y) "
    "{ y = Attention(q, k, v) }",
    "causal": "(float[1,2,70,16] q, float[1,2,70,16] k, float[1,2,70,16] v) => (float[1,2,70,16] y) "
    "{ y = Attention<is_causal=1>(q, k, v) }",
    "more keys": "(float[1,2,20,16] q, float[1,2,90,16] k, float[1,2,90,16] v) => (float[1,2,20,16] y) "
    "{ y = Attention<is_causal=1>(q, k, v) }",
    "fewer keys": "(float[1,2,70,16] q, float[1,2,20,16] k, float[1,2,20,16] v) => (float[1,2,70,16] y) "
    "{ y = Attention<is_causal=1>(q, k, v) }",
    "added": "(float[2,2,20,16] q, float[2,2,40,16] k, float[2,2,40,16] v, float[2,1,1,40] m) => "
    "(float[2,2,20,16] y) { y = Attention(q, k, v, m) }",
    "shared": "(float[1,20,64] q, float[1,20,32] k, float[1,20,32] v) => (float[1,20,64] y) "
    "{ y = Attention<q_num_heads=4, kv_num_heads=2, softcap=2.0>(q, k, v) }",
    "cached": "(float[1,2,3,16] q, float[1,2,3,16] k, float[1,2,3,16] v, float[1,2,67,16] a, float[1,2,67,16] b) => "
    "(float[1,2,3,16] y, float[1,2,70,16] pk, float[1,2,70,16] pv) "
    "{ y, pk, pv = Attention<is_causal=1>(q, k, v, , a, b) }",
    "one query, shared": "(float[1,1,64] q, float[1,1,32] k, float[1,1,32] v, float[1,2,69,16] a, "
    "float[1,2,69,16] b) => "
    "(float[1,1,64] y) { y = Attention<q_num_heads=4, kv_num_heads=2, is_causal=1>(q, k, v, , a, b) }",
    "one query": "(float[1,2,1,16] q, float[1,2,150,16] k, float[1,2,150,16] v) => (float[1,2,1,16] y) "
    "{ y = Attention(q, k, v) }",
}


WRITTEN = {
    # name: (inputs and nodes, whether scores are masked, how far queries see)
    "guarded": (
        """(float[2,20,96] x) => (float[2,20,32] y) { s = Constant<value=int64[5]{2,20,3,2,16}>() r = Reshape(x, s)
        t = Transpose<perm=[2,0,3,1,4]>(r) n0 = Constant<value=int64{0}>() n1 = Constant<value=int64{1}>()
        n2 = Constant<value=int64{-1}>() q = Gather<axis=0>(t, n0) k = Gather<axis=0>(t, n1) v = Gather<axis=0>(t, n2)
        c = Constant<value=float{0.5}>() qs = Mul(q, c) kt = Transpose<perm=[0,1,3,2]>(k) ks = Mul(kt, c)
        p = MatMul(qs, ks) z = Constant<value=float{0.0}>() w = Softmax(p) isn = IsNaN(w) g = Where(isn, z, w)
        m = MatMul(g, v) mt = Transpose<perm=[0,2,1,3]>(m) s2 = Constant<value=int64[3]{2,20,32}>()
        y = Reshape(mt, s2) }""",
        False,
        None,
    ),
    "later hidden": (
        """(float[3,24,16] q, float[3,16,24] k, float[3,24,16] v, bool[24,24] b) => (float[3,24,16] y) {
        p = MatMul(q, k) c = Constant<value=float{4.0}>() d = Div(p, c) h = Constant<value=float{-65504.0}>()
        m = Where(b, d, h) w = Softmax<axis=2>(m) y = MatMul(w, v) }""",
        False,
        0,
    ),
    "by input": (
        """(float[2,3,20,16] q, float[2,3,16,40] k, float[2,3,40,16] v, float[2,1,1,40] a) => (float[2,3,20,16] y) {
        p = MatMul(q, k) c = Constant<value=float{0.25}>() d = Mul(p, c) m = Add(d, a) w = Softmax(m)
        y = MatMul(w, v) }""",
        True,
        None,
    ),
    "both": (
        """(float[2,3,20,16] q, float[2,3,16,20] k, float[2,3,20,16] v, float[2,1,1,20] a, bool[20,20] b) =>
        (float[2,3,20,16] y) { p = MatMul(q, k) h = Constant<value=float{-65504.0}>() m = Where(b, p, h)
        s = Add(a, m) w = Softmax(s) y = MatMul(w, v) }""",
        True,
        0,
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_every_way_gives_what_cpu_gives(name: str) -> None:
    model = onnx.parser.parse_model(HEAD + CASES[name])
    names = check_ways(model, make_inputs(model), 1e-4)
    assert {"steps", "steps in tiles"} < names
    assert names & TILES


@pytest.mark.parametrize("name", list(WRITTEN))
def test_what_is_written_out_is_found(name: str) -> None:
    text, is_masked, reach = WRITTEN[name]
    model = _hold_mask(onnx.parser.parse_model(HEAD.replace("23", "20") + text))
    region = find_attention(model)
    assert (region.score is not None, region.causal) == (is_masked, reach)
    names = check_ways(model, make_inputs(model), 1e-4)
    assert names & TILES


def _hold_mask(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its shapes, and an input b as a constant that hides what comes later."""
    for value in [value for value in model.graph.input if value.name == "b"]:
        mask = np.tril(np.ones([dim.dim_value for dim in value.type.tensor_type.shape.dim], bool))
        model.graph.initializer.append(onnx.numpy_helper.from_array(mask, "b"))
        model.graph.input.remove(value)
    return onnx.shape_inference.infer_shapes(model)


def test_half_precision() -> None:
    text = CASES["causal"].replace("float[1,2,70", "float16[1,2,90")
    model = onnx.parser.parse_model(HEAD + text)
    assert check_ways(model, make_inputs(model), 3e-3) >= {"attention 64x64 w4 s3", "attention 128x64 w8 s3"}


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 5e-4), ("bfloat16", 8e-3)])
def test_little_half_precision_is_rounded_once(
    paper: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, tolerance: float
) -> None:
    """Nothing but the result is of the type, so that it is off by less than its step; the interpreter cuts bfloat16."""
    monkeypatch.setattr("dovetail_cuda.graph.attention.FEW_MULTIPLICATIONS", 1 << 17)
    model = onnx.parser.parse_model(HEAD + CASES["plain"].replace("float[", f"{dtype}["))
    inputs = make_inputs(model)
    expected = dovetail.compile(model, providers=["cpu"])(*inputs.values()).astype(np.float64)
    result = dovetail.compile(model, providers=["cuda", "cpu"])(*inputs.values()).astype(np.float64)
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", ["one query", "cached"])
def test_keys_are_split_where_there_are_few_queries(case: str) -> None:
    model = onnx.parser.parse_model(HEAD + CASES[case])
    names = check_ways(model, make_inputs(model), 1e-4, multiprocessors=16)
    assert "attention 16x32 w4 s2 p2" in names
    assert ("attention 16x32 w4 s2 p4" in names) is (case == "one query")


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    text = (
        "(float[1,1,3,16] q, float[1,1,70,16] k, float[1,1,70,16] v, bool[3,70] m) => (float[1,1,3,16] y) "
        "{ y = Attention(q, k, v, m) }"
    )
    model = onnx.parser.parse_model(HEAD + text)
    inputs = make_inputs(model)
    inputs["m"][:] = False
    inputs["m"][0, 69] = inputs["m"][2, 3] = True
    check_ways(model, inputs, 1e-4, multiprocessors=16)


@pytest.mark.parametrize("batch", [1, 2])
def test_written_out_attention_is_one_region_over_the_merged_projection(paper: Any, batch: int) -> None:
    """Heads are columns of one product, and those of the result lie as the next product reads them."""
    model = make_block(batch=batch, length=24, width=32, heads=2)
    x = RNG.standard_normal((batch, 24, 32)).astype(np.float32)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    expected = dovetail.compile(model, providers=["cpu"])(x)
    np.testing.assert_allclose(engine(x), expected, rtol=1e-3, atol=1e-3)
    (table,) = [table for table in engine.manifest.tuning if table.name.startswith("attention")]
    assert all(candidate.status == "timed" for candidate in table.candidates), table.candidates


@pytest.mark.timeout(300)
def test_attention_compiles_for_sm_90(tmp_path: Path) -> None:
    requests = []
    for name in ("plain", "causal", "added", "cached", "one query"):
        for dtype in ("float", "float16", "bfloat16"):
            region = find_attention(onnx.parser.parse_model(HEAD + CASES[name].replace("float[", f"{dtype}[")))
            tile = AttentionTile(queries=16, keys=32, num_warps=4, num_parts=2 if name == "one query" else 1)
            requests.append(request_text(write_attention(region, tile), 90))
    farm = CompileFarm()
    try:
        with ThreadPoolExecutor(2) as workers:
            compiled = KernelStore(tmp_path, farm.compile).get_all(requests, workers)
    finally:
        farm.close()
    assert all(code.code.startswith(b"\x7fELF") and not code.scratch_bytes for code in compiled)
