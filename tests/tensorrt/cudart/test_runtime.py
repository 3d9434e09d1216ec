"""The stand-in for cudart: memory with ends, copies that look at them, events that take the time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_tensorrt import cudart
from dovetail_tensorrt.cudart import driver, find_aliases, has_device, nvrtc, runtime

OK = runtime.cudaError_t.cudaSuccess
INVALID = runtime.cudaError_t.cudaErrorInvalidValue
KIND = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice


def _malloc(size: int) -> int:
    error, address = runtime.cudaMalloc(size)
    assert error == OK
    return address


@given(size=st.integers(0, 300), offset=st.integers(0, 310), count=st.integers(0, 320))
def test_copies_stay_within_their_block(size: int, offset: int, count: int) -> None:
    address = _malloc(size)
    source = np.arange(320, dtype=np.uint8) % 251
    is_inside = offset < max(size, 1)
    (error,) = runtime.cudaMemcpy(address + offset, source.ctypes.data, count, KIND) if is_inside else (OK,)
    if is_inside:
        assert (error == OK) == (offset + count <= size)
        result = np.zeros(320, np.uint8)
        (back,) = runtime.cudaMemcpy(result.ctypes.data, address + offset, count, KIND)
        assert back == error
        if error == OK:
            np.testing.assert_array_equal(result[:count], source[:count])
    assert runtime.cudaFree(address) == (OK,)


def test_an_array_that_is_too_short_is_refused() -> None:
    address = _malloc(64)
    assert runtime.cudaMemcpy(address, np.zeros(8, np.uint8), 9, KIND) == (INVALID,)
    assert runtime.cudaMemcpyAsync(address, np.zeros(9, np.uint8), 9, KIND, 0) == (OK,)
    runtime.cudaFree(address)


def test_null_takes_nothing() -> None:
    assert runtime.cudaMemcpy(0, np.zeros(4, np.uint8), 4, KIND) == (INVALID,)
    assert runtime.cudaMemset(0, 1, 4) == (INVALID,)
    assert runtime.cudaFree(0) == (OK,)


def test_a_block_is_freed_once() -> None:
    address = _malloc(8)
    assert runtime.cudaFree(address) == (OK,)
    assert runtime.cudaFree(address) == (INVALID,)


def test_bytes_are_set_within_a_block() -> None:
    address = _malloc(8)
    assert runtime.cudaMemset(address, 7, 8) == (OK,)
    assert runtime.cudaMemset(address, 7, 9) == (INVALID,)
    result = np.zeros(8, np.uint8)
    runtime.cudaMemcpy(result, address, 8, KIND)
    assert result.tolist() == [7] * 8
    runtime.cudaFree(address)


def test_no_memory_is_an_error_code() -> None:
    assert runtime.cudaMalloc(1 << 60)[0] == runtime.cudaError_t.cudaErrorMemoryAllocation
    assert runtime.cudaMalloc(-1)[0] == INVALID


def test_streams_are_zero_and_events_take_the_time() -> None:
    _, stream = runtime.cudaStreamCreate()
    assert int(stream) == 0
    _, start = runtime.cudaEventCreate()
    _, end = runtime.cudaEventCreate()
    assert runtime.cudaEventElapsedTime(start, end)[0] != OK
    runtime.cudaEventRecord(start, stream)
    runtime.cudaEventRecord(end, stream)
    error, elapsed_ms = runtime.cudaEventElapsedTime(start, end)
    assert error == OK
    assert elapsed_ms >= 0
    assert runtime.cudaStreamSynchronize(stream) == (OK,)


def test_errors_have_names() -> None:
    assert runtime.cudaGetErrorName(INVALID) == (OK, b"cudaErrorInvalidValue")
    assert runtime.cudaGetErrorString(INVALID) == (OK, b"invalid value")


def test_what_is_not_stood_in_for_says_so() -> None:
    with pytest.raises(AttributeError, match="'cudaGraphCreate' is not stood in for"):
        _ = runtime.cudaGraphCreate
    with pytest.raises(AttributeError, match="kernels cannot be loaded"):
        _ = driver.cuModuleLoadData


def test_the_driver_has_the_same_memory() -> None:
    error, address = driver.cuMemAlloc(16)
    assert error == driver.CUresult.CUDA_SUCCESS
    assert driver.cuMemcpyHtoD(address, np.zeros(17, np.uint8), 17) == (driver.CUresult.CUDA_ERROR_INVALID_VALUE,)
    assert driver.cuMemFree(address) == (driver.CUresult.CUDA_SUCCESS,)


def test_the_host_is_the_only_device() -> None:
    assert runtime.cudaGetDeviceCount() == (OK, 1)
    assert runtime.cudaSetDevice(0) == (OK,)
    assert runtime.cudaSetDevice(1) == (runtime.cudaError_t.cudaErrorInvalidDevice,)
    _, free_bytes, total_bytes = runtime.cudaMemGetInfo()
    assert 0 < free_bytes <= total_bytes


@pytest.mark.skipif(has_device(), reason="there is a CUDA device, so that the real modules are used where installed")
def test_everything_is_stood_in_for_where_no_device_is() -> None:
    aliases = find_aliases()
    assert aliases["cuda.bindings.runtime"] == "dovetail_tensorrt.cudart.runtime"
    assert aliases["pycuda.driver"] == "dovetail_tensorrt.cudart.pycuda_driver"


def test_on_a_device_scripts_get_the_real_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudart, "uses_device", lambda: True)
    monkeypatch.setattr(cudart, "can_import", lambda name: name != "cuda.cudart")
    assert cudart.find_aliases() == {"cuda.cudart": "cuda.bindings.runtime"}
    assert cudart.find_patches() == []


def test_a_graph_does_with_each_launch_what_was_captured() -> None:
    source, target = np.zeros(4, np.uint8), np.zeros(4, np.uint8)
    _, block = runtime.cudaMalloc(4)
    _, stream = runtime.cudaStreamCreate()
    assert runtime.cudaStreamIsCapturing(stream)[1].name == "cudaStreamCaptureStatusNone"
    mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeGlobal
    assert runtime.cudaStreamBeginCapture(stream, mode) == (runtime.cudaError_t.cudaSuccess,)
    assert runtime.cudaStreamIsCapturing(stream)[1].name == "cudaStreamCaptureStatusActive"
    assert runtime.cudaStreamBeginCapture(stream, mode)[0] != 0
    assert runtime.cudaMemcpyAsync(block, source, 4, 1, stream)[0] == 0
    assert driver.cuMemcpyDtoHAsync(target, block, 4, stream)[0] == 0
    _, graph = runtime.cudaStreamEndCapture(stream)
    _, executable = runtime.cudaGraphInstantiate(graph, 0)
    for value in (1, 2):
        source[:] = value
        assert target.max() == value - 1
        assert runtime.cudaGraphLaunch(executable, stream) == (runtime.cudaError_t.cudaSuccess,)
        np.testing.assert_array_equal(target, value)
    assert runtime.cudaStreamEndCapture(stream)[0] != 0


def test_a_launch_that_fails_says_so() -> None:
    _, block = runtime.cudaMalloc(4)
    runtime.cudaStreamBeginCapture(0)
    assert runtime.cudaMemsetAsync(block, 1, 5)[0] == 0
    _, graph = runtime.cudaStreamEndCapture(0)
    _, executable = runtime.cudaGraphInstantiateWithFlags(graph, 0)
    assert runtime.cudaGraphLaunch(executable, 0) == (runtime.cudaError_t.cudaErrorInvalidValue,)


def test_the_driver_has_events_and_host_memory() -> None:
    array = np.arange(4, dtype=np.uint8)
    assert driver.cuMemHostRegister(array.ctypes.data, 4, driver.CU_MEMHOSTREGISTER_DEVICEMAP)[0] == 0
    _, block = driver.cuMemHostAlloc(4, driver.CU_MEMHOSTALLOC_PORTABLE)
    assert driver.cuMemcpyDtoD(block, array, 4)[0] == 0
    assert driver.cuMemsetD8(block, 9, 2)[0] == 0
    assert driver.cuMemcpyDtoH(array, block, 4)[0] == 0
    assert array.tolist() == [9, 9, 2, 3]
    (_, start), (_, end) = driver.cuEventCreate(0), driver.cuEventCreate(0)
    assert driver.cuEventElapsedTime(start, end)[0] is driver.CUresult.CUDA_ERROR_INVALID_HANDLE
    driver.cuEventRecord(start, 0)
    driver.cuEventRecord(end, 0)
    assert driver.cuEventElapsedTime(start, end)[1] >= 0


def test_kernels_cannot_be_compiled_where_no_device_is() -> None:
    assert nvrtc.nvrtcResult.NVRTC_SUCCESS == 0
    with pytest.raises(AttributeError, match="kernels cannot be compiled; compute with NumPy"):
        nvrtc.nvrtcCreateProgram(b"", b"", 0, [], [])


def test_pools_give_blocks() -> None:
    properties = runtime.cudaMemPoolProps()
    properties.location.type = runtime.cudaMemLocationType.cudaMemLocationTypeDevice
    _, pool = runtime.cudaMemPoolCreate(properties)
    threshold = runtime.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold
    assert runtime.cudaMemPoolSetAttribute(pool, threshold, driver.cuuint64_t(1 << 20))[0] == 0
    _, block = runtime.cudaMallocFromPoolAsync(8, pool, 0)
    assert runtime.cudaMemset(block, 1, 9)[0] != 0
    assert runtime.cudaFreeAsync(block, 0)[0] == 0
    assert runtime.cudaMemPoolDestroy(pool)[0] == 0
