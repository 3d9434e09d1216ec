"""Arrays over addresses: no copies, every type and format, and clear refusals."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import PluginError, UsageError
from dovetail.formats import formats_for, pack, packed_shape, size_bytes, unpack_nibbles
from dovetail.host_arrays import _address_by_attribute, _address_by_layout
from dovetail.plugin.arrays import (
    address_of,
    as_array,
    read_scalar,
    write_scalar,
)
from dovetail.types import DataType, Dims, PluginTensorDesc, TensorFormat

WHOLE_BYTE = [dtype for dtype in DataType if dtype.bits >= 8]


@pytest.mark.parametrize("dtype", WHOLE_BYTE)
def test_a_view_reads_and_writes_the_memory_itself(dtype: DataType) -> None:
    memory = np.zeros((2, 3), dtype.numpy)
    memory.view(np.uint8)[...] = 1
    view = as_array(address_of(memory), PluginTensorDesc((2, 3), dtype))
    assert view.shape == (2, 3)
    assert view.dtype == dtype.numpy
    assert view.flags.writeable
    assert not view.flags.owndata
    assert address_of(view) == address_of(memory)
    assert view.tobytes() == memory.tobytes()
    view[...] = np.zeros((), dtype.numpy)
    assert not memory.view(np.uint8).any()


@pytest.mark.parametrize("dtype", WHOLE_BYTE)
def test_a_view_has_the_physical_shape_of_its_format(dtype: DataType) -> None:
    dims = (1, 5, 2, 3)
    for format_ in formats_for(dtype, 4):
        packed = pack(np.zeros(dims, dtype.numpy), format_)
        view = as_array(address_of(packed), PluginTensorDesc(dims, dtype, format_))
        assert view.shape == packed.shape == packed_shape(dims, format_)


@pytest.mark.parametrize("dtype", [DataType.INT4, DataType.FP4])
def test_four_bit_types_come_as_packed_bytes(dtype: DataType) -> None:
    memory = np.array([0x21, 0x03], np.uint8)
    view = as_array(address_of(memory), PluginTensorDesc((3,), dtype))
    assert view.tolist() == [0x21, 0x03]
    assert unpack_nibbles(view, dtype, 3).view(np.uint8).tolist() == [1, 2, 3]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=5), st.sampled_from(WHOLE_BYTE))
def test_views_of_any_shape_cover_exactly_their_bytes(dims: list[int], dtype: DataType) -> None:
    memory = np.zeros(size_bytes(dims, dtype) + 16, np.uint8)
    view = as_array(address_of(memory), PluginTensorDesc(dims, dtype))
    assert view.shape == tuple(dims)
    assert view.nbytes == size_bytes(dims, dtype)
    view.reshape(-1).view(np.uint8)[...] = 1
    assert memory[: view.nbytes].all()
    assert not memory[view.nbytes :].any()


def test_a_shape_replaces_unknown_dims() -> None:
    memory = np.arange(6, dtype=np.float32)
    desc = PluginTensorDesc((2, -1))
    with pytest.raises(PluginError, match="pass shape="):
        as_array(address_of(memory), desc)
    assert as_array(address_of(memory), desc, shape=(2, 2)).tolist() == [[0, 1], [2, 3]]
    assert as_array(address_of(memory), desc, shape=Dims((2, 3))).shape == (2, 3)


def test_an_empty_tensor_needs_no_memory() -> None:
    for address in (0, 4096):
        assert as_array(address, PluginTensorDesc((0, 3))).shape == (0, 3)
    assert as_array(0, PluginTensorDesc((1, 0, 2, 2), DataType.HALF, TensorFormat.CHW2)).shape == (1, 0, 2, 2, 2)


def test_a_null_address_with_elements_is_refused() -> None:
    with pytest.raises(PluginError, match="address 0 holds no elements"):
        as_array(0, PluginTensorDesc((1,)))


def test_a_descriptor_that_says_nothing_is_refused() -> None:
    with pytest.raises(PluginError, match="without type or format"):
        as_array(4096, PluginTensorDesc((1,), None, None))


def test_both_ways_to_an_address_agree() -> None:
    base = np.zeros((4, 6), np.float32)
    for array in (
        base,
        base[1:, 2:],
        base[::2, ::-1],
        base.T,
        np.array(1.0),
        np.empty((0, 3)),
        np.zeros(3, "bfloat16"),
    ):
        assert address_of(array) == _address_by_attribute(array) == array.ctypes.data
        assert _address_by_layout(array) == array.ctypes.data


def test_only_arrays_have_addresses() -> None:
    with pytest.raises(UsageError, match="only a NumPy array"):
        address_of([1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(DataType.INT32, -7), (DataType.INT64, 2**40), (DataType.FLOAT, 0.5), (DataType.UINT8, 255), (DataType.BOOL, 1)],
)
def test_scalars_are_written_and_read(dtype: DataType, value: float) -> None:
    memory = np.zeros(2, dtype.numpy)
    write_scalar(address_of(memory), dtype, value)
    assert read_scalar(address_of(memory), dtype) == value
    assert memory[0] == value
    assert memory[1] == 0


def test_scalars_that_cannot_be_are_refused() -> None:
    memory = np.zeros(1, np.int32)
    with pytest.raises(PluginError, match="does not fit in INT32"):
        write_scalar(address_of(memory), DataType.INT32, 2**33)
    with pytest.raises(PluginError, match="address 0"):
        read_scalar(0, DataType.INT32)
    with pytest.raises(UsageError, match="no scalar access"):
        read_scalar(4096, DataType.BF16)


def test_views_can_be_made_in_many_threads() -> None:
    memory = np.zeros((8, 1000), np.int32)

    def work(row: int) -> None:
        desc = PluginTensorDesc((10, row + 1), DataType.INT32)
        for _ in range(300):
            as_array(address_of(memory[row]), desc)[...] += 1

    threads = [threading.Thread(target=work, args=(row,)) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for row in range(8):
        assert (memory[row, : 10 * (row + 1)] == 300).all()
        assert not memory[row, 10 * (row + 1) :].any()
