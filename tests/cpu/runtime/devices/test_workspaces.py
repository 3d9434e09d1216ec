"""Scratch memory and further streams of steps on a device: planned with the values, bound for each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.provider.interfaces import BindContext
from dovetail.testing import HostDevice, host_device
from dovetail.testing.host_functions import HostDeviceFunction
from dovetail.testing.host_partitions import HostDevicePartition
from tests.support.device_models import X, build, chain, expected

COMPILED = ["MatMul", "Relu", "Add"]
PROFILE = {"x": ((1, 8), (3, 8), (5, 8))}


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[BindContext]:
    """What partitions and kernels were bound with, in order."""
    found: list[BindContext] = []
    for kind in (HostDevicePartition, HostDeviceFunction):
        original: Any = kind.bind

        def bind(self: Any, context: BindContext, original: Any = original) -> Any:
            found.append(context)
            return original(self, context)

        monkeypatch.setattr(kind, "bind", bind)
    return found


def _run_over_shapes(engine: dt.Engine) -> None:
    for rows in (3, 5, 3, 1, 3, 3, 3):
        x = np.resize(X, (rows, 8)) + np.float32(rows)
        np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-6)


@pytest.mark.parametrize("size", [16, 1000])
def test_workspaces_lie_in_the_arena_with_the_values(tmp_path: Path, contexts: list[BindContext], size: int) -> None:
    with host_device(compiled_ops=COMPILED, workspace_bytes=size):
        build(chain(), shapes=PROFILE).save(tmp_path / "plan")
        engine = dt.load(tmp_path / "plan")
        (program,) = engine.manifest.programs
        places = [(s.workspace_bytes, s.workspace_offset) for s in program.steps if s.kind != "copy"]
        assert [needed for needed, _ in places] == [size] * 3
        assert all(offset is not None and offset + size <= program.arenas["host_device"] for _, offset in places)
        _run_over_shapes(engine)
        assert {context.workspace_bytes for context in contexts} == {size}


@pytest.mark.parametrize("size", [16, 1000])
def test_an_engine_without_bounds_plans_them_with_the_shapes(contexts: list[BindContext], size: int) -> None:
    with host_device(compiled_ops=COMPILED, workspace_bytes=size):
        engine = build(chain())
        assert {step.workspace_offset for step in engine.manifest.programs[0].steps} == {None}
        _run_over_shapes(engine)
        assert {context.workspace_bytes for context in contexts} == {size}


def test_kernels_and_partitions_are_told_the_shapes_of_the_run(contexts: list[BindContext]) -> None:
    with host_device(compiled_ops=COMPILED):
        engine = build(chain())
        for rows in (3, 5, 3):
            engine(np.resize(X, (rows, 8)))
        softmax = [context for context in contexts if len(context.input_shapes) == 1]
        assert {tuple(context.input_shapes) for context in softmax} >= {((3, 8),), ((5, 8),)}
        assert all(context.stream is not None for context in contexts)
        assert len(contexts) == 3 * 2  # three steps, two shapes


def test_lanes_are_made_once_for_a_context_and_closed_with_it() -> None:
    with host_device(compiled_ops=COMPILED, num_lanes=2) as device:
        engine = build(chain())
        device.statistics.reset()
        with engine.create_execution_context() as context:
            for rows in (3, 5, 3, 4):
                x = np.resize(X, (rows, 8))
                (result,) = context.run([x])
                np.testing.assert_allclose(result, expected(chain(), x), rtol=1e-6)
            assert device.statistics.streams == 3
        engine.close()
        assert not device._streams.streams


def test_a_partition_that_does_not_say_how_much_it_needs_is_named() -> None:
    with host_device(compiled_ops=COMPILED) as device:
        engine = build(chain())
        _break(device, "workspace_bytes")
        with pytest.raises(dt.ProviderError, match=r"'host_device'.*workspace_bytes.*told to fail"):
            engine(X)


def test_a_kernel_that_binds_to_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device():
        engine = build(chain())
        monkeypatch.setattr(HostDeviceFunction, "bind", lambda self, context: None)
        with pytest.raises(dt.ProviderError, match=r"'host_device', step 'matmul'.*bind gave no kernel"):
            engine(X)


def _break(device: HostDevice, callback: str) -> None:
    from dataclasses import replace

    device.options = replace(device.options, raises_in=[callback])
