"""Element types that few plugins take, and numbers that are no usual ones."""

from __future__ import annotations

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.tensorrt.builtin.problems import Problem
from tests.tensorrt.builtin.running import create, run_in_engine

RNG = np.random.default_rng(7)
BF16 = ml_dtypes.bfloat16


def _run(problem: Problem, shapes: list[tuple[int, ...]], where: str) -> list[Any]:
    if where == "host":
        return run_in_engine(problem)
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs Triton: make test-cuda has it")
    from tests.tensorrt.builtin.interpreted import run_interpreted

    return run_interpreted(create(problem), problem.inputs, shapes)


@pytest.mark.parametrize("where", ["host", "kernel"])
def test_top_k_of_bf16(where: str) -> None:
    values = RNG.normal(size=(3, 20)).astype(BF16)
    problem = Problem("TopkLastDim", {"type_id": 7, "k": 5, "is_largest": 1, "axis": -1}, [values])
    found, places = _run(problem, [(3, 5), (3, 5)], where)
    wide = values.astype(np.float32)
    expected = np.argsort(-wide, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(found.astype(np.float32), np.take_along_axis(wide, expected, axis=1))


@pytest.mark.parametrize("where", ["host", "kernel"])
@pytest.mark.parametrize(("is_largest", "expected"), [(1, [4, 1, 2, 6]), (0, [3, 0, 5, 6])])
def test_top_k_of_numbers_that_are_no_usual_ones(is_largest: int, expected: list[int], where: str) -> None:
    values = np.array([-0.0, np.inf, 7.0, -np.inf, np.nan, 0.0, 2.0], np.float32)
    problem = Problem("TopkLastDim", {"type_id": 0, "k": 4, "is_largest": is_largest}, [values])
    found, places = _run(problem, [(4,), (4,)], where)
    assert places.tolist() == expected
    np.testing.assert_array_equal(found, values[expected])


@pytest.mark.parametrize("where", ["host", "kernel"])
def test_top_k_of_the_largest_and_smallest_integers(where: str) -> None:
    values = np.array([[0, -(2**31), 2**31 - 1, -1]], np.int32)
    for is_largest, expected in ((1, [2, 0, 3]), (0, [1, 3, 0])):
        problem = Problem("TopkLastDim", {"type_id": 3, "k": 3, "is_largest": is_largest}, [values])
        _, places = _run(problem, [(1, 3), (1, 3)], where)
        assert places.tolist() == [expected]


@pytest.mark.parametrize("where", ["host", "kernel"])
@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatter_of_bf16_is_summed_in_fp32(reduction: str, where: str) -> None:
    data = np.full((1, 3), 2, BF16)
    indices, updates = np.array([[0] * 40 + [2] * 3]), np.full((1, 43), 0.0078125, BF16)
    problem = Problem("ScatterElements", {"axis": 1, "reduction": reduction}, [data, indices, updates])
    (got,) = _run(problem, [(1, 3)], where)
    total = {"add": [2.3125, 2, 2.03125], "max": [2, 2, 2], "min": [0.0078125, 2, 0.0078125]}
    total["mul"] = [2 * 0.0078125**40, 2, 2 * 0.0078125**3]
    np.testing.assert_allclose(got.astype(np.float64)[0], total[reduction], rtol=1e-2, atol=1e-30)
