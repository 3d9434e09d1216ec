"""Kernels that write into planned memory: only after a checked run, and never over a plan that says otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.errors import InternalError
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.runtime.steps import KernelStep


class Doubled:
    """A kernel that counts which of its forms is called; the ordinary one may give another type."""

    def __init__(self, dtype: Any = None) -> None:
        self.calls: list[str] = []
        self._dtype = dtype

    def __call__(self, *arrays: Any) -> Any:
        self.calls.append("checked")
        total = 2 * sum(array for array in arrays if array is not None)
        return total if self._dtype is None else total.astype(self._dtype)

    def into(self, *arrays: Any) -> None:
        self.calls.append("into")
        *inputs, out = arrays
        np.multiply(sum(array for array in inputs if array is not None), 2, out)


def make_step(kernel: Doubled, inputs: list[int]) -> Any:
    values = [ValueRecord(name=f"v{i}", dtype="float32", kind="planned", dims=[2, 3]) for i in range(4)]
    record = StepRecord(name="double", kind="kernel", provider="cpu", op="Double", inputs=inputs, outputs=[3])
    return KernelStep(record, values, kernel).short_path()


def make_frame(*shapes: tuple[int, ...], out: tuple[int, ...] = (2, 3)) -> list[Any]:
    arrays: list[Any] = [np.ones(shape, np.float32) for shape in shapes]
    return [*arrays, *[None] * (3 - len(arrays)), np.full(out, -1, np.float32), None]


@pytest.mark.parametrize("inputs", [[0], [0, 1], [0, 1, 2], [0, -1, 2]])
def test_the_first_run_is_checked_and_the_next_ones_write_directly(inputs: list[int]) -> None:
    kernel = Doubled()
    step, frame = make_step(kernel, inputs), make_frame((2, 3), (3,), (1, 1))
    for _ in range(3):
        frame[3][...] = -1
        step(frame)
        assert (frame[3] == 2 * sum(i >= 0 for i in inputs)).all()
    assert kernel.calls == ["checked", "into", "into"]


@pytest.mark.parametrize("inputs", [[0], [0, 1], [0, 1, 2]])
def test_new_shapes_are_checked_again(inputs: list[int]) -> None:
    kernel = Doubled()
    step = make_step(kernel, inputs)
    small, large = make_frame(*[(1, 3)] * 3, out=(1, 3)), make_frame(*[(4, 3)] * 3, out=(4, 3))
    for frame in (small, small, large, large, small):
        step(frame)
    assert kernel.calls == ["checked", "into", "checked", "into", "checked"]


@pytest.mark.parametrize("inputs", [[0], [0, 1], [0, 1, 2]])
def test_an_output_that_numpy_would_broadcast_into_is_refused_every_time(inputs: list[int]) -> None:
    kernel = Doubled()
    step = make_step(kernel, inputs)
    good, bad = make_frame(*[(2, 3)] * 3), make_frame(*[(1, 3)] * 3)
    step(good)
    step(good)
    for _ in range(2):
        with pytest.raises(InternalError, match="'double' gave another shape or type than the plan says"):
            step(bad)
    assert kernel.calls == ["checked", "into", "checked", "checked"]


@pytest.mark.parametrize("inputs", [[0], [0, 1], [0, 1, 2]])
def test_a_type_that_numpy_would_cast_is_refused_every_time(inputs: list[int]) -> None:
    kernel = Doubled(np.float64)
    step, frame = make_step(kernel, inputs), make_frame(*[(2, 3)] * 3)
    for _ in range(2):
        with pytest.raises(InternalError, match=r"float32 \(2, 3\)"):
            step(frame)
    assert kernel.calls == ["checked", "checked"]


def test_an_input_of_another_type_is_checked_again() -> None:
    kernel = Doubled()
    step, frame = make_step(kernel, [0]), make_frame((2, 3))
    step(frame)
    frame[0] = np.ones((2, 3), np.float64)
    with pytest.raises(InternalError, match="another shape or type"):
        step(frame)
    frame[0] = np.ones((2, 3), np.float32)
    step(frame)
    assert kernel.calls == ["checked", "checked", "checked"]


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
