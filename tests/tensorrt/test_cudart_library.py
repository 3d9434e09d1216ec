"""The library of CUDA's runtime, as scripts without cuda-python and pycuda open it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from dovetail_tensorrt.cudart_library import answer_for_library


@pytest.fixture
def cudart() -> Iterator[ctypes.CDLL]:
    undo = answer_for_library()
    try:
        yield ctypes.CDLL("libcudart.so.12")
    finally:
        undo()


def test_arrays_go_there_and_back(cudart: ctypes.CDLL) -> None:
    there, back = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    pointer, stream = ctypes.c_void_p(), ctypes.c_void_p()
    cudart.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
    cudart.cudaMemcpy.restype = ctypes.c_int
    assert cudart.cudaMalloc(ctypes.byref(pointer), there.nbytes) == 0
    assert cudart.cudaStreamCreate(ctypes.byref(stream)) == 0
    assert cudart.cudaMemcpy(pointer, there.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(there.nbytes), 1) == 0
    assert cudart.cudaMemcpyAsync(ctypes.c_void_p(back.ctypes.data), pointer, back.nbytes, 2, stream) == 0
    assert cudart.cudaStreamSynchronize(stream) == 0
    np.testing.assert_array_equal(back, there)
    assert cudart.cudaMemcpy(pointer, there.ctypes.data, there.nbytes + 4, 1) == 1, "a copy beyond the end"
    assert cudart.cudaFree(pointer) == 0
    assert cudart.cudaFree(pointer) == 1, "there is no such block any more"


def test_events_and_numbers(cudart: ctypes.CDLL) -> None:
    first, second, milliseconds = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float(-1)
    for event in (first, second):
        assert cudart.cudaEventCreate(ctypes.byref(event)) == 0
        assert cudart.cudaEventRecord(event, None) == 0
    assert cudart.cudaEventElapsedTime(ctypes.byref(milliseconds), first, second) == 0
    assert milliseconds.value >= 0
    assert cudart.cudaEventRecord(ctypes.c_void_p(12345), None) == 400
    count, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    assert cudart.cudaGetDeviceCount(ctypes.byref(count)) == 0
    assert count.value == 1
    assert cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    assert 0 < free.value <= total.value


def test_messages_are_text(cudart: ctypes.CDLL) -> None:
    cudart.cudaGetErrorString.restype = ctypes.c_char_p
    assert b"invalid" in cudart.cudaGetErrorString(1).lower()
    assert cudart.cudaGetErrorString(4711) == b"unrecognized error code"


def test_null_instead_of_a_place_for_the_result_is_an_error(cudart: ctypes.CDLL) -> None:
    assert cudart.cudaMalloc(None, 16) == 1


def test_what_is_not_there_says_so(cudart: ctypes.CDLL) -> None:
    with pytest.raises(AttributeError, match="no CUDA device"):
        _ = cudart.cudaLaunchKernel


def test_other_libraries_keep_their_functions() -> None:
    undo = answer_for_library()
    try:
        assert ctypes.CDLL(None).abs(-3) == 3
        with pytest.raises(OSError, match="libmycudart"):
            ctypes.CDLL("libmycudart.so")
    finally:
        undo()
    assert "find_or_answer" not in ctypes.CDLL.__getitem__.__name__
