"""A product and a bias as one Gemm, where they are one."""

from __future__ import annotations

import pytest

from dovetail.passes.fusions.base import always
from dovetail.passes.fusions.matmul_add import MatMulAddFusion
from tests.support.pass_graphs import check_numbers, make, ops


def fuse(inputs: str, body: str, result: str = "float[m, n] y") -> tuple[list[str], list[str]]:
    model = make(f"g ({inputs}) => ({result}) {{ {body} }}")
    changed = check_numbers(model, [MatMulAddFusion(accepts=always)], sizes={"m": 4, "k": 5, "n": 6})
    return ops(model), changed


@pytest.mark.parametrize("bias", ["[n]", "[1, n]", "[m, 1]", "[m, n]", "", "[1]"])
@pytest.mark.parametrize("order", ["p, b", "b, p"])
def test_a_bias_that_fits(bias: str, order: str) -> None:
    names, changed = fuse(f"float[m, k] x, float[k, n] w, float{bias} b", f"p = MatMul(x, w) y = Add({order})")
    assert names == ["Gemm"]
    assert len(changed) == 1


@pytest.mark.parametrize("bias", ["[1, 1, n]", "[q, n]", "[m, q]"])
def test_a_bias_that_may_make_the_result_larger(bias: str) -> None:
    result = "float[1, m, n] y" if bias.count(",") == 2 else "float[m, n] y"
    model = make(f"g (float[m, k] x, float[k, n] w, float{bias} b) => ({result}) {{ p = MatMul(x, w) y = Add(p, b) }}")
    assert MatMulAddFusion(accepts=always)(model).changed == []
    assert ops(model) == ["MatMul", "Add"]


@pytest.mark.parametrize(
    ("inputs", "result"),
    [("float[2, m, k] x, float[k, n] w", "float[2, m, n] y"), ("float[k] x, float[k, n] w", "float[n] y")],
)
def test_factors_that_are_no_matrices(inputs: str, result: str) -> None:
    names, changed = fuse(f"{inputs}, float[n] b", "p = MatMul(x, w) y = Add(p, b)", result)
    assert names == ["MatMul", "Add"]
    assert changed == []


def test_a_weight_that_is_transposed() -> None:
    model = make(
        "g (float[m, k] x, float[n, k] w, float[n] b) => (float[m, n] y) "
        "{ t = Transpose<perm = [1, 0]>(w) p = MatMul(x, t) y = Add(p, b) }"
    )
    check_numbers(model, [MatMulAddFusion(accepts=always)], sizes={"m": 4, "k": 5, "n": 6})
    assert ops(model) == ["Gemm"]
    assert model.graph[0].attributes["transB"].as_int() == 1


def test_a_gemm_that_has_no_bias_yet() -> None:
    body = "p = Gemm<transB = 1, alpha = 0.5>(x, w) y = Add(p, b)"
    names, _ = fuse("float[m, k] x, float[n, k] w, float[n] b", body)
    assert names == ["Gemm"]


def test_a_gemm_that_has_one() -> None:
    body = "p = Gemm(x, w, b) y = Add(p, b)"
    names, changed = fuse("float[m, k] x, float[k, n] w, float[n] b", body)
    assert names == ["Gemm", "Add"]
    assert changed == []


def test_a_product_that_somebody_else_reads() -> None:
    body = "p = MatMul(x, w) y = Add(p, b) z = Neg(p)"
    names, changed = fuse("float[m, k] x, float[k, n] w, float[n] b", body, "float[m, n] y, float[m, n] z")
    assert names == ["MatMul", "Add", "Neg"]
    assert changed == []


@pytest.mark.parametrize("product", ["MatMul(x, w)", "Gemm(x, w)"])
def test_a_product_that_is_added_to_itself(product: str) -> None:
    names, changed = fuse("float[m, k] x, float[k, n] w", f"p = {product} y = Add(p, p)")
    assert names == [product.split("(")[0], "Add"]
    assert changed == []


def test_integers() -> None:
    model = make("g (int32[m, k] x, int32[k, n] w, int32[n] b) => (int32[m, n] y) { p = MatMul(x, w) y = Add(p, b) }")
    assert MatMulAddFusion(accepts=always)(model).changed == []
