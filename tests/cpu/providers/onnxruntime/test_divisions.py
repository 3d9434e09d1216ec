"""Quotients of integers that the processor does not have: no input ends the process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import dovetail as dt


def _compile(op: str, dtype: str, divisor: str = "") -> Any:
    given = f", {dtype}[N] b" if not divisor else ""
    weight = f"<{dtype}[1] b = {{{divisor}}}>" if divisor else ""
    text = f"g ({dtype}[N] a{given}) => ({dtype}[N] y) {weight} {{ y = {op}(a, b) }}"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    return dt.compile(model, providers=["onnxruntime", "cpu"])


def _providers(engine: Any) -> set[str]:
    return {step.provider for step in engine.manifest.programs[0].steps}


@pytest.mark.parametrize("count", [1, 7, 64])
@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_smallest_integer_may_be_divided_by_minus_one(op: str, dtype: str, count: int) -> None:
    least = np.iinfo(dtype).min
    result = _compile(op, dtype)(np.full(count, least, dtype), np.full(count, -1, dtype))
    assert result.tolist() == [least if op == "Div" else 0] * count


@pytest.mark.parametrize(("divisor", "provider"), [("2", "onnxruntime"), ("-1", "cpu")])
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_a_known_divisor_decides_who_divides(op: str, divisor: str, provider: str) -> None:
    engine = _compile(op, "int64", divisor)
    assert _providers(engine) == {provider}
    assert (
        engine(np.array([np.iinfo(np.int64).min, 6])).tolist()
        == {
            ("Div", "2"): [-(2**62), 3],
            ("Div", "-1"): [-(2**63), -6],
            ("Mod", "2"): [0, 0],
            ("Mod", "-1"): [0, 0],
        }[op, divisor]
    )
