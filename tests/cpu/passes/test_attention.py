"""Attention as it is written out: masks, causal ones, scales, groups of heads, guards, and what must stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from dovetail.passes import fusion_passes, standard_passes
from dovetail.passes.base import run_passes
from dovetail.passes.fusions.attention import AttentionFusion
from dovetail.passes.fusions.base import always
from tests.support.pass_graphs import check_numbers, make, ops, sample_inputs
from tests.support.transformers_models import assert_close, run_kernels, run_onnxruntime

HEADS = "float[b, 4, s, 16] q, float[b, 4, t, 16] k, float[b, 4, t, 16] v"
RESULT = "(float[b, 4, s, 16] y)"
LOW = np.finfo(np.float32).min
CONSTANTS: dict[str, Any] = {
    "scale": np.float32(0.25),
    "four": np.float32(4),
    "half": np.float32(0.5),
    "zero": np.float32(0),
    "one": np.float32(1),
    "low": LOW,
    "inf": np.float32(-np.inf),
    "two": np.array([2]),
    "groups": np.array([1, 1, 2, 1, 1]),
    "joined": np.array([0, 4, -1, 16]),
    "parted": np.array([0, 0, 4, 16]),
    "flat": np.array([0, 0, 64]),
    "rows": np.array([-1, 64]),
}
SMALL = "float[b, 4, 2, 16] q, float[b, 4, 2, 16] k, float[b, 4, 2, 16] v"
KEYS = "kt = Transpose<perm = [0, 1, 3, 2]>(k)"
SCORES = f"{KEYS} m = MatMul(q, kt) a = Mul(m, scale)"
MASKED = f"{KEYS} m = MatMul(q, kt) a0 = Mul(m, scale) a = Add(a0, mask)"
END = "p = Softmax<axis = -1>(a) y = MatMul(p, v)"


def fuse(
    body: str, inputs: str = HEADS, result: str = RESULT, sizes: dict[str, int] | None = None
) -> tuple[ir.Model, list[str]]:
    model = graph(body, inputs, result)
    changed = check_numbers(model, [AttentionFusion(accepts=always)], sizes={"s": 5, "t": 7, **(sizes or {})})
    return model, changed


def graph(body: str, inputs: str = HEADS, result: str = RESULT, **weights: Any) -> ir.Model:
    return make(f"g ({inputs}) => {result} {{ {body} }}", **(CONSTANTS | weights))


def only(model: ir.Model) -> ir.Node:
    return next(node for node in model.graph if node.op_type == "Attention")


class TestScale:
    @pytest.mark.parametrize(
        ("body", "scale"),
        [
            (f"{SCORES} {END}", 0.25),
            (f"{KEYS} m = MatMul(q, kt) a = Div(m, four) {END}", 0.25),
            (f"{KEYS} qs = Mul(q, half) ks = Mul(kt, half) a = MatMul(qs, ks) {END}", 0.25),
            (f"{KEYS} qs = Mul(half, q) a = MatMul(qs, kt) {END}", 0.5),
            (f"ks = Mul(k, half) kt = Transpose<perm = [0, 1, 3, 2]>(ks) a = MatMul(q, kt) {END}", 0.5),
            (f"{KEYS} a = MatMul(q, kt) {END}", 1.0),
        ],
    )
    def test_where_it_is(self, body: str, scale: float) -> None:
        model, changed = fuse(body)
        assert ops(model) == ["Attention"]
        assert len(changed) == 1
        assert only(model).attributes["scale"].as_float() == scale

    def test_a_scale_to_keep(self) -> None:
        model = graph(f"{SCORES} {END}")
        assert check_numbers(model, [AttentionFusion(accepts=always, keep=frozenset({"scale"}))]) == []


class TestMasks:
    @pytest.mark.parametrize("shape", ["b, 1, s, t", "1, 1, s, t", "b, 4, s, t", "s, t", "4, s, t"])
    @pytest.mark.parametrize("order", ["a0, mask", "mask, a0"])
    def test_a_mask_that_fits(self, shape: str, order: str) -> None:
        body = f"{KEYS} m = MatMul(q, kt) a0 = Mul(m, scale) a = Add({order}) {END}"
        model, _ = fuse(body, f"{HEADS}, float[{shape}] mask")
        assert ops(model) == ["Attention"]
        assert [value.name for value in only(model).inputs if value is not None] == ["q", "k", "v", "mask"]

    @pytest.mark.parametrize("shape", ["b, 1, s, 1", "b, 1, s, u", "1, b, 1, s, t", "1"])
    def test_a_mask_that_need_not_fit(self, shape: str) -> None:
        """One column would be one key to the operator, and the same for all keys in an addition."""
        result = "(float[1, b, 4, s, 16] y)" if shape.count(",") == 4 else RESULT
        body = f"{KEYS} m = MatMul(q, kt) a0 = Mul(m, scale) a = Add(a0, mask) {END}"
        model = graph(body, f"{HEADS}, float[{shape}] mask", result)
        assert run_passes(model, [AttentionFusion(accepts=always)], check=True).changed == []
        assert "Softmax" in ops(model)

    def test_a_guard_against_rows_that_are_masked_out(self) -> None:
        body = (
            f"{KEYS} m = MatMul(q, kt) a0 = Mul(m, scale) mask = Where(shown, zero, inf) a = Add(a0, mask) "
            "p0 = Softmax<axis = -1>(a) bad = IsNaN(p0) p = Where(bad, zero, p0) y = MatMul(p, v)"
        )
        model = graph(body, f"{HEADS}, bool[b, 1, s, t] shown")
        inputs = sample_inputs(model, {"s": 5, "t": 7})
        inputs["shown"][0, 0, 2] = False
        before = run_onnxruntime(model, inputs)
        assert len(run_passes(model, [AttentionFusion(accepts=always)], check=True).changed) == 1
        assert ops(model) == ["Where", "Attention"]
        assert_close(before, run_onnxruntime(model, inputs))
        assert_close(before, run_kernels(model, inputs))
        assert not before[0][0, :, 2].any()

    def test_a_mask_of_zeros_is_none(self) -> None:
        model = graph(f"{MASKED} {END}", SMALL, "(float[b, 4, 2, 16] y)", mask=np.zeros((1, 1, 2, 2), np.float32))
        passes = [*standard_passes(keep=frozenset()), AttentionFusion(accepts=always)]
        check_numbers(model, passes)
        assert ops(model) == ["Attention"]
        assert len(only(model).inputs) == 3


class TestCausal:
    @pytest.mark.parametrize("low", [LOW, -np.inf])
    @pytest.mark.parametrize("shape", [(2, 2), (1, 1, 2, 2)])
    def test_a_constant(self, low: float, shape: tuple[int, ...]) -> None:
        mask = np.array([[0, low], [0, 0]], np.float32).reshape(shape)
        model = graph(f"{MASKED} {END}", SMALL, "(float[b, 4, 2, 16] y)", mask=mask)
        check_numbers(model, [AttentionFusion(accepts=always)])
        assert ops(model) == ["Attention"]
        assert only(model).attributes["is_causal"].as_int() == 1
        assert len(only(model).inputs) == 3

    @pytest.mark.parametrize("numbers", [[[0, -8], [0, 0]], [[0, LOW], [1, 0]], [[0, 0], [0, 0.5]]])
    def test_not_quite(self, numbers: Any) -> None:
        model = graph(f"{MASKED} {END}", SMALL, "(float[b, 4, 2, 16] y)", mask=np.array(numbers, np.float32))
        check_numbers(model, [AttentionFusion(accepts=always)])
        assert only(model).attributes["is_causal"].as_int() == 0
        assert len(only(model).inputs) == 4

    def test_one_that_is_computed(self) -> None:
        body = (
            "n = Shape<start = 2, end = 3>(q) nn = Concat<axis = 0>(n, n) ones = Expand(one, nn) "
            "lower = Trilu<upper = 0>(ones) hidden = Equal(lower, zero) mask = Where(hidden, low, zero) "
            f"{KEYS} m = MatMul(q, kt) a0 = Mul(m, scale) a = Add(a0, mask) {END}"
        )
        inputs = HEADS.replace("t, 16", "s, 16")
        model, _ = fuse(body, inputs)
        node = only(model)
        assert node.attributes["is_causal"].as_int() == 1
        assert len(node.inputs) == 3

    def test_more_keys_than_queries(self) -> None:
        """The operator would count from the first key."""
        body = (
            "n = Shape<start = 2, end = 3>(q) nk = Shape<start = 2, end = 3>(k) nn = Concat<axis = 0>(n, nk) "
            "ones = Expand(one, nn) lower = Trilu<upper = 0>(ones) hidden = Equal(lower, zero) "
            "mask = Where(hidden, low, zero) "
            f"{KEYS} m = MatMul(q, kt) a0 = Mul(m, scale) a = Add(a0, mask) {END}"
        )
        model, _ = fuse(body)
        assert only(model).attributes["is_causal"].as_int() == 0
        assert len(only(model).inputs) == 4


class TestHeads:
    GROUPED = "float[b, 4, s, 16] q, float[b, 2, t, 16] k0, float[b, 2, t, 16] v0"
    REPEAT = "{x}1 = Unsqueeze({x}0, two) {x}2 = Expand({x}1, groups) {x} = Reshape({x}2, joined)"

    def test_groups(self) -> None:
        repeat = f"{self.REPEAT.format(x='k')} {self.REPEAT.format(x='v')}"
        model, _ = fuse(f"{repeat} {SCORES} {END}", self.GROUPED)
        assert ops(model) == ["Attention"]
        assert [value.name for value in only(model).inputs if value is not None] == ["q", "k0", "v0"]

    def test_groups_that_somebody_else_reads(self) -> None:
        repeat = f"{self.REPEAT.format(x='k')} {self.REPEAT.format(x='v')} other = Neg(v)"
        result = "(float[b, 4, s, 16] y, float[b, 4, t, 16] other)"
        model, _ = fuse(f"{repeat} {SCORES} {END}", self.GROUPED, result)
        assert [value.name for value in only(model).inputs if value is not None] == ["q", "k", "v"]
        assert ops(model).count("Expand") == 2

    PART = "{x}r = Reshape({x}3, parted) {x} = Transpose<perm = [0, 2, 1, 3]>({x}r)"
    FLAT = "float[b, s, 64] q3, float[b, t, 64] k3, float[b, t, 64] v3"
    JOIN = "p = Softmax<axis = -1>(a) z = MatMul(p, v) zt = Transpose<perm = [0, 2, 1, 3]>(z) y = Reshape(zt, flat)"

    def parts(self) -> str:
        return " ".join(self.PART.format(x=name) for name in "qkv")

    def test_side_by_side(self) -> None:
        model, _ = fuse(f"{self.parts()} {SCORES} {self.JOIN}", self.FLAT, "(float[b, s, 64] y)")
        assert ops(model) == ["Attention"]
        node = only(model)
        assert [node.attributes[name].as_int() for name in ("q_num_heads", "kv_num_heads")] == [4, 4]

    def test_keys_in_one_transpose(self) -> None:
        body = " ".join(self.PART.format(x=name) for name in "qv")
        body += " kr = Reshape(k3, parted) kt = Transpose<perm = [0, 2, 3, 1]>(kr) m = MatMul(q, kt) a = Mul(m, scale)"
        model, _ = fuse(f"{body} {self.JOIN}", self.FLAT, "(float[b, s, 64] y)")
        assert ops(model) == ["Attention"]

    def test_keys_in_one_transpose_and_heads_that_stay(self) -> None:
        body = "kt = Transpose<perm = [0, 2, 3, 1]>(kr) m = MatMul(q, kt) a = Mul(m, scale)"
        inputs = "float[b, 4, s, 16] q, float[b, t, 4, 16] kr, float[b, 4, t, 16] v"
        model, _ = fuse(f"{body} {END}", inputs)
        assert ops(model) == ["Transpose", "Attention"]

    def test_a_reshape_that_does_more_stays(self) -> None:
        join = self.JOIN.replace("flat", "rows")
        model, _ = fuse(f"{self.parts()} {SCORES} {join}", self.FLAT, "(float[r, 64] y)")
        assert ops(model) == ["Attention", "Reshape"]

    def test_parted_heads_that_somebody_else_reads(self) -> None:
        body = f"{self.parts()} {SCORES} {self.JOIN} other = Neg(k)"
        model, _ = fuse(body, self.FLAT, "(float[b, s, 64] y, float[b, 4, t, 16] other)")
        assert ops(model).count("Attention") == 1
        assert ops(model).count("Transpose") == 4


class TestWhatStays:
    @pytest.mark.parametrize(
        ("body", "result"),
        [
            (f"{SCORES} {END}", "(float[b, 4, s, 16] y, float[b, 4, s, t] p)"),
            (f"{SCORES} {END} other = Neg(a)", "(float[b, 4, s, 16] y, float[b, 4, s, t] other)"),
            (f"{SCORES} p = Softmax<axis = 2>(a) y = MatMul(p, v)", RESULT),
            (
                f"{KEYS} m = MatMul(q, kt) a = Sub(m, scale) p = Softmax<axis = -1>(a) p2 = Neg(p) y = MatMul(p2, v)",
                RESULT,
            ),
        ],
    )
    def test_others(self, body: str, result: str) -> None:
        model, changed = fuse(body, result=result)
        assert changed == []
        assert "Softmax" in ops(model)

    def test_batches_that_broadcast(self) -> None:
        model, changed = fuse(f"{SCORES} {END}", HEADS.replace("float[b, 4, t, 16] v", "float[1, 4, t, 16] v"))
        assert changed == []
        assert "Softmax" in ops(model)

    def test_a_share_without_one_of_the_nodes(self) -> None:
        model = graph(f"{SCORES} {END}")
        passes = fusion_passes(
            keep=frozenset(), accepts=always, within=lambda node: node.op_type != "Softmax", off=["dead_code"]
        )
        assert run_passes(model, passes, check=True).changed == []


def test_half_precision_with_a_softmax_in_single() -> None:
    inputs = HEADS.replace("float", "float16")
    scores = f"{KEYS} m = MatMul(q, kt) a0 = Mul(m, scale) a = Cast<to = 1>(a0)"
    body = f"{scores} p0 = Softmax<axis = -1>(a) p = Cast<to = 10>(p0) y = MatMul(p, v)"
    model = graph(body, inputs, "(float16[b, 4, s, 16] y)", scale=np.float16(0.25))
    arrays = sample_inputs(model, {"s": 5, "t": 7})
    before = run_onnxruntime(model, arrays)
    assert len(run_passes(model, [AttentionFusion(accepts=always)], check=True).changed) == 1
    assert ops(model) == ["Attention"]
    assert only(model).attributes["softmax_precision"].as_int() == 1
    np.testing.assert_allclose(before[0], run_kernels(model, arrays)[0], rtol=5e-2, atol=1e-2)
