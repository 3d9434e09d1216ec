"""Plugins that are a kernel: built, stored in the plan, loaded and launched without their author's code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import BuildError, PlanTrustError, PluginError
from dovetail.provider.loader import get_provider, register_provider, unregister_provider
from dovetail_cuda.provider import CudaFactory
from dovetail_cuda.run.driver import Launch, Parameters
from dovetail_cuda.run.kernel_parameters import KernelParameter
from tests.cuda.host.fake_driver import FakeDriver
from tests.cuda.host.fake_provider import FakeToolbox
from tests.cuda.kernel_plugins import PTX, ScalePlugin, build

Kernel = Callable[..., None]


def scale_rows(driver: FakeDriver, grid: Any, source: int, count: int, factor: int, target: int) -> None:
    """What the kernel 'scale' does: one thread an element, and no more elements than there are."""
    assert grid == (-(-count // 64), 1, 1)
    driver.view(target, (count,), np.float32)[:] = driver.view(source, (count,), np.float32) * factor


class PtxDriver(FakeDriver):
    """A paper device that takes PTX and runs kernels that it knows by name; integers are read as 32 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: dict[str, tuple[Kernel, str]] = {"scale": (scale_rows, "piip")}
        self.ptx: dict[int, bytes] = {}
        self.functions: dict[int, str] = {}
        self.launches: list[Launch] = []

    def load_library(self, code: bytes) -> int:
        assert code.endswith(b"\0"), "the driver reads PTX to its final NUL"
        handle = next(self._handles)
        self.ptx[handle] = code
        return handle

    def unload_library(self, library: int) -> None:
        del self.ptx[library]

    def find_function(self, library: int, name: str, shared_bytes: int) -> int:
        if name not in self.kernels:
            return super().find_function(library, name, shared_bytes)
        self.functions[library] = name
        return library

    def list_parameters(self, function: int) -> list[KernelParameter] | None:
        _, kinds = self.kernels[self.functions[function]]
        return [KernelParameter(8 if kind == "p" else 4) for kind in kinds]

    def launch(self, launch: Launch, parameters: Parameters, stream: int) -> None:
        kernel, kinds = self.kernels[self.functions[launch.function]]
        places = (ctypes.c_uint64 * len(kinds)).from_address(parameters.address)
        readers = {"p": ctypes.c_uint64, "i": ctypes.c_int32}
        values = [readers[kind].from_address(place).value for kind, place in zip(kinds, places, strict=True)]
        self.launches.append(launch)
        self._submit(stream, "kernel", lambda: kernel(self, launch.grid, *values))


@pytest.fixture
def device() -> Iterator[PtxDriver]:
    """The provider 'cuda' over a device that takes PTX."""
    driver = PtxDriver()
    register_provider(CudaFactory(FakeToolbox(driver)))
    try:
        yield driver
    finally:
        unregister_provider("cuda")


@pytest.mark.parametrize("tactics", [(), (1, 2)])
def test_a_plan_holds_the_kernel_and_runs_it(device: PtxDriver, tactics: Sequence[int]) -> None:
    engine = dovetail.Runtime().deserialize_cuda_engine(build(ScalePlugin(tactics)))
    for rows in (20, 1, 100):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        np.testing.assert_array_equal(engine(x), x * 3)
    assert device.launches[-1].threads == 32
    assert device.launches[-1].more_threads == (2, 1)
    assert list(engine.manifest.blobs.values())[-1].kind in ("kernel", "payload")
    assert len(device.ptx) == 1, "code is loaded once for an engine, whatever shapes come"
    engine.close()
    get_provider("cuda").synchronize()
    get_provider("cuda")._gpu.release_now()  # type: ignore[attr-defined]
    assert not device.ptx


@pytest.mark.parametrize("kinds", ["pip", "piiip", "ppip", "iiip", "piipi", "ppp", "piippppp", "pp"])
def test_a_kernel_with_other_parameters_than_its_launch_is_not_launched(device: PtxDriver, kinds: str) -> None:
    raw = build(ScalePlugin())
    device.kernels["scale"] = (scale_rows, kinds)
    launched = len(device.launches)
    with pytest.raises(PluginError, match=r"(?s)other parameters than its launch passes.*get_kernel_launch"):
        dovetail.Runtime().deserialize_cuda_engine(raw)(np.ones((20, 4), np.float32))
    assert len(device.launches) == launched


def test_scratch_addresses_after_the_parameters_are_allowed(device: PtxDriver) -> None:
    device.kernels["scale"] = (lambda driver, grid, *given: scale_rows(driver, grid, *given[:4]), "piippp")
    x = np.ones((20, 4), np.float32)
    np.testing.assert_array_equal(dovetail.Runtime().deserialize_cuda_engine(build(ScalePlugin()))(x), x * 3)


def test_nothing_is_launched_over_no_elements(device: PtxDriver) -> None:
    engine = dovetail.Runtime().deserialize_cuda_engine(build(ScalePlugin()))
    launched = len(device.launches)
    assert engine(np.zeros((0, 4), np.float32)).shape == (0, 4)
    assert len(device.launches) == launched


def test_device_code_of_a_plugin_needs_trust(device: PtxDriver) -> None:
    runtime = dovetail.Runtime()
    runtime.engine_device_code_allowed = False
    with pytest.raises(PlanTrustError, match="device code"):
        runtime.deserialize_cuda_engine(build(ScalePlugin()))


def test_a_plan_can_be_built_for_a_device_that_is_not_here(device: PtxDriver) -> None:
    plan = build(ScalePlugin((1, 2)), options={"cuda": {"target": "sm_90"}})
    assert not device.launches
    assert PTX in plan


def test_without_a_device_the_error_says_what_is_needed() -> None:
    with pytest.raises(BuildError, match="needs a CUDA device and the package dovetail-cuda"):
        build(ScalePlugin(), providers=("cpu",))
