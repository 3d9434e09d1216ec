"""Partitions that a device compiles: values in its memory at their borders, run in the order of its stream."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.errors import ProviderError
from dovetail.plan.container import Blob, PlanFile, plan_bytes
from dovetail.plan.manifest import decode_manifest, encode_manifest
from dovetail.testing import host_device
from tests.support.device_models import X, build, chain, expected, make_model, steps_of


def test_a_whole_network_is_one_step() -> None:
    with host_device(compiles=True) as device:
        engine = build(chain())
        assert steps_of(engine) == ["Partition@host_device"]
        device.statistics.reset()
        for rows in (3, 5, 3):
            x = np.resize(X, (rows, 8))
            np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-6)
        assert (device.statistics.launches, device.statistics.waits) == (3, 3)


def test_partitions_around_a_step_of_the_host(tmp_path: Path) -> None:
    with host_device(compiles=True, ops=["MatMul", "Relu", "Add"]) as device:
        build(chain(), shapes={"x": ((1, 8), (3, 8), (5, 8))}).save(tmp_path / "plan")
        engine = dt.load(tmp_path / "plan")
        assert steps_of(engine) == [
            *("Partition@host_device", "Copy@host_device", "Softmax@cpu", "Copy@host_device", "Partition@host_device")
        ]
        device.statistics.reset()
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        assert device.statistics.waits == 2


def test_results_whose_shape_only_the_run_tells() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["i"]),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    model = make_model(nodes, {"x": ["n", 8]}, {"y": None})
    with host_device(compiles=True):
        engine = build(model)
        for x in (X, -X, np.zeros_like(X)):
            np.testing.assert_array_equal(engine(x), expected(model, x))


def test_arrays_of_the_device_go_in_and_out() -> None:
    with host_device(compiles=True) as device, build(chain()).create_execution_context() as context:
        given, result = device.to_device(X), device.empty(X.shape, np.float32)
        device.statistics.reset()
        context.run([given], {"y": result})
        np.testing.assert_allclose(device.to_host(result), expected(chain(), X), rtol=1e-6)
        assert (device.statistics.copies_to_device, device.statistics.copies_to_host) == (0, 0)


def test_a_device_that_cannot_compile_leaves_its_nodes_to_others() -> None:
    with host_device(compiles=True, raises_in=["build_partition"]):
        with pytest.raises(ProviderError, match=r"(?s)'host_device'.*build_partition"):
            build(chain(), strict=True)
        engine = build(chain())
        computed = [step for step in steps_of(engine) if not step.startswith("Copy")]
        assert {step.partition("@")[2] for step in computed} == {"cpu"}
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)


@pytest.mark.parametrize("callback", ["load_partition", "bind_partition"])
def test_a_device_that_fails_to_load_is_named(callback: str) -> None:
    with (
        host_device(compiles=True, raises_in=[callback]),
        pytest.raises(ProviderError, match=r"'host_device'.*told to"),
    ):
        build(chain())(X)


def test_a_partition_of_another_version_is_refused() -> None:
    with host_device(compiles=True):
        plan = build(chain()).serialize()
        with PlanFile.from_bytes(plan) as file:
            manifest = decode_manifest(file.manifest)
            (program,) = manifest.programs
            steps = [
                s
                if s.partition is None
                else msgspec.structs.replace(s, partition=msgspec.structs.replace(s.partition, version="0"))
                for s in program.steps
            ]
            changed = msgspec.structs.replace(manifest, programs=[msgspec.structs.replace(program, steps=steps)])
            blobs = [
                Blob(name=n, dtype=info.dtype, shape=info.shape, data=bytes(file.blob(n)))
                for n, info in file.blobs.items()
            ]
            raw = plan_bytes(encode_manifest(changed), blobs)
        with pytest.raises(ProviderError, match=r"'host_device'.*another version"):
            dt.Runtime().deserialize_cuda_engine(raw)


def test_single_kernels_and_partitions_of_one_provider() -> None:
    with host_device(compiled_ops=["MatMul", "Relu"]) as device:
        engine = build(chain())
        assert steps_of(engine) == [*("Partition@host_device", "Softmax@host_device", "Add@host_device")]
        device.statistics.reset()
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        assert (device.statistics.launches, device.statistics.copies_to_host) == (3, 1)


def test_partitions_on_both_sides_of_a_single_kernel() -> None:
    with host_device(compiled_ops=["MatMul", "Relu", "Add"]):
        engine = build(chain())
        ops = [step.partition("@")[0] for step in steps_of(engine)]
        assert ops == ["Partition", "Softmax", "Partition"]
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)


def test_a_group_of_two_kinds_is_an_error_of_the_provider(capfd: pytest.CaptureFixture[str]) -> None:
    with host_device(compiled_ops=["Relu"], groups={"Relu": "g", "Softmax": "g"}):
        with pytest.raises(ProviderError, match=r"'host_device'.*group 'g' have different kinds"):
            build(chain(), strict=True)
        engine = build(chain())
        assert "group 'g' have different kinds" in capfd.readouterr().err
        computed = [step for step in steps_of(engine) if not step.startswith("Copy")]
        assert {step.partition("@")[2] for step in computed} == {"cpu"}
