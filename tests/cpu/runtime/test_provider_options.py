"""Options of providers reach the engine that runs: given at load or by the build, never from the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plan.container import PlanFile
from dovetail.provider.loader import get_provider, set_default_options
from dovetail.runtime.observe import observe_with
from dovetail.testing import HostDevice, host_device
from dovetail.testing.statistics import DeviceStatistics
from tests.support.device_models import WEIGHT, X, build, chain, expected

OPTIONS = {"host_device": {"can_capture": "0"}}
ON_DEVICE = ["MatMul", "Relu", "Add"]
CALLBACKS = (
    *("allocate", "array_at", "load_kernel", "copy", "create_stream", "host_inputs", "import_array", "start_profiling"),
    *("stop_profiling", "synchronize", "pinned_allocator", "deallocate_async"),
)


def _save(folder: Path, *flags: dt.BuilderFlag) -> Path:
    config = dt.BuilderConfig()
    for flag in flags:
        config.set_flag(flag)
    build(chain(), config=config).save(folder / "plan")
    return folder / "plan"


def _other() -> HostDevice:
    provider = get_provider("host_device", OPTIONS["host_device"])
    assert isinstance(provider, HostDevice)
    return provider


def _load(path: Path) -> dt.Engine:
    return dt.load(path, provider_options=OPTIONS)


def _by_runtime(path: Path) -> dt.Engine:
    return dt.Runtime(provider_options=OPTIONS).load_engine(path)


def _by_attribute(path: Path) -> dt.Engine:
    runtime = dt.Runtime()
    runtime.provider_options = OPTIONS
    return runtime.deserialize_cuda_engine(path.read_bytes())


@pytest.mark.parametrize("load", [_load, _by_runtime, _by_attribute])
def test_a_plan_runs_with_the_options_it_is_loaded_with(load: Callable[[Path], dt.Engine], tmp_path: Path) -> None:
    with host_device() as device:
        path = _save(tmp_path)
        device.statistics.reset()
        engine, other = load(path), _other()
        assert engine.providers["host_device"] is other is not device
        for _ in range(4):
            np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        assert (other.statistics.launches > 0, other.statistics.captures) == (True, 0)
        assert device.statistics == DeviceStatistics()


def _profile(engine: dt.Engine) -> None:
    context = engine.create_execution_context()
    context.profiler = dt.LayerTimes()
    context.run([X])


def _observe(engine: dt.Engine) -> None:
    engine.create_execution_context().observe([X], observe_with(lambda value, array: None))


def _give_arrays(engine: dt.Engine) -> None:
    other = _other()
    with engine.create_execution_context() as context:
        context.run([other.to_device(X)], {"y": other.empty(X.shape, np.float32)})


def _refit(engine: dt.Engine) -> None:
    refitter = dt.Refitter(engine)
    refitter.set_named_weights("W", WEIGHT)
    assert refitter.refit_cuda_engine()
    engine(X)


@pytest.mark.parametrize("action", [_profile, _observe, _give_arrays, _refit])
@pytest.mark.parametrize("ops", [None, ON_DEVICE])
def test_nothing_of_an_engine_uses_the_provider_with_other_options(
    action: Callable[[dt.Engine], None], ops: list[str] | None, tmp_path: Path
) -> None:
    with host_device(ops=ops) as device:
        path = _save(tmp_path, dt.BuilderFlag.REFIT)
        device.options = replace(device.options, raises_in=CALLBACKS)
        device.statistics.reset()
        action(_load(path))
        assert _other().statistics.launches > 0
        assert device.statistics == DeviceStatistics()


def test_two_engines_of_a_plan_run_with_different_options(tmp_path: Path) -> None:
    with host_device() as device:
        path = _save(tmp_path)
        first, second = dt.load(path), _load(path)
        device.statistics.reset()
        _other().statistics.reset()
        for _ in range(4):
            np.testing.assert_array_equal(first(X), second(X))
        assert (device.statistics.captures, _other().statistics.captures) == (1, 0)


@pytest.mark.parametrize("is_network", [False, True])
def test_an_engine_that_was_just_built_has_the_options_of_the_build(is_network: bool) -> None:
    config = dt.BuilderConfig()
    config.provider_options, config.providers = OPTIONS, ["host_device", "cpu"]
    with host_device() as device:
        if is_network:
            network = dt.Builder().create_network()
            x = network.add_input("x", dt.float32, (3, 8))
            network.mark_output(network.add_activation(x, dt.ActivationType.RELU).get_output(0))
            engine = dt.Builder().build_engine_with_config(network, config)
        else:
            engine = dt.compile(chain(), config=config)
        device.statistics.reset()
        engine(X)
        assert engine.providers["host_device"] is _other() is not device
        assert device.statistics == DeviceStatistics()


def test_a_plan_stores_no_options(tmp_path: Path) -> None:
    config = dt.BuilderConfig()
    config.provider_options = OPTIONS
    with host_device() as device:
        build(chain(), config=config).save(tmp_path / "with")
        build(chain()).save(tmp_path / "without")
        with PlanFile.open(tmp_path / "with") as one, PlanFile.open(tmp_path / "without") as other:
            assert b"can_capture" not in bytes(one.manifest)
            assert one.manifest == other.manifest
        assert dt.load(tmp_path / "with").providers["host_device"] is device


def test_an_engine_keeps_its_options_when_the_default_ones_change(tmp_path: Path) -> None:
    with host_device() as device:
        engine = dt.load(_save(tmp_path))
        set_default_options("host_device", OPTIONS["host_device"])
        try:
            engine(X)
            assert engine.providers["host_device"] is device
            assert _other().statistics == DeviceStatistics()
        finally:
            set_default_options("host_device", {})


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"host_device": {"colour": "red"}}, dt.ProviderError, r"'host_device'.*unknown option\(s\) colour"),
        (
            {"cpu": {"layuot": "NHWC"}},
            dt.ProviderError,
            r"'cpu': unknown option\(s\) layuot.*\n.*did you mean 'layout'",
        ),
        ({"host_device": {"can_capture": 0}}, dt.ProviderError, "'host_device'.*is not text"),
        ({"host_devise": {"can_capture": "0"}}, dt.ProviderError, "no provider 'host_devise'.*host_device"),
        ({"host_device": "can_capture=0"}, dt.UsageError, "not options of a provider"),
        ({1: {}}, dt.UsageError, "not options of a provider"),
        ("threads=1", dt.UsageError, "not options of providers"),
    ],
)
def test_options_that_cannot_be_are_named(options: Any, error: type[Exception], text: str, tmp_path: Path) -> None:
    with host_device():
        path = _save(tmp_path)
        with pytest.raises(error, match=text):
            dt.load(path, provider_options=options)
        config = dt.BuilderConfig()
        config.provider_options = options
        with pytest.raises(error, match=text):
            build(chain(), config=config)


def test_options_of_a_provider_that_the_plan_does_not_use_do_no_harm(tmp_path: Path) -> None:
    with host_device():
        dt.compile(chain(), providers=["cpu"]).save(tmp_path / "plan")
        np.testing.assert_array_equal(_load(tmp_path / "plan")(X), expected(chain(), X))
