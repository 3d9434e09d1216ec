"""Quantization goes up, dequantization down, and pairs that cancel go; the numbers stay to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.passes import standard_passes
from dovetail.passes.base import run_passes
from dovetail.passes.qdq_placement import QDQPlacement
from tests.support.pass_graphs import check_numbers, make, ops, sample_inputs
from tests.support.transformers_models import run_kernels, run_onnxruntime

WEIGHTS: dict[str, Any] = {
    "s": np.float32(0.05),
    "s2": np.float32(0.05),
    "other": np.float32(0.1),
    "z": np.int8(3),
    "z2": np.int8(3),
    "nil": np.int8(0),
    "shape": np.array([0, -1]),
    "axis": np.array([1]),
    "two": np.array([2]),
    "negative": np.float32(-0.05),
}
HEADER = "g (float[n, 4, 6, 6] x) => (float{shape} y)"
IN = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)"


def place(body: str, shape: str = "[n, 4, 6, 6]", **options: Any) -> tuple[ir.Model, list[str]]:
    model = make(f"{HEADER.format(shape=shape)} {{ {body} }}", **WEIGHTS)
    changed = check_numbers(model, [QDQPlacement(**options)], tolerance=None)
    return model, changed


def test_a_pair_that_cancels() -> None:
    model, changed = place(f"{IN} q2 = QuantizeLinear(d, s2, z2) y = DequantizeLinear(q2, s, z)")
    assert ops(model).count("QuantizeLinear") == 1
    assert any("dropped" in line for line in changed)


@pytest.mark.parametrize(("scale", "zero"), [("other", "z"), ("s", "nil")])
def test_a_pair_that_does_not(scale: str, zero: str) -> None:
    model, changed = place(f"{IN} q2 = QuantizeLinear(d, {scale}, {zero}) y = DequantizeLinear(q2, {scale}, {zero})")
    assert ops(model).count("QuantizeLinear") == 2
    assert changed == []


def test_rounding_stays() -> None:
    """Quantizing and dequantizing is not nothing."""
    model, changed = place(f"{IN} y = Neg(d)")
    assert ops(model) == ["QuantizeLinear", "DequantizeLinear", "Neg"]
    assert changed == []


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("Reshape(d, shape)", "[n, m]"),
        ("Transpose<perm = [0, 2, 3, 1]>(d)", "[n, 6, 6, 4]"),
        ("Flatten(d)", "[n, m]"),
        ("Unsqueeze(d, axis)", "[n, 1, 4, 6, 6]"),
        ("MaxPool<kernel_shape = [2, 2], pads = [1, 1, 1, 1]>(d)", "[n, 4, 7, 7]"),
        ("DepthToSpace<blocksize = 2>(d)", "[n, 1, 12, 12]"),
        ("Slice(d, axis, two, axis)", "[n, 1, 6, 6]"),
    ],
)
def test_data_stays_narrow_between(op: str, shape: str) -> None:
    body = f"{IN} m = {op} q2 = QuantizeLinear(m, s2, z2) y = DequantizeLinear(q2, s2, z2)"
    model = make(f"{HEADER.format(shape=shape)} {{ {body} }}", **WEIGHTS)
    inputs = sample_inputs(model)
    before = run_onnxruntime(model, inputs)
    run_passes(model, [QDQPlacement()], check=True)
    name = op.split("(")[0].split("<")[0]
    assert ops(model) == ["QuantizeLinear", name, "DequantizeLinear"]
    np.testing.assert_array_equal(before[0], run_onnxruntime(model, inputs)[0])
    np.testing.assert_array_equal(before[0], run_kernels(model, inputs)[0])


def test_quantization_goes_up_over_several() -> None:
    body = "a = Transpose<perm = [0, 2, 3, 1]>(x) b = Reshape(a, shape) q = QuantizeLinear(b, s, z) "
    model, changed = place(body + "y = DequantizeLinear(q, s, z)", "[n, m]")
    assert ops(model) == ["QuantizeLinear", "Transpose", "Reshape", "DequantizeLinear"]
    assert len(changed) == 2


def test_dequantization_goes_down() -> None:
    model, _ = place(f"{IN} a = Transpose<perm = [0, 2, 3, 1]>(d) y = Neg(a)", "[n, 6, 6, 4]")
    assert ops(model) == ["QuantizeLinear", "Transpose", "DequantizeLinear", "Neg"]


def test_other_scales_on_both_sides() -> None:
    body = f"{IN} a = Transpose<perm = [0, 2, 3, 1]>(d) q2 = QuantizeLinear(a, other, nil) "
    model, _ = place(body + "y = DequantizeLinear(q2, other, nil)", "[n, 6, 6, 4]")
    assert ops(model).count("QuantizeLinear") == 2


def test_concat_of_equals() -> None:
    body = (
        f"{IN} n = Neg(x) q2 = QuantizeLinear(n, s2, z2) d2 = DequantizeLinear(q2, s2, z2) c = Concat<axis = 1>(d, d2) "
    )
    model, _ = place(body + "y = Neg(c)", "[n, 8, 6, 6]")
    assert ops(model) == ["QuantizeLinear", "Neg", "QuantizeLinear", "Concat", "DequantizeLinear", "Neg"]


def test_concat_of_others() -> None:
    body = f"{IN} q2 = QuantizeLinear(x, other, z) d2 = DequantizeLinear(q2, other, z) c = Concat<axis = 1>(d, d2) "
    model, changed = place(body + "y = Neg(c)", "[n, 8, 6, 6]")
    assert changed == []
    assert ops(model).count("DequantizeLinear") == 2


def test_one_value_twice_in_concat() -> None:
    model, _ = place(f"{IN} c = Concat<axis = 1>(d, d) y = Neg(c)", "[n, 8, 6, 6]")
    assert ops(model).count("DequantizeLinear") == 1


@pytest.mark.parametrize(
    "body",
    [
        f"{IN} a = Transpose<perm = [0, 2, 3, 1]>(d) b = Neg(d) t = Transpose<perm = [0, 2, 3, 1]>(b) y = Add(a, t)",
        "t = Transpose<perm = [0, 2, 3, 1]>(x) q = QuantizeLinear(t, s, z) d = DequantizeLinear(q, s, z) y = Add(d, t)",
        "t = Transpose<perm = [0, 2, 3, 1]>(x) q = QuantizeLinear<axis = 3>(t, c, k) y = DequantizeLinear(q, s, z)",
    ],
)
def test_what_stays(body: str) -> None:
    weights = {**WEIGHTS, "c": np.float32([0.1, 0.2, 0.3, 0.4]), "k": np.int8([0, 1, 2, 3])}
    model = make(f"{HEADER.format(shape='[n, 6, 6, 4]')} {{ {body} }}", **weights)
    before = ops(model)
    assert check_numbers(model, [QDQPlacement()], tolerance=None) == []
    assert ops(model) == before


def test_the_largest_under_a_negative_scale() -> None:
    """A scale below zero turns the order round."""
    turned = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, negative, z)"
    body = f"{turned} m = MaxPool<kernel_shape = [2, 2]>(d) y = Neg(m)"
    model, changed = place(body, "[n, 4, 5, 5]")
    assert changed == []
    assert "MaxPool" in ops(model)


def test_scales_to_keep() -> None:
    body = f"{IN} q2 = QuantizeLinear(d, s2, z2) y = DequantizeLinear(q2, s2, z2)"
    model, _ = place(body, keep=frozenset({"s2"}))
    assert ops(model).count("QuantizeLinear") == 2


def test_a_weight_is_moved_when_it_is_built() -> None:
    """The transpose of a quantized weight is computed on the narrow type, which stays in the plan."""
    text = "g (float[n, 4] x) => (float[n, 2] y) { w = DequantizeLinear(wq, s, z) t = Transpose(w) y = MatMul(x, t) }"
    model = make(text, **WEIGHTS, wq=np.arange(8, dtype=np.int8).reshape(2, 4))
    check_numbers(model, standard_passes(keep=frozenset()))
    assert ops(model) == ["DequantizeLinear", "MatMul"]
    weights = model.graph[0].inputs[0]
    assert weights is not None
    assert weights.dtype == ir.DataType.INT8
    assert list(weights.shape or ()) == [4, 2]


STEPS = {
    "q": "t{i} = QuantizeLinear({x}, {s}, {z})",
    "t": "t{i} = Transpose<perm = [1, 0]>({x})",
    "r": "t{i} = Reshape({x}, flat)",
    "c": "t{i} = Concat<axis = 0>({x}, {x})",
    "u": "u{i} = Unsqueeze({x}, axis) t{i} = Squeeze(u{i}, axis)",
}


@given(st.lists(st.tuples(st.sampled_from("qtrcu"), st.booleans()), max_size=10))
def test_random_chains_give_the_same_numbers(steps: list[tuple[str, bool]]) -> None:
    name, body, narrow, scale = "x", [], False, "s"
    for index, (kind, same) in enumerate(steps):
        if kind == "q" and narrow:
            body.append(f"t{index} = DequantizeLinear({name}, {scale}, z)")
            narrow = False
        elif kind == "q":
            scale = "s2" if same else "other"
            body.append(STEPS["q"].format(i=index, x=name, s=scale, z="z2"))
            narrow = True
        else:
            body.append(STEPS[kind].format(i=index, x=name))
        name = f"t{index}"
    body.append(f"f = Cast<to = 1>({name}) y = Abs(f)")
    weights = {**WEIGHTS, "flat": np.array([-1, 3])}
    model = make(f"g (float[n, 3] x) => (float[a, b] y) {{ {' '.join(body)} }}", **weights)
    check_numbers(model, [QDQPlacement()], tolerance=None)
    assert run_passes(model, [QDQPlacement()], check=True).changed == []
