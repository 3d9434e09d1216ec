"""Devices that break the contract: each is named, and the others go on."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.errors import ProviderError
from dovetail.provider.interfaces import API_VERSION, BindContext
from dovetail.provider.loader import get_provider, provider_names, register_provider, unregister_provider
from dovetail.testing import HostDevice, HostDeviceFactory, HostDeviceOptions, host_device
from tests.support.device_models import X, build, chain, expected, steps_of
from tests.support.single_kernels import load_kernel


class Messages(dt.ILogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.texts.append(msg)


def _break(device: HostDevice, *callbacks: str) -> None:
    device.options = replace(device.options, raises_in=callbacks)


# registering


def test_another_version_of_the_contract_is_refused() -> None:
    factory = HostDeviceFactory(HostDeviceOptions(name="old", api_version=99))
    with pytest.raises(ProviderError, match=r"'old'.*another version") as caught:
        register_provider(factory)
    assert (caught.value.expected, caught.value.got) == (API_VERSION, 99)
    assert "old" not in provider_names()
    assert "cpu" in provider_names()


def test_a_name_is_taken_once() -> None:
    for name in ("cpu", "onnxruntime"):
        with pytest.raises(ProviderError, match="already"):
            register_provider(HostDeviceFactory(HostDeviceOptions(name=name)))
    with host_device(name="mine") as device:
        with pytest.raises(ProviderError, match="already"):
            register_provider(HostDeviceFactory(HostDeviceOptions(name="mine")))
        assert get_provider("mine") is device
        assert "mine" in provider_names()
    assert "mine" not in provider_names()
    with pytest.raises(ProviderError, match="'mine'"):
        unregister_provider("mine")
    with pytest.raises(ProviderError, match="there is no provider 'mine'"):
        get_provider("mine")


def test_what_is_no_factory_is_refused() -> None:
    with pytest.raises(ProviderError, match="'object'"):
        register_provider(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("callback", ["devices", "create"])
def test_a_factory_that_raises(callback: str) -> None:
    with (
        pytest.raises(ProviderError, match=f"'host_device'.*told to fail in {callback}"),
        host_device(raises_in=[callback]),
    ):
        pass
    assert "host_device" not in provider_names()


# asking what it takes


@pytest.mark.parametrize(
    "fault", [{"raises_in": ["get_capability"]}, {"missing_claims": 1}], ids=["raises", "too few claims"]
)
def test_a_device_that_fails_when_it_is_asked_gets_nothing(fault: dict[str, Any]) -> None:
    with host_device(**fault), host_device(name="second", ops=["Relu"]):
        messages = Messages()
        engine = build(chain(), "host_device", "second", logger=messages)
        providers = {step.partition("@")[2] for step in steps_of(engine) if not step.startswith("Copy")}
        assert providers == {"second", "cpu"}
        assert any("'host_device'" in text for text in messages.texts)
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        with pytest.raises(ProviderError, match="'host_device'"):
            build(chain(), strict=True)


def test_a_device_that_takes_what_it_cannot_compile() -> None:
    with host_device(ops=["Relu"], takes_all=True):
        with pytest.raises(ProviderError, match=r"'host_device'.*no kernel for ai.onnx::MatMul"):
            build(chain())
        np.testing.assert_allclose(dt.compile(chain(), providers=["cpu"])(X), expected(chain(), X))


# making an engine


@pytest.mark.parametrize(
    "callback",
    ["rewrite", "host_inputs", "build_kernel", "load_kernel", "array_at", "copy", "synchronize", "allocate"],
)
def test_a_device_that_raises_while_an_engine_is_made(callback: str) -> None:
    with host_device(raises_in=[callback]), pytest.raises(ProviderError, match=f"'host_device'.*{callback}"):
        build(chain())
    np.testing.assert_allclose(dt.compile(chain(), providers=["cpu"])(X), expected(chain(), X))


def test_can_copy_that_raises() -> None:
    first = host_device(name="first", ops=["MatMul"])
    second = host_device(name="second", ops=["Relu"], raises_in=["can_copy"])
    with first, second, pytest.raises(ProviderError, match=r"'second'.*can_copy"):
        build(chain(), "first", "second")


@pytest.mark.parametrize(("number", "memory"), [(1, None), (2, None), (0, 256), (0, 300)])
def test_a_device_without_memory(number: int, memory: int | None) -> None:
    """The first allocation is for the weight, the second for the arena."""
    with host_device(fail_allocation=number, memory_bytes=memory):
        with pytest.raises(ProviderError, match=r"'host_device'.*no memory") as caught:
            build(chain())(X)
        assert caught.value.fix


def test_memory_for_small_shapes_only() -> None:
    with host_device(memory_bytes=10_000):
        engine = build(chain())
        for _ in range(3):
            np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
            with pytest.raises(ProviderError, match="no memory"):
                engine(np.resize(X, (1000, 8)))


# running


def _run(engine: dt.Engine, device: HostDevice) -> None:
    engine(X)


def _run_profiled(engine: dt.Engine, device: HostDevice) -> None:
    context = engine.create_execution_context()
    context.profiler = dt.LayerTimes()
    context.run([X])


def _run_on_stream(engine: dt.Engine, device: HostDevice) -> None:
    stream = device.create_stream()
    assert stream is not None
    engine.create_execution_context().use_streams({device.name: stream.handle})


def _run_given(engine: dt.Engine, device: HostDevice) -> None:
    engine(device.to_device(X))


def _run_foreign(engine: dt.Engine, device: HostDevice) -> None:
    engine(X.tolist())


RUNS: list[tuple[str, Callable[[dt.Engine, HostDevice], None], int]] = [
    ("create_stream", _run, 0),
    ("bind", _run, 0),
    ("allocate", _run, 0),
    ("array_at", _run, 0),
    ("copy", _run, 1),
    ("record", _run, 1),
    ("synchronize_event", _run, 1),
    ("synchronize_stream", _run, 1),
    ("begin_capture", _run, 1),
    ("replay", _run, 2),
    ("start_profiling", _run_profiled, 1),
    ("stop_profiling", _run_profiled, 1),
    ("import_array", _run_given, 1),
    ("dlpack_device", _run_foreign, 1),
    ("pinned_allocator", _run, 0),
    ("wrap_stream", _run_on_stream, 1),
]


@pytest.mark.parametrize(("callback", "action", "before"), RUNS, ids=[run[0] for run in RUNS])
def test_a_device_that_raises_in_a_run(
    callback: str, action: Callable[[dt.Engine, HostDevice], None], before: int
) -> None:
    is_border = callback in ("import_array", "dlpack_device")
    ops = None if is_border else ["MatMul", "Relu", "Add"]
    with host_device(ops=ops) as device:
        engine = build(chain())
        for _ in range(before):
            engine(X)
        _break(device, callback)
        with pytest.raises(ProviderError, match=rf"'host_device'.*told to fail in {callback}"):
            action(engine, device)
        np.testing.assert_allclose(dt.compile(chain(), providers=["cpu"])(X), expected(chain(), X))
        _break(device)
        for _ in range(3):  # the device is well again, and so is the engine
            np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)


def test_wait_that_raises() -> None:
    with (
        host_device(name="first", ops=["MatMul"]),
        host_device(name="second", ops=["Relu"], peers=["first"]) as second,
    ):
        engine = build(chain(), "first", "second")
        engine(X)
        _break(second, "wait")
        with pytest.raises(ProviderError, match=r"'second'.*told to fail in wait"):
            engine(X)


@pytest.mark.parametrize("callback", ["close_stream", "deallocate_async"])
def test_a_device_that_raises_at_the_end(callback: str) -> None:
    with host_device() as device:
        engine = build(chain())
        engine(X)
        _break(device, callback)
        with pytest.raises(ProviderError, match=f"'host_device'.*{callback}"):
            engine.close()
        _break(device)
        engine.close()
        del engine
        gc.collect()


def test_an_event_of_a_stranger_is_refused() -> None:
    with host_device() as device:
        stream = device.create_stream()
        assert stream is not None
        with pytest.raises(ProviderError, match="another device"):
            stream.wait(object())  # type: ignore[arg-type]
        with host_device(name="other") as other, pytest.raises(ProviderError, match="no stream of this device"):
            device.submit(other.create_stream(), "work", lambda: None)
        with pytest.raises(ProviderError, match="no stream"):
            device.find_stream(1)


def test_the_host_may_not_wait_in_a_capture() -> None:
    with host_device() as device:
        stream = device.create_stream()
        assert stream is not None
        device.begin_capture(stream)
        for forbidden in (stream.synchronize, stream.record, lambda: device.begin_capture(stream)):
            with pytest.raises(ProviderError, match="during a capture"):
                forbidden()
        graph = device.end_capture(stream)
        with pytest.raises(ProviderError, match="did not begin"):
            device.end_capture(stream)
        graph.close()
        with pytest.raises(ProviderError, match="replayed"):
            graph.replay(stream)


def test_an_array_of_the_host_is_no_array_of_the_device() -> None:
    with host_device() as device:
        function = load_kernel(device, "Relu", 14, {}, ["float32"]).bind(BindContext())
        with pytest.raises(ProviderError, match="does not lie in the device's memory"):
            function(X)


def test_unknown_options_are_refused() -> None:
    with host_device():
        with pytest.raises(ProviderError, match=r"'host_device'.*colour"):
            get_provider("host_device", {"colour": "red"})
        assert get_provider("host_device", {"layout": "NHWC"}).preferred_layout == "NHWC"


def test_pinned_memory_that_cannot_be_had() -> None:
    with host_device() as device:
        assert device.pinned_allocator.allocate(10, 256, 0)
        _break(device, "pinned_allocator")
        with pytest.raises(RuntimeError, match="told to fail in pinned_allocator"):
            _ = device.pinned_allocator


def test_a_device_that_fails_to_tune_leaves_the_plan_as_it_is(tmp_path: Path) -> None:
    config, plan = dt.BuilderConfig(), tmp_path / "plan"
    config.candidate_bytes = 1 << 20
    with host_device(compiles=True, ways=("slow", "fast"), is_here=False):
        build(chain(), config=config).save(plan)
    before = plan.read_bytes()
    with (
        host_device(compiles=True, ways=("slow", "fast"), raises_in=["tune_partition"]),
        pytest.raises(ProviderError, match=r"tune_partition of step .* raised RuntimeError"),
    ):
        dt.tune(plan)
    assert plan.read_bytes() == before
