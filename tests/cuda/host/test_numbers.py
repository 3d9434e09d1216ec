"""Kernels of every family in Triton's interpreter, over a device of paper, against the kernels of ``cpu``."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail
from dovetail_cuda.compile.products import ProductTile, write_product
from dovetail_cuda.compile.source import write_kernel
from dovetail_cuda.compile.vectors import VectorTile, write_vectors
from dovetail_cuda.emit.kernels import request_text
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ElementRegion, ProductRegion
from dovetail_cuda.tune.element_tiles import choose_tile
from tests.conformance.onnx_backend.harness import compare, load_cases, load_skips
from tests.cuda.host.interpreter import FakeCode, run_kernel
from tests.cuda.inputs import make_inputs
from tests.cuda.models import make_block, make_mlp

PARTS = 12
HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
MODELS = {
    "chain": "(float[5,7] x) => (float[5,7] y) { a = Exp(x) b = Tanh(a) c = Mul(a, b) y = Sub(c, x) }",
    "half": "(float16[5,7] x) => (float16[5,7] y) { a = Erf(x) b = Sqrt(a) c = IsNaN(b) y = Where(c, x, b) }",
    "stretch": "(float[4,1,3] x, float[2,1] z) => (float[4,2,3] y) { y = Add(x, z) }",
    "moves": """(float[2,3,4] x) => (float[8,9] y) {
        t = Transpose<perm=[2,0,1]>(x) s = Constant<value=int64[2]{8,3}>() r = Reshape(t, s)
        p = Concat<axis=1>(r, r, r) y = Neg(p) }""",
    "pieces": """(float[6,5] x) => (float[3,8] y) {
        a = Constant<value=int64[1]{-1}>() b = Constant<value=int64[1]{-100}>() c = Constant<value=int64[1]{0}>()
        d = Constant<value=int64[1]{-2}>() s = Slice(x, a, b, c, d) w = Constant<value=int64[4]{0,1,0,2}>()
        z = Constant<value=float{3.5}>() y = Pad(s, w, z) }""",
    "rows": """(float[3,5,7] x) => (float[3,1,7] y, float[3,5,7] s, int64[3,5] i) {
        a = Constant<value=int64[1]{1}>() y = ReduceMean(x, a) s = LogSoftmax<axis=1>(x)
        i = ArgMax<axis=2, keepdims=0>(x) }""",
    "norm": """(float[4,6,9] x, float[9] g, float[9] b) => (float[4,6,9] y, float[4,6,1] m) {
        y, m = LayerNormalization<axis=-1>(x, g, b) }""",
    "long rows": """(float[2,20000] x) => (float[2,20000] y, float[2] s) {
        a = Constant<value=int64[1]{1}>() y = Softmax(x) s = ReduceSum<keepdims=0>(x, a) }""",
    "places in long rows": """(float[2,17001] x, uint8[2,17001] z) => (int64[2,1] y, int64[2,1] w) {
        y = ArgMax<axis=1>(x) w = ArgMin<axis=1, select_last_index=1>(z) }""",
    "all outside": """(float[5] x, float[1] z) => (float[1] y) {
        a = Mul(x, x) p = Constant<value=int64[2]{3,0}>() b = Pad(a, p) q = Constant<value=int64[2]{2,0}>()
        c = Pad(z, q) s = Constant<value=int64[1]{0}>() e = Constant<value=int64[1]{1}>()
        d = Slice(b, s, e) f = Slice(c, s, e) y = Add(d, f) }""",
    "windows": """(float[1,3,6,6] x, float[4,3,3,3] w, float[4] b) => (float[1,4,2,2] y) {
        c = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(c) y = MaxPool<kernel_shape=[3,3], strides=[3,3]>(r) }""",
    "picks": """(float[3,5,4] x) => (float[5,4] y) {
        k = Constant<value=int64{-2}>() g = Gather<axis=0>(x, k) y = Abs(g) }""",
    "gathers": """(float[5,4] x, int64[2,3] i) => (float[2,3,4] y) { g = Gather<axis=0>(x, i) y = Abs(g) }""",
    "product": """(float[48,128] x, float[128,96] w, float[96] b, float[48,96] r) => (float[48,96] y) {
        p = MatMul(x, w) a = Add(p, b) c = Gelu(a) y = Add(c, r) }""",
    "product by parts": """(float[2,20,128] x, float[128,64] w) => (float[2,4,20,16] y) {
        p = MatMul(x, w) h = Constant<value=float{0.7071}>() s = Mul(p, h) e = Erf(s) o = Constant<value=float{1.0}>()
        t = Add(e, o) m = Mul(p, t) z = Constant<value=int64[4]{0,20,4,16}>() q = Reshape(m, z)
        y = Transpose<perm=[0,2,1,3]>(q) }""",
    "rows in another order": """(float[3,20,64] x, float[64,48] w, float[48] b) => (float[20,3,48] y) {
        t = Transpose<perm=[1,0,2]>(x) p = MatMul(t, w) y = Add(p, b) }""",
    "powers": """(float[40,64] x, float[64,48] w) => (float[40,48] y) {
        p = MatMul(x, w) c = Constant<value=float{3.0}>() y = Pow(p, c) }""",
    "products with readers": """(float[40,64] x, float[64,64] w, float[64,64] v) => (float[40,64] y, float[64,40] z) {
        p = MatMul(x, w) q = MatMul(x, v) s = Sigmoid(p) g = Mul(p, s) y = Mul(g, q) t = Exp(q) u = Sum(t, p)
        z = Transpose(u) }""",
    "integers": "(int32[4,5] x, int32[5] z) => (int32[4,5] y) { a = Mul(x, z) b = Mod(a, z) y = Add(b, x) }",
}


def _check(model: onnx.ModelProto, tolerance: float) -> Any:
    inputs = make_inputs(model)
    expected = dovetail.compile(model, providers=["cpu"])(*inputs)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    for _ in range(3):  # the first runs are launched, the others replayed
        results = engine(*inputs)
        pairs = [(results[name], expected[name]) for name in results] if isinstance(results, dict) else None
        for result, right in pairs or [(results, expected)]:
            wide = (result.astype(np.float64), right.astype(np.float64))
            np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance)
    return engine


@pytest.mark.parametrize("name", list(MODELS))
def test_a_family_gives_what_cpu_gives(paper: Any, name: str) -> None:
    _check(onnx.parser.parse_model(HEAD + MODELS[name]), 3e-3 if name == "half" else 2e-5)


def test_an_index_beyond_the_end_reads_nothing_outside(paper: Any) -> None:
    model = onnx.parser.parse_model(HEAD + MODELS["gathers"])
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    result = engine(x, np.array([[0, 4, -1], [5, 1 << 40, -(1 << 40)]]))
    np.testing.assert_array_equal(result[..., 0], [[0, 16, 16], [16, 16, 0]])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float16", 1e-2), ("bfloat16", 8e-2)])
def test_blocks_of_a_transformer(paper: Any, dtype: str, tolerance: float) -> None:
    _check(make_block(dtype, batch=1, length=8, width=16, heads=2), tolerance)


def test_products_are_chosen_by_the_tuner(paper: Any) -> None:
    engine = _check(make_mlp(rows=16, width=64, depth=2), 1e-4)
    (table,) = engine.manifest.tuning
    names = [candidate.name for candidate in table.candidates]
    assert table.name == "product 1x16x64x64 nn float32 lines 64,64 bias relu tf32"
    assert {"cuBLASLt 0", "tile 16x64x64 w4 s4"} <= set(names)
    assert all(candidate.status == "timed" for candidate in table.candidates), table.candidates
    _, driver = paper
    assert driver.num_replays >= 2


def test_a_sum_that_is_split_is_right_and_leaves_its_locks_at_zero(paper: Any) -> None:
    """Every run finds the locks as the last one left them; ragged edges and a batch have their own tiles."""
    text = """(float[2,20,512] x, float[2,512,72] w, float[2,20,72] r) => (float[2,20,72] y) {
        p = MatMul(x, w) a = Add(p, r) y = Gelu(a) }"""
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text))
    (region,) = plan_partition(model).regions
    assert isinstance(region, ProductRegion)
    rng = np.random.default_rng(4)
    x, w, r = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 20, 512), (2, 512, 72), (2, 20, 72)))
    total = np.matmul(x, w) + r
    expected = 0.5 * total * (1 + np.vectorize(math.erf)(total / math.sqrt(2)))
    for tile in (ProductTile(m=16, n=32, k=64, num_warps=4, num_stages=2, split=split) for split in (1, 2, 4)):
        kernel = write_product(region, tile, allows_tf32=False)
        arrays = {"left": x, "right": w, "e0": r, "result": np.zeros_like(total)}
        arrays |= {"parts": np.full(4 * total.size, np.nan, np.float32), "locks": np.zeros(64, np.int32)}
        for _ in range(2):
            arrays["result"][:] = np.nan
            addresses = [arrays[role].ctypes.data for role in kernel.buffers]
            run_kernel(FakeCode(request_text(kernel, 90)), addresses, kernel.grid)
            np.testing.assert_allclose(arrays["result"], expected, rtol=1e-4, atol=1e-4)
        assert not arrays["locks"].any()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("lies_along", [True, False])
@pytest.mark.parametrize("prefetches", [True, False])
def test_products_of_few_rows_go_once_through_their_weights(rows: int, lies_along: bool, prefetches: bool) -> None:
    """Neither the columns nor what is summed comes out even."""
    given = """(float[R,300] x, float[S,T] w, float[260] b) => (float[R,260] y) {
        p = Gemm<transB=1>(x, w, b) y = Relu(p) }"""
    wide = (260, 300) if lies_along else (300, 260)
    text = given.replace("R", str(rows), 2).replace("S,T", ",".join(map(str, wide)))
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text.replace("transB=1", f"transB={int(lies_along)}")))
    (region,) = plan_partition(model).regions
    assert isinstance(region, ProductRegion)
    assert region.right.is_swapped == lies_along
    rng = np.random.default_rng(rows)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 300), wide, (260,)))
    expected = np.maximum(x @ (w.T if lies_along else w) + b, 0)
    shape = {"n": 16, "k": 128} if lies_along else {"n": 64, "k": 32}
    tile = VectorTile(m=1 if rows == 1 else 4, num_warps=4, num_stages=1, prefetches=prefetches, **shape)
    kernel = write_vectors(region, tile)
    arrays = {"left": x, "right": w, "e0": b, "result": np.full_like(expected, np.nan)}
    addresses = [arrays[role].ctypes.data for role in kernel.buffers]
    run_kernel(FakeCode(request_text(kernel, 90)), addresses, kernel.grid)
    np.testing.assert_allclose(arrays["result"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_node_tests_of_onnx(paper: Any, part: int) -> None:
    wrong = []
    skips = load_skips()
    for case in [case for case in load_cases() if case.kind == "node"][part::PARTS]:
        if any(skip.covers(case.name, "cpu") for skip in skips):
            continue
        try:
            _run_case(case)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this is for
            wrong.append(f"{case.name}: {error}")
    assert not wrong, "\n".join(wrong)


def _compare(expected: list[Any], results: list[Any], case: Any) -> None:
    """The suite's own comparison, but for chains of bfloat16: the reference rounds after each operator of them."""
    if not case.name.endswith("bf16_expanded"):
        compare(expected, results, case)
        return
    wide = ([np.asarray(each).astype(np.float32) for each in given] for given in (expected, results))
    compare(*wide, replace(case, rtol=1 / 32))


def _run_case(case: Any) -> None:
    model, data_sets = case.load()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with dovetail.compile(model, providers=["cuda", "cpu"]) as engine:
            steps = {step.provider for program in engine.manifest.programs for step in program.steps}
            for inputs, expected in data_sets if "cuda" in steps else ():
                results = engine(*inputs)
                _compare(expected, list(results.values()) if isinstance(results, dict) else [results], case)


def test_a_row_beyond_32_bits_is_counted_in_tiles() -> None:
    """Too long to be run here: the loop must have an end that 32 bits hold, and columns of 64 bits."""
    text = (
        HEAD
        + "(int8[1,2147483685] x) => (int8[1] y) { a = Constant<value_ints=[1]>() y = ReduceMax<keepdims=0>(x, a) }"
    )
    (region,) = plan_partition(ir.from_proto(onnx.parser.parse_model(text))).regions
    assert isinstance(region, ElementRegion)
    lines = write_kernel(region, choose_tile(region, 132)).text.splitlines()
    assert "    for part in range(524289):" in lines
    assert "        j = start + tl.arange(0, 4096).to(tl.int64)[None, :]" in lines
