"""Kernels of built-in plugins, interpreted over memory of the host, against the plain references."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs Triton: make test-cuda has it", allow_module_level=True)

from tests.tensorrt.builtin.interpreted import run_interpreted
from tests.tensorrt.builtin.problems import PROBLEMS, Problem
from tests.tensorrt.builtin.references import REFERENCES
from tests.tensorrt.builtin.running import compare, create


@pytest.mark.parametrize("name", PROBLEMS)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernels_give_what_the_reference_gives(name: str, data: st.DataObject) -> None:
    problem: Problem = data.draw(PROBLEMS[name])
    expected = REFERENCES[problem.name](problem.inputs, problem.fields)
    dtype = problem.inputs[0].dtype
    got = run_interpreted(create(problem), problem.inputs, [array.shape for array in expected])
    compare(got, expected, dtype=dtype if dtype.kind == "f" else np.float32)
