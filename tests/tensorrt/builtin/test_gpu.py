"""Built-in plugins on a CUDA device, against the plain references."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from dovetail.provider.loader import has_provider, register_provider
from tests.tensorrt.builtin.cases import CASES
from tests.tensorrt.builtin.problems import Problem
from tests.tensorrt.builtin.references import REFERENCES
from tests.tensorrt.builtin.running import compare, create, load_on_cuda, make_problem, run_engine


def _find_reason() -> str:
    """Why there is nothing to run on; empty where there is."""
    if importlib.util.find_spec("triton") is None:
        return "needs Triton, which compiles the kernels"
    from dovetail_cuda.run.driver import Driver

    return "" if Driver().count_devices() else "needs a CUDA device"


if _find_reason():
    pytest.skip(_find_reason(), allow_module_level=True)


@pytest.fixture(autouse=True)
def _provider() -> None:
    """The provider, whether its package is installed or only on the path."""
    from dovetail_cuda.provider import CudaFactory

    if not has_provider("cuda"):
        register_provider(CudaFactory())


@pytest.mark.parametrize("name", CASES)
def test_an_engine_runs_the_kernels_of_a_plugin(name: str) -> None:
    problem = make_problem(CASES[name])
    engine = load_on_cuda(problem)
    assert [step.provider for step in engine.manifest.programs[0].steps if step.kind == "plugin"] == ["cuda"]
    expected = REFERENCES[problem.name](problem.inputs, problem.fields)
    for _ in range(4):  # plain, captured, replayed
        compare(run_engine(engine, problem), expected, dtype=problem.inputs[0].dtype)


def test_a_detector_of_the_usual_size_gives_what_the_host_gives() -> None:
    rng = np.random.default_rng(1)
    corner = rng.uniform(0, 600, (2, 8400, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(5, 60, (2, 8400, 2))], axis=2).astype(np.float32)
    scores = (rng.permutation(2 * 8400 * 80).reshape(2, 8400, 80) / (2 * 8400 * 80)).astype(np.float32)
    fields = {**CASES["nms"].fields, "score_threshold": 0.25, "max_output_boxes": 100}
    problem = Problem("EfficientNMS_TRT", fields, [boxes, scores])
    expected = create(problem).compute(problem.inputs, [])
    compare(run_engine(load_on_cuda(problem), problem), expected, dtype=np.float32)
