"""From a plugin class to results in another engine, as the contract orders the calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail as dt
from tests.support.plugins import PlainCreator, ScalePlugin, build_engine


def _creator(calls: list | None = None) -> PlainCreator:
    return PlainCreator("TestScale", lambda factor: ScalePlugin(factor, calls))


def test_build_save_load_and_run(tmp_path: Path) -> None:
    plan, runtime = build_engine(ScalePlugin(3.0), _creator())
    path = tmp_path / "m.plan"
    path.write_bytes(plan)
    engine = runtime.load_engine(path)
    x = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4)
    np.testing.assert_allclose(engine(x), x * 3.0)
    np.testing.assert_allclose(engine(x=x), x * 3.0)


def test_dynamic_shapes_with_a_profile() -> None:
    plan, runtime = build_engine(
        ScalePlugin(2.0), _creator(), shape=(-1, 3, -1), profile=((1, 3, 1), (2, 3, 8), (4, 3, 16))
    )
    engine = runtime.deserialize_cuda_engine(plan)
    for shape in ((1, 3, 1), (4, 3, 16), (2, 3, 5)):
        x = np.random.default_rng(0).random(shape, np.float32)
        np.testing.assert_allclose(engine(x), x * 2.0)
    with pytest.raises(dt.InputError, match=r"outside profile 0, which allows \(1\.\.4, 3, 1\.\.16\)"):
        engine(np.zeros((5, 3, 4), np.float32))


def test_calls_at_run_time_follow_the_contract() -> None:
    calls: list = []
    plan, runtime = build_engine(ScalePlugin(2.0), _creator(calls))
    engine = runtime.deserialize_cuda_engine(plan)
    assert [name for name, _ in calls] == ["set_tactic"]
    assert calls[0][1] in (1, 2)
    context = engine.create_execution_context()
    assert [name for name, _ in calls[1:]] == ["attach_to_context", "clone"]
    del calls[:]
    x, y = np.ones((2, 3, 4, 4), np.float32), np.empty((2, 3, 4, 4), np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert context.execute_async_v3(0)
    assert context.execute_async_v3(0)
    assert [name for name, _ in calls] == ["on_shape_change", "enqueue", "enqueue"]
    np.testing.assert_allclose(y, 2.0)
