"""Which values of a partition are stored, and which are part of the kernels that read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import dovetail
from dovetail_cuda.graph.planner import PartitionPlan, plan_partition
from dovetail_cuda.graph.regions import ProductRegion
from dovetail_cuda.lower.indexing import reshape_to, transpose_to
from dovetail_cuda.lower.matrices import find_matrix
from dovetail_cuda.lower.tensors import broadcast_to, make_buffer
from tests.cuda.models import make_block, make_mlp

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '


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
    assert all(isinstance(region, ProductRegion) and region.product.activation == "relu" for region in plan.regions)


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
def test_strided_operands_give_what_cpu_gives(paper: Any) -> None:
    model = make_block(batch=1, length=32, width=64, heads=4)
    x = np.random.default_rng(7).standard_normal((1, 32, 64)).astype(np.float32)
    expected = dovetail.compile(model, providers=["cpu"])(x)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    np.testing.assert_allclose(engine(x), expected, rtol=2e-4, atol=2e-4)
    names = [table.name for table in engine.manifest.tuning]
    assert "product 4x32x32x16 nt float32 strides 16,16 lines 192,192 tf32" in names


def test_products_of_one_input_become_one() -> None:
    plan = _plan(make_block(batch=1, length=8, width=16, heads=2))
    widths = [region.product.shape[-1] for region in plan.regions if isinstance(region, ProductRegion)]
    assert widths == [48, 8, 8, 16, 64, 16]
    offsets = [(r.left.offset, r.right.offset) for r in plan.regions if isinstance(r, ProductRegion)]
    assert offsets[1:3] == [(0, 16), (0, 32)]


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
