"""What providers build and what loading gives back: payloads, device code, workspaces, reports; shapes and progress."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

import dovetail as dt
from dovetail.errors import BuildCancelledError, PlanTrustError, ProviderError, UsageError
from dovetail.plan.compatibility import check_plan
from dovetail.plan.inspect import inspect_plan
from dovetail.provider.interfaces import (
    BuildContext,
    BuiltKernel,
    BuiltPartition,
    KernelRequest,
    PackedWeight,
    ShapeRange,
    StoredKernel,
)
from dovetail.testing import HostDevice, host_device
from tests.support.device_models import WEIGHT, X, build, chain, expected, make_model

KINDS = pytest.mark.parametrize("compiles", [False, True], ids=["kernels", "partition"])
BOUNDS = {"x": ((1, 8), (3, 8), (5, 8))}
PROFILES = [BOUNDS, {"x": ((6, 8), (7, 8), (64, 8))}]


def _watch_kernels(device: HostDevice) -> list[tuple[KernelRequest, BuildContext]]:
    """Everything that ``build_kernel`` is asked from now on."""
    asked: list[tuple[KernelRequest, BuildContext]] = []
    original = device.build_kernel

    def build_kernel(request: KernelRequest, context: BuildContext) -> BuiltKernel:
        asked.append((request, context))
        return original(request, context)

    device.build_kernel = build_kernel  # type: ignore[method-assign]
    return asked


def _watch_partitions(
    device: HostDevice, change: Callable[[BuiltPartition], BuiltPartition] = lambda built: built
) -> list[tuple[ir.Model, BuildContext]]:
    asked: list[tuple[ir.Model, BuildContext]] = []
    original = device.build_partition

    def build_partition(model: ir.Model, context: BuildContext) -> BuiltPartition:
        asked.append((model, context))
        return change(original(model, context))

    device.build_partition = build_partition  # type: ignore[method-assign]
    return asked


# kernels


def test_a_kernel_is_asked_with_types_shapes_and_weights() -> None:
    with host_device() as device:
        asked = _watch_kernels(device)
        build(chain(), shapes=BOUNDS)
        assert [request.op for request, _ in asked] == ["MatMul", "Relu", "Softmax", "Add"]
        request, context = asked[0]
        x, w = request.inputs
        assert x is not None
        assert w is not None
        assert (x.dtype, x.sizes, x.memory) == ("float32", (None, 8), "host_device")
        assert x.shapes == ShapeRange(min=(1, 8), opt=(3, 8), max=(5, 8))
        assert (w.sizes, w.shapes) == ((8, 8), ShapeRange(min=(8, 8), opt=(8, 8), max=(8, 8)))
        assert request.weight_names == {1: "W"}
        np.testing.assert_array_equal(request.constants[1], WEIGHT)
        assert context.shapes["x"] == x.shapes
        assert asked[3][0].constants == {}


def test_a_kernel_is_built_for_each_profile() -> None:
    with host_device() as device:
        asked = _watch_kernels(device)
        engine = dt.compile(chain(), providers=["host_device", "cpu"], profiles=PROFILES)
        first = [(context.profile, context.shapes["x"].max) for request, context in asked if request.op == "MatMul"]
        assert first == [(0, (5, 8)), (1, (64, 8))]
        for rows in (3, 7):
            x = np.resize(X, (rows, 8))
            np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-5)


def test_shapes_without_bounds_have_no_largest() -> None:
    with host_device() as device:
        asked = _watch_kernels(device)
        build(chain())
        assert asked[0][1].is_open
        assert asked[0][1].shapes["x"] == ShapeRange(min=(1, 8), opt=(1, 8), max=(None, 8))


def test_what_is_built_comes_back_when_the_plan_is_loaded(tmp_path: Path) -> None:
    with host_device(ops=["Relu"]) as device:
        given = BuiltKernel(
            payload=b"tuned", version="7", tactic="wide", code={"main": b"cubin", "tail": b"more"}, workspace_bytes=96
        )
        device.build_kernel = lambda request, context: given  # type: ignore[method-assign]
        loaded: list[StoredKernel] = []
        original = device.load_kernel

        def load_kernel(stored: StoredKernel) -> Any:
            loaded.append(stored)
            return original(replace(stored, payload=memoryview(b""), version="", tactic="", code={}))

        device.load_kernel = load_kernel  # type: ignore[method-assign]
        build(chain(), shapes=BOUNDS).save(tmp_path / "plan")
        loaded.clear()
        engine = dt.load(tmp_path / "plan")
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-5)
        (stored,) = loaded
        assert (bytes(stored.payload), stored.version, stored.tactic, stored.name) == (b"tuned", "7", "wide", "relu")
        assert {name: bytes(code) for name, code in stored.code.items()} == {"main": b"cubin", "tail": b"more"}
        (step,) = [step for step in engine.manifest.programs[0].steps if step.op == "Relu"]
        assert step.workspace_bytes == 96


def test_a_packed_input_has_the_packed_type_and_shape() -> None:
    weight = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    model = make_model([helper.make_node("MatMul", ["x", "W"], ["y"])], {"x": [2, 8]}, {"y": [2, 3]}, {"W": weight})
    with host_device(packs=True):
        engine = build(model)
        (value,) = [value for value in engine.manifest.programs[0].values if value.kind == "constant"]
        assert (value.sizes, value.dtype, value.memory) == ((3, 8), "float32", "host_device")
        np.testing.assert_allclose(engine(X[:2]), X[:2] @ weight, rtol=1e-5)


def test_a_packed_weight_is_stored_once() -> None:
    nodes = [helper.make_node("MatMul", ["x", "W"], ["a"]), helper.make_node("MatMul", ["a", "W"], ["y"])]
    with host_device(packs=True):
        engine = dt.compile(
            make_model(nodes, {"x": ["n", 8]}, {"y": ["n", 8]}, {"W": WEIGHT}),
            providers=["host_device", "cpu"],
            profiles=PROFILES,
        )
        assert [name for name, record in engine.manifest.blobs.items() if record.kind == "weights"] == ["packed:W"]
        np.testing.assert_allclose(engine(X), X @ WEIGHT @ WEIGHT, rtol=1e-4, atol=1e-5)


WRONG_KERNELS: dict[str, Any] = {
    "gave no kernel": None,
    "packed an input that is no weight": BuiltKernel(weights={0: PackedWeight(array=np.zeros(3))}),
    "the payload is no bytes": BuiltKernel(payload="text"),  # type: ignore[arg-type]
    "the tactic is no text that a plan can store": BuiltKernel(tactic="a\0b"),
    "device code 'main' is no bytes": BuiltKernel(code={"main": 5}),  # type: ignore[dict-item]
    "a name of device code is no text": BuiltKernel(code={"x" * 70_000: b""}),
    "weight 'W' is no array": BuiltKernel(weights={1: PackedWeight(array=[1.0])}),
    "weight 'W' has a type that a plan cannot store": BuiltKernel(
        weights={1: PackedWeight(array=np.zeros(2, "datetime64[s]"))}
    ),
    "needs more workspace than the build allows": BuiltKernel(workspace_bytes=2**60),
}


@pytest.mark.parametrize("what", WRONG_KERNELS)
def test_a_kernel_that_cannot_be_stored_is_refused_in_the_build(what: str) -> None:
    with host_device(ops=["MatMul"]) as device:
        device.build_kernel = lambda request, context: WRONG_KERNELS[what]  # type: ignore[method-assign]
        with pytest.raises(ProviderError, match=rf"'host_device', step 'matmul'.*{what}"):
            build(chain())


# device code


@KINDS
def test_device_code_is_loaded_by_default_and_can_be_refused(compiles: bool, tmp_path: Path) -> None:
    with host_device(compiles=compiles, has_code=True) as device:
        build(chain(), shapes=BOUNDS).save(tmp_path / "plan")
        np.testing.assert_allclose(dt.load(tmp_path / "plan")(X), expected(chain(), X), rtol=1e-5)
        count = 1 if compiles else 4
        kinds = [blob["kind"] for blob in inspect_plan(tmp_path / "plan")["blobs"]]
        assert kinds.count("kernel") == count
        assert (
            f"carries {count} piece(s) of device code: loading it can be refused" in check_plan(tmp_path / "plan").notes
        )
        for name in ("load_kernel", "load_partition"):
            setattr(device, name, lambda stored: pytest.fail("a provider saw it"))
        with pytest.raises(PlanTrustError, match="device code") as caught:
            dt.load(tmp_path / "plan", device_code=False)
        assert "device_code=True" in str(caught.value)


def test_a_plan_without_device_code_loads_where_it_is_refused(tmp_path: Path) -> None:
    with host_device():
        build(chain()).save(tmp_path / "plan")
        np.testing.assert_allclose(dt.load(tmp_path / "plan", device_code=False)(X), expected(chain(), X), rtol=1e-5)


# partitions


def test_a_partition_is_compiled_once_for_all_profiles() -> None:
    with host_device(compiles=True) as device:
        asked = _watch_partitions(device)
        engine = dt.compile(chain(), providers=["host_device", "cpu"], profiles=PROFILES)
        (context,) = [context for _, context in asked]
        assert context.shapes == {"x": ShapeRange(min=(1, 8), opt=(3, 8), max=(64, 8))}
        first, second = [
            [step.partition.payload for step in program.steps if step.partition] for program in engine.manifest.programs
        ]
        assert first == second


def test_a_partition_is_compiled_for_each_profile_where_the_provider_wants_that() -> None:
    with host_device(compiles=True, per_profile=True) as device:
        asked = _watch_partitions(device)
        engine = dt.compile(chain(), providers=["host_device", "cpu"], profiles=PROFILES)
        shapes = [(context.profile, context.shapes["x"]) for _, context in asked]
        assert shapes == [
            (0, ShapeRange(min=(1, 8), opt=(3, 8), max=(5, 8))),
            (1, ShapeRange(min=(6, 8), opt=(7, 8), max=(64, 8))),
        ]
        payloads = {
            step.partition.payload for p in engine.manifest.programs for step in p.steps if step.partition is not None
        }
        assert len(payloads) == 2
        for rows in (1, 5, 6, 64):
            x = np.resize(X, (rows, 8))
            np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-5)


def test_a_node_that_one_profile_cannot_have_goes_to_another_provider_in_all() -> None:
    with host_device(compiles=True, per_profile=True) as device:
        original = device.build_partition

        def build_partition(model: ir.Model, context: BuildContext) -> BuiltPartition:
            if context.profile == 1 and any(node.op_type == "Softmax" for node in model.graph):
                raise ValueError("too many rows")
            return original(model, context)

        device.build_partition = build_partition  # type: ignore[method-assign]
        engine = dt.compile(
            chain(), providers=["host_device", "cpu"], profiles=PROFILES, logger=dt.Logger(dt.Logger.ERROR)
        )
        for program in engine.manifest.programs:
            assert [step.name for step in program.steps if step.provider == "cpu"] == ["softmax"]
        assert "too many rows" in engine.manifest.notes[0].text
        for rows in (5, 64):
            x = np.resize(X, (rows, 8))
            np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-5)


def test_the_reference_runs_a_partition() -> None:
    """With weights, several outputs and dynamic shapes, as a provider would compare its own results."""
    seen: list[float] = []
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
        helper.make_node("Neg", ["y"], ["z"]),
    ]
    model = make_model(nodes, {"x": ["n", 8]}, {"y": ["n", 8], "z": ["n", 8]}, {"W": WEIGHT})
    with host_device(compiles=True) as device:
        original = device.build_partition

        def build_partition(part: ir.Model, context: BuildContext) -> BuiltPartition:
            results = context.reference(part, {"x": X})
            assert sorted(results) == ["y", "z"]
            np.testing.assert_allclose(results["y"], np.maximum(X @ WEIGHT, 0), rtol=1e-5)
            np.testing.assert_allclose(results["z"], -results["y"])
            seen.append(float(results["y"].sum()))
            return original(part, context)

        device.build_partition = build_partition  # type: ignore[method-assign]
        build(model)
    assert len(seen) == 1


def test_limits_flags_and_workers_are_those_of_the_build() -> None:
    config = dt.BuilderConfig()
    config.set_flag(dt.BuilderFlag.REFIT)
    config.set_memory_pool_limit(dt.MemoryPoolType.WORKSPACE, 4096)
    with host_device(compiles=True, budget_bytes=10_000) as device:
        asked = _watch_partitions(device)
        build(chain(), config=config)
        (context,) = [context for _, context in asked]
        assert (context.workspace_limit_bytes, context.memory_limit_bytes) == (4096, 10_000)
        assert "REFIT" in context.flags
        assert context.keep == {"W"}
        assert context.device is device.device


def test_as_many_workers_as_the_builder_has_threads() -> None:
    counts: list[int] = []
    with host_device(compiles=True) as device:
        original = device.build_partition

        def meet_three(model: ir.Model, context: BuildContext) -> BuiltPartition:
            barrier = threading.Barrier(3)
            futures = [context.workers.submit(_meet, barrier) for _ in range(3)]
            counts.append(len({future.result(30) for future in futures}))
            return original(model, context)

        device.build_partition = meet_three  # type: ignore[method-assign]
        builder = dt.Builder()
        builder.max_threads = 3
        config = builder.create_builder_config()
        config.providers = ["host_device", "cpu"]
        network = builder.create_network()
        x = network.add_input("x", dt.float32, (2, 3))
        network.mark_output(network.add_activation(x, dt.ActivationType.TANH).get_output(0))
        builder.build_engine_with_config(network, config)
        assert counts == [3]
        builder.max_threads = -1
        with pytest.raises(UsageError, match=r"builder\.max_threads"):
            builder.build_engine_with_config(network, config)


def _meet(barrier: threading.Barrier) -> int:
    """Wait until so many threads are here: with fewer workers it never happens."""
    barrier.wait(20)
    return threading.get_ident()


# progress


class Monitor(dt.IProgressMonitor):
    """Notes steps, and cancels at one."""

    def __init__(self, stop: tuple[str, int] | None = None) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.num_open = 0
        self._stop = stop

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        self.num_open += 1
        self.lines.append(f"{phase_name}: {num_steps}")

    def step_complete(self, phase_name: str, step: int) -> bool:
        self.lines.append(f"{phase_name} {step}")
        return self._stop is None or not (phase_name.startswith(self._stop[0]) and step == self._stop[1])

    def phase_finish(self, phase_name: str) -> None:
        self.num_open -= 1
        self.lines.append(f"{phase_name} done")


def _config(monitor: dt.IProgressMonitor) -> dt.BuilderConfig:
    config = dt.BuilderConfig()
    config.progress_monitor = monitor
    return config


@KINDS
def test_reports_of_a_provider_are_a_phase(compiles: bool) -> None:
    monitor = Monitor()
    with host_device(compiles=compiles, num_reports=2):
        build(chain(), config=_config(monitor))
    name = "host_device: matmul ... add (4 layers)" if compiles else "host_device: softmax"
    lines = [line for line in monitor.lines if line.startswith(name)]
    assert lines == [f"{name}: 2", f"{name} 0", f"{name} 1", f"{name} done"]


@KINDS
def test_a_build_is_cancelled_where_a_provider_reports(compiles: bool) -> None:
    monitor = Monitor(stop=("host_device", 1))
    with host_device(compiles=compiles, num_reports=5) as device:
        asked = _watch_partitions(device) if compiles else _watch_kernels(device)
        with pytest.raises(BuildCancelledError, match="cancelled the build in phase 'host_device: matmul"):
            build(chain(), config=_config(monitor))
        assert len(asked) == 1
    assert monitor.num_open == 0


def test_a_provider_that_hides_the_cancellation_does_not_go_on() -> None:
    with host_device(compiles=True) as device:
        original = device.build_partition

        def build_partition(model: ir.Model, context: BuildContext) -> BuiltPartition:
            for _ in range(2):
                with pytest.raises(BuildCancelledError):
                    context.report(1, 3)
            return original(model, context)

        device.build_partition = build_partition  # type: ignore[method-assign]
        with pytest.raises(BuildCancelledError):
            build(chain(), config=_config(Monitor(stop=("host_device", 0))))


# reports


def test_the_report_of_a_partition_is_in_the_plan(tmp_path: Path) -> None:
    from dovetail.provider.interfaces import BuildReport, NodeReport

    nodes = [
        NodeReport(
            name="fused", op="MatMulRelu", layers=("matmul", "relu"), made_by="fuse", tactic="t1", flops=7, bytes=9
        )
    ]
    report = BuildReport(nodes=nodes, refusals={"softmax": "not on this device"})
    with host_device(compiles=True) as device:
        _watch_partitions(device, lambda built: replace(built, report=report))
        build(chain()).save(tmp_path / "plan")
    (layer,) = [
        layer for layer in inspect_plan(tmp_path / "plan")["programs"][0]["layers"] if layer["LayerType"] == "Partition"
    ]
    (node,) = layer["Partition"]["report"]["nodes"]
    told = {"name": "fused", "op": "MatMulRelu", "layers": ["matmul", "relu"], "made_by": "fuse", "tactic": "t1"}
    assert node.items() >= {**told, "flops": 7, "bytes": 9, "time_us": None}.items()
    assert layer["Partition"]["report"]["refusals"] == {"softmax": "not on this device"}


@pytest.mark.parametrize("facts", [{"flops": -1}, {"bytes": 2**63}, {"time_us": float("nan")}, {"tactic": "\0"}])
def test_a_report_that_cannot_be_stored_is_refused_in_the_build(facts: dict[str, Any]) -> None:
    from dovetail.provider.interfaces import BuildReport, NodeReport

    report = BuildReport(nodes=[NodeReport(name="n", op="o", **facts)])
    with host_device(compiles=True) as device:
        _watch_partitions(device, lambda built: replace(built, report=report))
        with pytest.raises(ProviderError, match=r"'host_device', step 'matmul .*report"):
            build(chain())
