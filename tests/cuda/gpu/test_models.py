"""Small models on a GPU: right, captured and replayed, and what a run costs."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import pytest

import dovetail as dt
from dovetail.provider.loader import get_provider
from dovetail_cuda.run.driver import Driver, Launch
from tests.cuda.gpu.building import compile_on_device, measure_error
from tests.cuda.models import make_block, make_mlp

ERRORS = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}
"""The largest difference from the reference, in norms."""


def _reference(model_of: Any, x: Any) -> Any:
    """The same model in single precision on the host; its weights are those of the half precision one."""
    return dt.compile(model_of, providers=["cpu"])(x)


@pytest.mark.parametrize("dtype", list(ERRORS))
@pytest.mark.parametrize("kind", ["mlp", "block"])
def test_results_are_those_of_the_reference(cuda: Any, kind: str, dtype: str, capsys: Any) -> None:
    shape = (256, 512) if kind == "mlp" else (2, 128, 256)
    model = make_mlp(dtype, *shape) if kind == "mlp" else make_block(dtype, *shape, heads=4, depth=2)
    x = np.random.default_rng(5).standard_normal(shape).astype(np.dtype(dtype))
    engine = compile_on_device(model)
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    results = [engine(x) for _ in range(4)]  # the first runs are launched, the others replayed
    assert all(np.array_equal(result, results[0]) for result in results[1:])
    error = measure_error(results[0], _reference(model, x))
    with capsys.disabled():
        print(f"\n{kind} {dtype}: error {error:.1e}")
    assert error < ERRORS[dtype]


@pytest.mark.parametrize(("batch", "length"), [(1, 128), (32, 128)])
def test_a_run_costs_little(cuda: Any, batch: int, length: int, capsys: Any) -> None:
    """Prints the time of twelve blocks of BERT-base's size in half precision, with everything on the device."""
    model = make_block("float16", batch, length, 768, heads=12, depth=12)
    start = time.perf_counter()
    engine = compile_on_device(model, shapes={"x": (batch, length, 768)})
    built_s = time.perf_counter() - start
    provider = get_provider("cuda")
    x = np.random.default_rng(6).standard_normal((batch, length, 768)).astype(np.float16)
    context, stream = engine.create_execution_context(), provider.create_stream()
    names = [engine.get_tensor_name(number) for number in range(2)]
    places = [provider.allocator.allocate(x.nbytes, 256, 0) for _ in names]
    provider.copy(x, provider.array_at(places[0], x.shape, x.dtype), None)
    for name, place in zip(names, places, strict=True):
        context.set_tensor_address(name, place)
    times = [_time_us(context, stream) for _ in range(210)][10:]
    result = np.empty_like(x)
    provider.copy(provider.array_at(places[1], x.shape, x.dtype), result, None)
    first = engine(x)
    with capsys.disabled():
        median = float(np.median(times))
        print(f"\nBERT-base blocks, batch {batch}: {median / 1e3:.3f} ms a run, built in {built_s:.1f} s")
    assert np.array_equal(result, first)
    assert np.isfinite(result.astype(np.float32)).all()


def _time_us(context: Any, stream: Any) -> float:
    start = time.perf_counter()
    context.execute_async_v3(stream.handle)
    stream.synchronize()
    return (time.perf_counter() - start) * 1e6


def test_kernels_that_overlap_give_what_they_give_one_by_one(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that reads too early, or a sum that is added up in another order, shows in some of many replays."""
    model = make_block("float16", 1, 128, 768, heads=12, depth=3)
    x = np.random.default_rng(7).standard_normal((1, 128, 768)).astype(np.float16)
    engine = compile_on_device(model)
    results = [engine(x) for _ in range(500)]
    assert all(np.array_equal(result, results[0]) for result in results)

    def launch_alone(driver: Driver, launch: Launch, parameters: Any, stream: int) -> None:
        driver.launch(dataclasses.replace(launch, starts_early=False), parameters, stream)
        driver.synchronize_stream(stream)

    monkeypatch.setattr(Driver, "_launch_early", launch_alone)
    runtime = dt.Runtime()
    runtime.capture_graphs = False
    alone = runtime.deserialize_cuda_engine(engine.serialize())
    assert np.array_equal(alone(x), results[0])


def test_every_way_to_multiply_is_right(cuda: Any) -> None:
    """Nothing that is tried for the products of a transformer fails or is wrong, with few rows and with many."""
    for batch in (1, 16):
        engine = compile_on_device(make_block("float16", batch, 64, 768, heads=12))
        rows = [(table.name, row) for table in engine.manifest.tuning for row in table.candidates]
        assert batch > 1 or any("split" in row.name for _, row in rows)
        assert [(name, row.name, row.reason) for name, row in rows if row.status not in ("timed", "cached")] == []
