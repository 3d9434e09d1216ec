"""Random models on a GPU: wholly there, right, and the same in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from tests.cuda.gpu.building import compile_on_device, list_results
from tests.cuda.random_graphs import make_random_model


@pytest.mark.parametrize("seed", range(100, 124))
def test_a_random_model_gives_what_cpu_gives(cuda: Any, seed: int) -> None:
    model, inputs = make_random_model(seed, 24)
    engine = compile_on_device(model)
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    runs = [list_results(engine(*inputs)) for _ in range(3)]
    assert all(np.array_equal(*pair, equal_nan=True) for run in runs[1:] for pair in zip(run, runs[0], strict=True))
    for result, right in zip(runs[0], list_results(dt.compile(model, providers=["cpu"])(*inputs)), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-3, atol=1e-4)
