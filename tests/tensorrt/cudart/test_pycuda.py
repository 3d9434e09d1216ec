"""The stand-in for pycuda."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail_tensorrt.cudart import pycuda_autoinit
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
