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


def _sums(network: dt.Network) -> None:
    total = network.add_input("x", dt.float32, (-1, 3))
    for name, value in (("b", 1.0), ("a", 2.0), ("c", 3.0)):
        constant = network.add_constant((1, 3), np.full((1, 3), value, np.float32))
        constant.name = name
        total = network.add_elementwise(total, constant.get_output(0), dt.ElementWiseOperation.SUM).get_output(0)
    network.mark_output(total)


def test_a_plan_that_is_loaded_and_saved_again_is_the_same_file(tmp_path: Path) -> None:
    network = dt.Builder().create_network()
    _sums(network)
    engine = dt.compile(network)
    engine.save(tmp_path / "first.plan")
    dt.load(tmp_path / "first.plan").save(tmp_path / "second.plan")
    assert (tmp_path / "first.plan").read_bytes() == (tmp_path / "second.plan").read_bytes()
    assert bytes(engine.serialize()) == (tmp_path / "first.plan").read_bytes()


def test_compiling_leaves_the_configuration_of_the_caller_as_it_is() -> None:
    network = dt.Builder().create_network()
    _sums(network)
    config = dt.BuilderConfig()
    for _ in range(2):
        engine = dt.compile(network, shapes={"x": ((1, 3), (2, 3), (4, 3))}, config=config, strict=True)
        assert engine.num_optimization_profiles == 1
    assert not config.profiles
    assert not config.strict


@pytest.mark.parametrize("shapes", ["x", [("x", (1, 3))], {"x": None}, {"x": 5}, {"x": "abc"}, {"x": ((1, 3), (2, 3))}])
def test_what_are_no_shapes_is_refused(shapes: object) -> None:
    network = dt.Builder().create_network()
    _sums(network)
    with pytest.raises(dt.UsageError):
        dt.compile(network, shapes=shapes)  # type: ignore[arg-type]


def test_what_is_no_plan_is_refused() -> None:
    for wrong in (None, 5, "plan"):
        with pytest.raises(dt.UsageError, match="not the bytes of a plan"):
            dt.Runtime().deserialize_cuda_engine(wrong)
