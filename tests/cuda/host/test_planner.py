"""Which values of a partition are stored, and which are part of the kernels that read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail
from dovetail_cuda.graph.plan import PartitionPlan
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ProductRegion
from dovetail_cuda.lower.indexing import reshape_to, transpose_to
from dovetail_cuda.lower.matrices import find_matrix
from dovetail_cuda.lower.tensors import broadcast_to, make_buffer
from dovetail_cuda.run.cublaslt import ProductLibrary
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.library_form import match_library, split_follower
from dovetail_cuda.tune.product_tiles import list_tiles
from tests.cuda.models import make_block, make_mlp

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
SQUARE = "(float[64,64] x, float[64,64] w, float[64,64] v, float[64] b) => (float[64,64] y) "


def _plan(model: onnx.ModelProto | str) -> PartitionPlan:
    parsed = onnx.parser.parse_model(HEAD + model) if isinstance(model, str) else model
    return plan_partition(ir.from_proto(parsed))


def _ops(plan: PartitionPlan) -> list[str]:
    return [" ".join(region.ops) for region in plan.regions]


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        (
            "(float[4,6] x) => (float[6,4] y) { a = Exp(x) b = Transpose(a) y = Add(b, b) }",
            ["Exp Transpose Exp Transpose Add"],
        ),
        ("(float[4,6] x) => (float[4,6] y) { a = Exp(x) b = Softmax(a) y = Neg(b) }", ["Exp Softmax Neg"]),
        ("(float[4,6] x) => (float[4,6] y, float[4,6] z) { y = Exp(x) z = Neg(y) }", ["Exp", "Neg"]),
        ("(float[0,6] x) => (float[0,6] y) { y = Exp(x) }", []),
    ],
)
def test_chains_are_one_region_up_to_what_must_be_stored(text: str, ops: list[str]) -> None:
    assert _ops(_plan(text)) == ops


def test_a_product_takes_its_bias_and_activation() -> None:
    plan = _plan(make_mlp(rows=16, width=64, depth=2))
    assert _ops(plan) == ["Gemm Relu", "Gemm Relu"]
    forms = [match_library(region, region.stored) for region in _products(plan)]
    assert all(form is not None and form.activation == "relu" and form.bias for form in forms)
    assert len(forms) == 2


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        ("{ p = MatMul(x, w) a = Add(p, b) g = Gelu(a) y = Add(g, x) }", ["MatMul Add Gelu Add"]),
        ("{ p = MatMul(x, w) s = Sigmoid(p) m = Mul(p, s) y = Mul(m, x) }", ["MatMul Sigmoid MatMul Mul Mul"]),
        ("{ p = MatMul(x, w) e = Exp(p) t = Transpose(e) y = Transpose(t) }", ["MatMul Exp Transpose Transpose"]),
        ("{ p = MatMul(x, w) s = Softmax(p) y = Add(s, p) }", ["MatMul", "Softmax Add"]),
        ("{ p = MatMul(x, w) q = MatMul(x, v) a = Add(p, q) y = Exp(a) }", ["MatMul", "MatMul Add Exp"]),
        ("{ p = MatMul(x, w) t = Transpose(p) y = Add(p, t) }", ["MatMul", "Transpose Add"]),
        ("{ p = MatMul(x, w) a = Add(p, b) y = MatMul(a, v) }", ["MatMul Add", "MatMul"]),
    ],
)
def test_what_follows_a_product_alone_is_part_of_it(text: str, ops: list[str]) -> None:
    assert _ops(_plan(SQUARE + text)) == ops


def test_the_heads_of_attention_are_stored_where_the_next_product_reads_them() -> None:
    """What is transposed and reshaped after the last product of attention is only another place to store to."""
    plan = _plan(make_block(batch=2, length=32, width=64))
    last = next(region for region in _products(plan) if region.k == 32)
    assert "Transpose" in last.ops
    assert last.ops.count("Reshape") == 1


def test_rows_in_another_order_are_multiplied_as_they_lie() -> None:
    text = """(float[3,20,64] x, float[64,64] w) => (float[20,3,64] y) {
        t = Transpose<perm=[1,0,2]>(x) y = MatMul(t, w) }"""
    assert _ops(_plan(text)) == ["Transpose MatMul"]


def test_a_residual_is_added_by_the_library() -> None:
    (region,) = _products(_plan(SQUARE + "{ p = MatMul(x, w) a = Add(p, b) y = Add(x, a) }"))
    form = match_library(region, region.stored)
    assert form is not None
    assert (form.bias, form.residual, form.activation) == ("b", "x", "")


def test_what_the_library_has_not_is_a_kernel_behind_it() -> None:
    (region,) = _products(_plan(SQUARE + "{ p = MatMul(x, w) a = Add(p, b) y = Gelu(a) }"))
    assert match_library(region, region.stored) is None
    form, rest = split_follower(region, "made")
    assert form.bias == "b"
    assert rest.buffers == ["made", "y"]


@pytest.mark.parametrize(("capability", "most"), [(80, 163), (89, 99), (90, 227), (999, 99)])
def test_tiles_fit_the_shared_memory_of_the_device(capability: int, most: int) -> None:
    plan = _plan("(float16[128,768] x, float16[768,3072] w) => (float16[128,3072] y) { y = MatMul(x, w) }")
    kit = Kit(
        capability=capability,
        multiprocessors=132,
        allows_tf32=False,
        weights=frozenset("w"),
        is_cold=True,
        open_products=ProductLibrary,
    )
    tiles = list_tiles(_products(plan)[0], kit)
    assert tiles
    assert all((tile.m + tile.n) * tile.k * 2 * tile.num_stages < most << 10 for tile in tiles)
    assert any(tile.prefetches for tile in tiles)


def _products(plan: PartitionPlan) -> list[ProductRegion]:
    return [region for region in plan.regions if isinstance(region, ProductRegion)]


def test_heads_of_one_batch_are_read_where_they_lie() -> None:
    """Queries, keys and values are parts of the projections, at even strides; with more batches they are not."""
    moved = {
        batch: _ops(_plan(make_block(batch=batch, length=32, width=64))).count("Split Reshape Transpose")
        for batch in (1, 2)
    }
    assert moved == {1: 0, 2: 3}


def test_matrices_in_memory_are_found() -> None:
    x = make_buffer("x", (1, 32, 4, 16), "float32")
    heads = find_matrix(transpose_to(x, (0, 2, 1, 3)))
    assert heads is not None
    assert (heads.batch, heads.batch_stride, heads.line, heads.is_swapped) == (4, 16, 64, False)
    turned = find_matrix(transpose_to(x, (0, 2, 3, 1)))
    assert turned is not None
    assert (turned.batch_stride, turned.line, turned.is_swapped) == (16, 64, True)
    assert find_matrix(reshape_to(transpose_to(x, (0, 2, 1, 3)), (32, 64))) is None
    same = find_matrix(broadcast_to(make_buffer("w", (16, 8), "float32"), (5, 16, 8)))
    assert same is not None
    assert (same.batch, same.batch_stride, same.line) == (5, 0, 8)


@pytest.mark.slow
def test_strided_operands_give_what_cpu_gives(paper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_cuda.graph.attention.FEW_MULTIPLICATIONS", 1 << 40)
    model = make_block(batch=1, length=32, width=64, heads=4)
    x = np.random.default_rng(7).standard_normal((1, 32, 64)).astype(np.float32)
    expected = dovetail.compile(model, providers=["cpu"])(x)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    np.testing.assert_allclose(engine(x), expected, rtol=2e-4, atol=2e-4)
    names = [table.name for table in engine.manifest.tuning]
    assert "product 4x32x32x16 nt float32 strides 16,16 lines 192,192 tf32" in names


def test_products_of_one_input_become_one() -> None:
    plan = _plan(make_block(batch=1, length=32, width=64, heads=4))
    assert [region.n for region in _products(plan)] == [192, 32, 16, 64, 256, 64]
    assert [(region.left.offset, region.right.offset) for region in _products(plan)][1:3] == [(0, 64), (0, 128)]


def test_a_weight_of_a_merged_product_can_be_replaced(paper: Any) -> None:
    model = make_block(batch=1, length=8, width=16, heads=2)
    x = np.random.default_rng(8).standard_normal((1, 8, 16)).astype(np.float32)
    builder = dovetail.BuilderConfig()
    builder.providers = ["cuda", "cpu"]
    builder.set_flag(dovetail.BuilderFlag.REFIT)
    engine = dovetail.compile(model, config=builder)
    weight = onnx.numpy_helper.to_array(model.graph.initializer[2]) * np.float32(2)
    name = model.graph.initializer[2].name
    refitter = dovetail.Refitter(engine)
    refitter.set_named_weights(name, np.ascontiguousarray(weight))
    assert refitter.refit_cuda_engine()
    model.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(weight, name))
    np.testing.assert_allclose(engine(x), dovetail.compile(model, providers=["cpu"])(x), rtol=1e-4, atol=1e-5)
