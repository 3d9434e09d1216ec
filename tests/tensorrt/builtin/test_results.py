"""Every built-in plugin against a plain reference, through an engine that was stored and loaded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tensorrt.builtin.problems import PROBLEMS, Problem
from tests.tensorrt.builtin.references import REFERENCES
from tests.tensorrt.builtin.running import compare, run_in_engine


@pytest.mark.parametrize("name", PROBLEMS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_gives_what_the_reference_gives(name: str, data: st.DataObject) -> None:
    problem: Problem = data.draw(PROBLEMS[name])
    expected = REFERENCES[problem.name](problem.inputs, problem.fields)
    dtype = problem.inputs[0].dtype
    compare(run_in_engine(problem), expected, dtype=dtype if dtype.kind == "f" else np.float32)
