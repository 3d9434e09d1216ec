"""Plugins compiled ahead of time: their kernel is in the plan, and a device runs it without their Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import dovetail
import dovetail_tensorrt.trt.plugin as trtp
from dovetail.plan.container import PlanFile
from dovetail.provider.loader import register_provider, unregister_provider
from dovetail_tensorrt.trt.plugin.definitions import definitions

Kernel = tuple[str | bytes, str | bytes, trtp.KernelLaunchParams, trtp.SymExprs]
PTX = ".version 8.0 // scale"


def define_scale(offer: Sequence[trtp.AutoTuneCombination] = ()) -> list[Any]:
    """A plugin whose kernel multiplies by an attribute; gives what aot_impl was called with."""
    calls: list[Any] = []

    @trtp.register("aot::scale")
    def desc(x: trtp.TensorDesc, name: str, factor: int) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl("aot::scale")
    def kernel(x: trtp.TensorDesc, factor: int, outputs: tuple[trtp.TensorDesc], tactic: int) -> Kernel:
        calls.append((tactic, x.dtype, x.format, x.shape.is_dynamic, outputs[0].shape.max))
        count = x.shape_expr.numel()
        params = trtp.KernelLaunchParams(grid_x=trtp.cdiv(count, 64), block_x=32)
        params.block_y = 2
        return "scale", PTX, params, trtp.SymIntExprs.from_tuple([trtp.SymInt32(count), trtp.SymInt32(factor)])

    if offer:

        @trtp.autotune("aot::scale")
        def tune(x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]) -> list[trtp.AutoTuneCombination]:
            return list(offer)

    return calls


def build(options: Any = None, providers: Sequence[str] = ("cuda", "cpu"), aot: bool | None = True) -> bytes:
    builder = dovetail.Builder()
    network = builder.create_network()
    x = network.add_input("x", dovetail.float32, (-1, 4))
    layer = trtp.expand(network, trtp.op.aot.scale(x, name="not stored", factor=3), aot)
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.providers = list(providers)
    config.provider_options = options or {}
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (20, 4), (100, 4))
    config.add_optimization_profile(profile)
    return bytes(builder.build_serialized_network(network, config))


@pytest.fixture
def device() -> Iterator[Any]:
    """The provider 'cuda' over a device of paper."""
    pytest.importorskip("triton", reason="the paper device of tests/cuda/host needs Triton: make test-cuda has it")
    from dovetail_cuda.provider import CudaFactory
    from tests.cuda.host.fake_provider import FakeToolbox
    from tests.cuda.host.test_plugin_kernels import PtxDriver

    driver = PtxDriver()
    register_provider(CudaFactory(FakeToolbox(driver)))
    yield driver
    unregister_provider("cuda")


@pytest.mark.parametrize("tactics", [None, [1, 2]])
def test_the_kernel_runs_without_the_plugin(device: Any, tactics: list[int] | None) -> None:
    calls = define_scale([trtp.AutoTuneCombination("FP32, FP32", "LINEAR", tactics)] if tactics else ())
    plan = build()
    assert {call[0] for call in calls} == set(tactics or [0])
    assert calls[-1][1:] == (dovetail.float32, dovetail.TensorFormat.LINEAR, True, (100, 4))
    made = definitions.find("aot", "scale")
    assert made is not None
    dovetail.get_plugin_registry().deregister_creator(made.creator)
    made.creator = None
    engine = dovetail.Runtime().deserialize_cuda_engine(plan)
    for rows in (20, 1, 100):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        np.testing.assert_array_equal(engine(x), x * 3)
    assert device.launches[-1].more_threads == (2, 1)


def test_a_plan_for_an_absent_device_holds_code_and_launch() -> None:
    provider = pytest.importorskip("dovetail_cuda.provider", reason="the package dovetail-cuda is not installed")
    define_scale()
    register_provider(provider.create_factory())
    try:
        plan = build(options={"cuda": {"target": "sm_90"}})
    finally:
        unregister_provider("cuda")
    file = PlanFile.from_bytes(memoryview(plan))
    manifest = json.loads(bytes(file.manifest))
    step = next(step for step in manifest["programs"][0]["steps"] if step["kind"] == "plugin")
    assert step["plugin"]["fields"] == []
    assert list(step["kernel"]["code"]) == ["kernel"]
    assert manifest["blobs"][step["kernel"]["code"]["kernel"]]["kind"] == "kernel"
    assert PTX.encode() in plan
    assert b"not stored" not in plan


def test_without_a_device_the_error_says_what_is_needed() -> None:
    define_scale()
    with pytest.raises(dovetail.BuildError, match="needs a CUDA device and the package dovetail-cuda"):
        build(providers=("cpu",))


def test_extra_arguments_are_of_32_bits() -> None:
    @trtp.register("aot::bad")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl("aot::bad")
    def kernel(x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc], tactic: int) -> Kernel:
        return "bad", b"code", trtp.KernelLaunchParams(), trtp.SymIntExprs.from_tuple([trtp.SymInt16(1)])

    _, _, plugin = trtp.op.aot.bad(dovetail.Builder().create_network().add_input("x", dovetail.float32, (2,)))()
    desc_ = dovetail.DynamicPluginTensorDesc(dovetail.PluginTensorDesc((2,)), (2,), (2,), (2,))
    with pytest.raises(ValueError, match="SymInt32"):
        plugin.get_kernel_launch([desc_], [desc_])


def test_both_kinds_need_a_choice() -> None:
    define_scale()

    @trtp.impl("aot::scale")
    def run(x: trtp.Tensor, factor: int, outputs: tuple[trtp.Tensor], stream: int) -> None:
        np.asarray(outputs[0])[:] = np.asarray(x) * factor

    with pytest.raises(ValueError, match="nothing says which"):
        build(aot=None, providers=("cpu",))
    flags = dovetail.NetworkDefinitionCreationFlag
    for flag, kind in ((flags.PREFER_AOT_PYTHON_PLUGINS, "Aot"), (flags.PREFER_JIT_PYTHON_PLUGINS, "Jit")):
        network = dovetail.Builder().create_network(1 << flag)
        assert network.get_flag(flag)
        tensor = network.add_input("x", dovetail.float32, (2, 4))
        layer = trtp.expand(network, trtp.op.aot.scale(tensor, name="n", factor=2))
        assert type(layer.plugin).__name__ == f"{kind}Plugin"
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    engine = dovetail.Runtime().deserialize_cuda_engine(build(aot=False, providers=("cpu",)))
    np.testing.assert_array_equal(engine(x), x * 3)
