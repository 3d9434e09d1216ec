"""Numbers and shapes that kernels meet seldom, in Triton's interpreter against the kernels of ``cpu``."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dovetail

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
NAN, INF = float("nan"), float("inf")
UNARY = ("Celu", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Selu", "Sign", "Softsign", "Tanh")
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def _check(text: str, *inputs: Any) -> None:
    model = onnx.parser.parse_model(HEAD + text)
    expected = dovetail.compile(model, providers=["cpu"])(*inputs)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    np.testing.assert_allclose(engine(*inputs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", UNARY)
def test_what_is_no_number_stays_none(paper: Any, op: str) -> None:
    _check(f"(float[4] x) => (float[4] y) {{ y = {op}(x) }}", np.array([NAN, INF, -INF, -0.5], np.float32))


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("columns", [5, 20000])
def test_the_extremes_of_a_row_with_what_is_no_number(paper: Any, op: str, columns: int) -> None:
    x = np.random.default_rng(1).standard_normal((4, columns)).astype(np.float32)
    x[0, 3], x[1, 2], x[2, :] = NAN, INF, -INF
    text = f"(float[4,{columns}] x) => (float[4,1] y) {{ a = Constant<value=int64[1]{{1}}>() y = {op}(x, a) }}"
    _check(text, x)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_a_reduction_over_no_axes_does_the_rest(paper: Any, op: str) -> None:
    text = f"(float[2,3] x) => (float[2,3] y) {{ y = Reduce{op}<noop_with_empty_axes=1>(x) }}"
    x = np.array([[0.5, 2, 1], [3, 0.25, 4]], np.float32)
    _check(text, x if op == "LogSum" else x * np.array([1, -1, 1], np.float32))


@pytest.mark.parametrize("mode", ["wrap", "reflect", "edge"])
def test_padding_repeats_what_is_left_of_a_cut(paper: Any, mode: str) -> None:
    text = f"""(float[7,6] x) => (float[9,8] y) {{
        p = Constant<value=int64[4]{{-2,3,4,-1}}>() y = Pad<mode="{mode}">(x, p) }}"""
    _check(text, np.arange(42, dtype=np.float32).reshape(7, 6))


@pytest.mark.parametrize("kind", ["float", "int8", "uint8", "int64"])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_places_in_long_rows(paper: Any, kind: str, op: str, last: int) -> None:
    text = f"({kind}[3,17001] x) => (int64[3,1] y) {{ y = {op}<axis=1, select_last_index={last}>(x) }}"
    dtype = np.dtype({"float": np.float32}.get(kind, kind))
    _check(text, np.random.default_rng(3).integers(0, 120, (3, 17001)).astype(dtype))
