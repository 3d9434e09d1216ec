"""The stand-in for pycuda."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail_tensorrt.cudart import pycuda_autoinit, pycuda_gpuarray, pycuda_tools
from dovetail_tensorrt.cudart import pycuda_driver as cuda


def test_arrays_go_there_and_back() -> None:
    array = cuda.pagelocked_empty((2, 3), np.float32)
    array[:] = 5
    block = cuda.mem_alloc(array.nbytes)
    cuda.memcpy_htod_async(block, array, cuda.Stream())
    other = cuda.mem_alloc(array.nbytes)
    cuda.memcpy_dtod(other, block, array.nbytes)
    result = cuda.pagelocked_zeros((2, 3), np.float32)
    cuda.memcpy_dtoh(result, other)
    np.testing.assert_array_equal(result, array)


def test_a_copy_beyond_the_end_is_an_error() -> None:
    block = cuda.mem_alloc(8)
    with pytest.raises(cuda.LogicError, match="12 bytes do not fit"):
        cuda.memcpy_htod(block, np.zeros(3, np.float32))
    with pytest.raises(cuda.LogicError, match="9 bytes do not fit"):
        cuda.memset_d8(block, 0, 9)


def test_events_and_devices() -> None:
    start, end = cuda.Event().record(), cuda.Event().record()
    assert start.time_till(end) >= 0
    assert end.synchronize().query()
    with pytest.raises(cuda.LogicError, match="not recorded"):
        start.time_till(cuda.Event())
    assert pycuda_autoinit.device.name().startswith("host memory")
    with pytest.raises(cuda.LogicError, match="there is only 0"):
        cuda.Device(1)
    with pytest.raises(AttributeError, match="module_from_buffer"):
        _ = cuda.module_from_buffer


def test_arrays_of_the_device_are_bound_and_copied() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = pycuda_gpuarray.to_gpu(array)
    assert (found.shape, found.dtype, found.size, found.nbytes, found.ndim, len(found)) == (
        (2, 3),
        np.float32,
        6,
        24,
        2,
        2,
    )
    assert found.ptr == int(found) == int(found.gpudata)
    np.testing.assert_array_equal(found.get(), array)
    np.testing.assert_array_equal(found.reshape(3, -1).get(), array.reshape(3, 2))
    np.testing.assert_array_equal(found.fill(2).get(np.empty((2, 3), np.float32)), 2)
    assert pycuda_gpuarray.zeros_like(found).get().max() == 0
    with pytest.raises(ValueError, match=r"the array is float64 \(2, 3\), and this is float32 \(2, 3\)"):
        found.set(array.astype(np.float64))


def test_blocks_from_arrays_and_back() -> None:
    array = np.arange(4, dtype=np.int32)
    block = cuda.to_device(array)
    np.testing.assert_array_equal(cuda.from_device_like(block, array), array)
    cuda.memset_d32(block, 7, 3)
    np.testing.assert_array_equal(cuda.from_device(block, (4,), np.int32), [7, 7, 7, 3])


def test_contexts_of_the_tools() -> None:
    pycuda_tools.make_default_context().pop()
    assert pycuda_tools.get_default_device().compute_capability() == (0, 0)
    assert cuda.Context.get_device().total_memory() > 0
