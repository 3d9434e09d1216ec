"""After an error a context and its engine go on as if nothing had happened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin import address_of


@pytest.fixture
def engine() -> Any:
    """relu(x) without its first four columns: shapes of fewer columns resolve half of the program and then fail."""

    @dt.layer("TestDropColumns", shape=lambda x: (x[0], x[1] - 4))
    def drop(x: np.ndarray) -> np.ndarray:
        return x[:, 4:]

    network = dt.Builder().create_network()
    x = network.add_input("x", dt.float32, (-1, -1))
    active = network.add_activation(x, dt.ActivationType.RELU).get_output(0)
    result = network.add_plugin_v3([active], [], drop.plugin()).get_output(0)
    result.name = "y"
    network.mark_output(result)
    return dt.compile(network)


def _sample(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _expect(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)[:, 4:]


def test_shapes_that_fail_leave_nothing_behind(engine: Any) -> None:
    context = engine.create_execution_context()
    for shape in ((2, 8), (3, 6), (2, 8)):
        np.testing.assert_array_equal(context.run([_sample(*shape)])[0], _expect(_sample(*shape)))
        with pytest.raises(dt.InputError, match="negative dimension"):
            context.run([_sample(5, 3)])
        np.testing.assert_array_equal(context.run([_sample(*shape)])[0], _expect(_sample(*shape)))


@pytest.mark.parametrize("bad", [(5, 3), (5, 3, 1)])
def test_bound_memory_is_used_again_after_arrays_that_failed(engine: Any, bad: tuple[int, ...]) -> None:
    context = engine.create_execution_context()
    x, y = _sample(2, 8), np.empty((2, 4), np.float32)
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", address_of(x))
    context.set_tensor_address("y", address_of(y))
    for _ in range(2):
        y[...] = -1
        assert context.execute_async_v3(0)
        np.testing.assert_array_equal(y, _expect(x))
        with pytest.raises(dt.InputError):
            context.run([_sample(*bad)])


def test_output_shape_follows_the_input_shapes_set_so_far(engine: Any) -> None:
    context = engine.create_execution_context()
    assert tuple(context.get_tensor_shape("y")) == (-1, -1)
    context.set_input_shape("x", (2, 9))
    assert tuple(context.get_tensor_shape("y")) == (2, 5)


def test_repr_names_what_the_author_named(engine: Any) -> None:
    assert repr(engine).endswith("(x: float32[?, ?]) -> (y: float32[?, ?]), 2 steps>")
