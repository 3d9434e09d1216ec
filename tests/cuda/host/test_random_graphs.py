"""Random models in Triton's interpreter, and their kernels by the compiler."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import dovetail
from dovetail_cuda.compile.farm import CompileFarm
from dovetail_cuda.compile.source import write_kernel
from dovetail_cuda.compile.store import KernelStore
from dovetail_cuda.emit.kernels import request_text
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ElementRegion
from dovetail_cuda.tune.element_tiles import choose_tile
from dovetail_cuda.tune.turns import turn_region
from tests.cuda.random_graphs import make_random_model


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 24))])
def test_a_random_model_gives_what_cpu_gives(paper: Any, seed: int) -> None:
    model, inputs = make_random_model(seed, 14)
    expected = dovetail.compile(model, providers=["cpu"])(*inputs)
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    results = engine(*inputs)
    pairs = [(results[name], expected[name]) for name in expected] if isinstance(expected, dict) else None
    for result, right in pairs or [(results, expected)]:
        np.testing.assert_allclose(result, right, rtol=1e-3, atol=1e-4)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 60), marks=pytest.mark.slow)], ids=["few", "many"])
def test_kernels_of_random_models_compile_for_sm_90(seeds: range, tmp_path: Path) -> None:
    requests = []
    for seed in seeds:
        plan = plan_partition(ir.from_proto(make_random_model(seed, 14)[0]))
        regions = [turn_region(region) for region in plan.regions if isinstance(region, ElementRegion)]
        requests += [request_text(write_kernel(region, choose_tile(region, 132)), 90) for region in regions]
    farm = CompileFarm()
    try:
        with ThreadPoolExecutor(2) as workers:
            compiled = KernelStore(tmp_path, farm.compile).get_all(requests, workers)
    finally:
        farm.close()
    assert all(code.code.startswith(b"\x7fELF") for code in compiled)
