"""Weights that are given by address: each byte that is read belongs to the caller, whatever the element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail as dt
from dovetail.formats import pack_nibbles, size_bytes
from tests.support.guarded_memory import GuardedMemory

FOUR_BITS = [dt.DataType.INT4, dt.DataType.FP4]
VALUES = {dt.DataType.INT4: [1, -1, 7, -8, 3], dt.DataType.FP4: [0.5, -1.0, 6.0, -4.0, 3.0]}


def _place(dtype: Any, array: np.ndarray) -> GuardedMemory:
    """Write elements as the contract stores them into memory that ends at a page without access."""
    memory = GuardedMemory(size_bytes((array.size,), dtype, dt.TensorFormat.LINEAR))
    data = pack_nibbles(array) if dtype.bits < 8 else array
    memory.fill(data.tobytes())
    return memory


def _run_constant(weights: Any, count: int, dtype: Any) -> np.ndarray:
    """Return the values of a constant layer, widened to FLOAT by the engine."""
    builder = dt.Builder()
    network = builder.create_network()
    constant = network.add_constant((count,), weights).get_output(0)
    if dtype is dt.DataType.FLOAT:
        wide = network.add_identity(constant).get_output(0)
    elif dtype in (dt.DataType.INT4, dt.DataType.FP4, dt.DataType.FP8):
        scale = network.add_constant((), np.array(1, np.float32)).get_output(0)
        wide = network.add_dequantize(constant, scale, dt.DataType.FLOAT).get_output(0)
    else:
        wide = network.add_cast(constant, dt.DataType.FLOAT).get_output(0)
    network.mark_output(wide)
    config = builder.create_builder_config()
    config.providers = ["cpu"]
    return builder.build_engine_with_config(network, config)()


@pytest.mark.parametrize("dtype", FOUR_BITS)
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_four_bit_weights_are_read_two_elements_a_byte(dtype: Any, count: int) -> None:
    values = np.array(VALUES[dtype][:count], dtype.numpy)
    memory = _place(dtype, values)
    weights = dt.Weights(dtype, memory.address, count)
    assert (len(weights), weights.nbytes, weights.dtype) == (count, (count + 1) // 2, dtype)
    np.testing.assert_array_equal(weights.numpy().astype(np.float32), values.astype(np.float32))
    np.testing.assert_array_equal(_run_constant(weights, count, dtype), values.astype(np.float32))


def test_four_bit_weights_follow_the_memory_until_the_build() -> None:
    memory = _place(dt.DataType.INT4, np.array([1, 2], dt.DataType.INT4.numpy))
    weights = dt.Weights(dt.DataType.INT4, memory.address, 2)
    memory.fill(bytes([0x43]))
    np.testing.assert_array_equal(_run_constant(weights, 2, dt.DataType.INT4), [3, 4])


def test_four_bit_weights_are_named_and_refitted_by_address() -> None:
    first = _place(dt.DataType.INT4, np.array([1, 2, 3], dt.DataType.INT4.numpy))
    weights = dt.Weights(dt.DataType.INT4, first.address, 3)
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (3,))
    constant = network.add_constant((3,), weights)
    assert network.set_weights_name(dt.Weights(dt.DataType.INT4, first.address, 3), "w")
    scale = network.add_constant((), np.array(1, np.float32)).get_output(0)
    wide = network.add_dequantize(constant.get_output(0), scale, dt.DataType.FLOAT).get_output(0)
    total = network.add_elementwise(x, wide, dt.ElementWiseOperation.SUM).get_output(0)
    network.mark_output(total)
    config = builder.create_builder_config()
    config.set_flag(dt.BuilderFlag.REFIT)
    config.providers = ["cpu"]
    engine = builder.build_engine_with_config(network, config)
    zeros = np.zeros(3, np.float32)
    np.testing.assert_array_equal(engine(zeros), [1, 2, 3])
    refitter = dt.Refitter(engine)
    assert "w" in refitter.get_all_weights()
    second = _place(dt.DataType.INT4, np.array([-8, 7, 0], dt.DataType.INT4.numpy))
    refitter.set_named_weights("w", dt.Weights(dt.DataType.INT4, second.address, 3))
    refitter.refit_cuda_engine()
    np.testing.assert_array_equal(engine(zeros), [-8, 7, 0])
    assert refitter.get_named_weights("w").numpy().tolist() == [-8, 7, 0]


def test_a_negative_count_is_an_error() -> None:
    with pytest.raises(dt.UsageError, match="not negative"):
        dt.Weights(dt.DataType.FLOAT, 4096, -1)


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(list(dt.DataType)),
    count=st.integers(0, 33),
    seed=st.integers(0, 2**32 - 1),
)
def test_weights_at_an_address_equal_the_same_weights_in_an_array(dtype: Any, count: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 1 << min(dtype.bits, 8), count * max(dtype.bits // 8, 1), np.uint8)
    if dtype is dt.DataType.BOOL:
        codes &= 1
    array = codes.view(dtype.numpy)
    memory = _place(dtype, array)
    by_address, by_array = dt.Weights(dtype, memory.address, count), dt.Weights(array)
    assert by_address.dtype == by_array.dtype
    assert (len(by_address), by_address.nbytes) == (len(by_array), by_array.nbytes)
    assert by_address.numpy().tobytes() == by_array.numpy().tobytes()
