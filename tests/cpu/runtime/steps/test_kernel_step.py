"""Kernels over planned memory: the same results in every run, nothing allocated, and no plan that says otherwise."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.errors import PlanError
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.provider.interfaces import CompiledKernel
from dovetail.provider.options import Providers
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.steps.frame import Frame
from dovetail.runtime.steps.kernel import KernelStep
from tests.support.dims import read_dims


def doubled(dtype: Any = None) -> CompiledKernel:
    """A kernel with both forms; the one that makes its result may give another type."""

    def compute(*arrays: Any) -> Any:
        total = 2 * sum(array for array in arrays if array is not None)
        return total if dtype is None else total.astype(dtype)

    def write(*arrays: Any) -> None:
        *inputs, out = arrays
        np.multiply(inputs[0], 2, out)
        for array in inputs[1:]:
            if array is not None:
                np.add(out, array, out)
                np.add(out, array, out)

    return CompiledKernel(compute, write)


def make_step(kernel: CompiledKernel, inputs: list[int]) -> KernelStep:
    values = [ValueRecord(name=f"v{i}", dtype="float32", kind="planned", dims=read_dims([2, 3])) for i in range(4)]
    record = StepRecord(name="double", kind="kernel", provider="cpu", op="Double", inputs=inputs, outputs=[3])
    providers = Providers()
    return KernelStep(record, values, providers["cpu"], kernel, ContextDevices(providers))


def make_frame(*shapes: tuple[int, ...], out: tuple[int, ...] = (2, 3), fixed: tuple[int, ...] = ()) -> Frame:
    arrays: list[Any] = [np.ones(shape, np.float32) for shape in shapes]
    values = [*arrays, *[None] * (3 - len(arrays)), np.full(out, -1, np.float32), None]
    return Frame(values, [None] * 5, fixed=frozenset(fixed), symbols={})


@pytest.mark.parametrize("fixed", [(), (0, 1, 2, 3), (1, 3)], ids=["loose", "fixed", "mixed"])
@pytest.mark.parametrize("inputs", [[0], [0, 1], [0, 1, 2], [0, -1, 2]])
def test_every_run_gives_the_same(inputs: list[int], fixed: tuple[int, ...]) -> None:
    frame = make_frame((2, 3), (3,), (1, 1), fixed=fixed)
    run = make_step(doubled(), inputs).bind(frame)
    for _ in range(3):
        frame.values[3][...] = -1
        run()
        assert (frame.values[3] == 2 * sum(i >= 0 for i in inputs)).all()


@pytest.mark.parametrize("fixed", [(), (0, 3)], ids=["loose", "fixed"])
def test_runs_after_the_first_allocate_no_results(fixed: tuple[int, ...]) -> None:
    frame = make_frame((256, 1024), out=(256, 1024), fixed=fixed)
    run = make_step(doubled(), [0]).bind(frame)
    run()
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < frame.values[3].nbytes / 100


def test_values_that_are_not_fixed_may_be_others_in_every_run() -> None:
    frame = make_frame((2, 3), fixed=(3,))
    run = make_step(doubled(), [0]).bind(frame)
    for number in range(4):
        frame.values[0] = np.full((2, 3), number, np.float32)
        run()
        assert (frame.values[3] == 2 * number).all()


@pytest.mark.parametrize("inputs", [[0], [0, 1], [0, 1, 2]])
def test_an_output_that_numpy_would_broadcast_into_is_refused_every_time(inputs: list[int]) -> None:
    step = make_step(doubled(), inputs)
    good, bad = step.bind(make_frame(*[(2, 3)] * 3)), step.bind(make_frame(*[(1, 3)] * 3))
    good()
    good()
    for _ in range(2):
        with pytest.raises(PlanError, match="'double' gave another shape or type than the plan says"):
            bad()


@pytest.mark.parametrize("inputs", [[0], [0, 1], [0, 1, 2]])
def test_a_type_that_numpy_would_cast_is_refused_every_time(inputs: list[int]) -> None:
    run = make_step(doubled(np.float64), inputs).bind(make_frame(*[(2, 3)] * 3))
    for _ in range(2):
        with pytest.raises(PlanError, match=r"float32 \(2, 3\)"):
            run()


def test_engines_give_the_same_whatever_ran_before() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1, 3))
    scale = network.add_constant((1, 3), np.array([[1, -1, 2]], np.float32)).get_output(0)
    product = network.add_elementwise(x, scale, dt.ElementWiseOperation.PROD).get_output(0)
    network.mark_output(network.add_activation(product, dt.ActivationType.RELU).get_output(0))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3), (2, 3), (5, 3))
    config.add_optimization_profile(profile)
    engine = dt.Runtime().deserialize_cuda_engine(builder.build_serialized_network(network, config))
    rng = np.random.default_rng(3)
    for rows in (2, 2, 5, 1, 1, 5, 2):
        a = rng.normal(size=(rows, 3)).astype(np.float32)
        np.testing.assert_array_equal(engine(a), np.maximum(a * np.array([1, -1, 2], np.float32), 0))
