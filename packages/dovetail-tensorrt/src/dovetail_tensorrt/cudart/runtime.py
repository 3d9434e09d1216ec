"""Stands in for ``cuda.bindings.runtime`` and ``cuda.cudart``: each call gives a tuple, an error code first."""

from __future__ import annotations

import os
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from dovetail_tensorrt.cudart.handles import cudaEvent_t, cudaStream_t
from dovetail_tensorrt.cudart.memory import BLOCKS, address_of

__all__ = [
    "cudaDeviceGetAttribute",
    "cudaDeviceReset",
    "cudaDeviceSynchronize",
    "cudaDriverGetVersion",
    "cudaError_t",
    "cudaEventCreate",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventElapsedTime",
    "cudaEventQuery",
    "cudaEventRecord",
    "cudaEventSynchronize",
    "cudaEvent_t",
    "cudaFree",
    "cudaFreeAsync",
    "cudaFreeHost",
    "cudaGetDevice",
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaGetLastError",
    "cudaHostAlloc",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaMalloc",
    "cudaMallocAsync",
    "cudaMallocHost",
    "cudaMallocManaged",
    "cudaMemGetInfo",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemcpyKind",
    "cudaMemset",
    "cudaMemsetAsync",
    "cudaPeekAtLastError",
    "cudaRuntimeGetVersion",
    "cudaSetDevice",
    "cudaStreamCreate",
    "cudaStreamCreateWithFlags",
    "cudaStreamCreateWithPriority",
    "cudaStreamDestroy",
    "cudaStreamNonBlocking",
    "cudaStreamQuery",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
    "cudaStream_t",
]


class cudaError_t(IntEnum):
    """What a call says."""

    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInvalidDevice = 101
    cudaErrorInvalidResourceHandle = 400
    cudaErrorNotReady = 600
    cudaErrorNotSupported = 801


class cudaMemcpyKind(IntEnum):
    """From where to where bytes are copied."""

    cudaMemcpyHostToHost = 0
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3
    cudaMemcpyDefault = 4


_OK = cudaError_t.cudaSuccess
_INVALID = cudaError_t.cudaErrorInvalidValue
_VERSION = 13000
cudaStreamDefault = 0
cudaStreamNonBlocking = 1
cudaStreamLegacy = 1
cudaStreamPerThread = 2
cudaEventDefault = 0
cudaEventBlockingSync = 1
cudaEventDisableTiming = 2
cudaHostAllocDefault = 0
cudaHostAllocPortable = 1
cudaHostAllocMapped = 2
cudaHostRegisterDefault = 0
cudaMemAttachGlobal = 1


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"'{name}' is not stood in for: there is no CUDA device here, and dovetail_tensorrt.cudart has memory, streams "
        "and events only"
    )


# memory


def cudaMalloc(size: int) -> tuple[cudaError_t, int]:
    """A block of the host's memory."""
    if size < 0:
        return _INVALID, 0
    try:
        return _OK, BLOCKS.allocate(int(size)).address
    except (MemoryError, ValueError):
        return cudaError_t.cudaErrorMemoryAllocation, 0


def cudaMallocAsync(size: int, hStream: Any = 0) -> tuple[cudaError_t, int]:
    """The same: streams run at once."""
    return cudaMalloc(size)


def cudaMallocHost(size: int) -> tuple[cudaError_t, int]:
    """The same: all memory is the host's."""
    return cudaMalloc(size)


def cudaHostAlloc(size: int, flags: int = 0) -> tuple[cudaError_t, int]:
    """The same."""
    return cudaMalloc(size)


def cudaMallocManaged(size: int, flags: int = 1) -> tuple[cudaError_t, int]:
    """The same."""
    return cudaMalloc(size)


def cudaFree(devPtr: Any) -> tuple[cudaError_t]:
    """Give a block back; 0 is nothing, and what is no block is an error."""
    address = address_of(devPtr)
    return (_OK if address == 0 or BLOCKS.free(address) else _INVALID,)


def cudaFreeAsync(devPtr: Any, hStream: Any = 0) -> tuple[cudaError_t]:
    """The same."""
    return cudaFree(devPtr)


def cudaFreeHost(ptr: Any) -> tuple[cudaError_t]:
    """The same."""
    return cudaFree(ptr)


def cudaHostRegister(ptr: Any, size: int, flags: int = 0) -> tuple[cudaError_t]:
    """Nothing to do: memory of the host is all there is."""
    return (_OK,)


def cudaHostUnregister(ptr: Any) -> tuple[cudaError_t]:
    """Nothing to do."""
    return (_OK,)


def cudaMemcpy(dst: Any, src: Any, count: int, kind: Any = cudaMemcpyKind.cudaMemcpyDefault) -> tuple[cudaError_t]:
    """Copy; cudaErrorInvalidValue where it would leave a block."""
    return (_OK if count >= 0 and BLOCKS.copy(dst, src, int(count)) else _INVALID,)


def cudaMemcpyAsync(
    dst: Any, src: Any, count: int, kind: Any = cudaMemcpyKind.cudaMemcpyDefault, stream: Any = 0
) -> tuple[cudaError_t]:
    """The same."""
    return cudaMemcpy(dst, src, count, kind)


def cudaMemset(devPtr: Any, value: int, count: int) -> tuple[cudaError_t]:
    """Set bytes; cudaErrorInvalidValue where they would leave a block."""
    return (_OK if count >= 0 and BLOCKS.fill(devPtr, value, int(count)) else _INVALID,)


def cudaMemsetAsync(devPtr: Any, value: int, count: int, stream: Any = 0) -> tuple[cudaError_t]:
    """The same."""
    return cudaMemset(devPtr, value, count)


def cudaMemGetInfo() -> tuple[cudaError_t, int, int]:
    """Free and total bytes of the host."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return _OK, os.sysconf("SC_AVPHYS_PAGES") * page_bytes, os.sysconf("SC_PHYS_PAGES") * page_bytes


# streams and events


def cudaStreamCreate() -> tuple[cudaError_t, cudaStream_t]:
    """A stream, which is 0."""
    return _OK, cudaStream_t()


def cudaStreamCreateWithFlags(flags: int) -> tuple[cudaError_t, cudaStream_t]:
    """The same."""
    return cudaStreamCreate()


def cudaStreamCreateWithPriority(flags: int, priority: int) -> tuple[cudaError_t, cudaStream_t]:
    """The same."""
    return cudaStreamCreate()


def cudaStreamSynchronize(stream: Any) -> tuple[cudaError_t]:
    """Nothing to wait for."""
    return (_OK,)


def cudaStreamQuery(stream: Any) -> tuple[cudaError_t]:
    """Everything is done."""
    return (_OK,)


def cudaStreamDestroy(stream: Any) -> tuple[cudaError_t]:
    """Nothing to give back."""
    return (_OK,)


def cudaStreamWaitEvent(stream: Any, event: Any, flags: int = 0) -> tuple[cudaError_t]:
    """Nothing to wait for."""
    return (_OK,)


def cudaEventCreate() -> tuple[cudaError_t, cudaEvent_t]:
    """An event."""
    return _OK, cudaEvent_t()


def cudaEventCreateWithFlags(flags: int) -> tuple[cudaError_t, cudaEvent_t]:
    """The same."""
    return cudaEventCreate()


def cudaEventRecord(event: cudaEvent_t, stream: Any = 0) -> tuple[cudaError_t]:
    """Take the time."""
    event.record()
    return (_OK,)


def cudaEventSynchronize(event: cudaEvent_t) -> tuple[cudaError_t]:
    """Nothing to wait for."""
    return (_OK,)


def cudaEventQuery(event: cudaEvent_t) -> tuple[cudaError_t]:
    """Everything is done."""
    return (_OK,)


def cudaEventDestroy(event: cudaEvent_t) -> tuple[cudaError_t]:
    """Nothing to give back."""
    return (_OK,)


def cudaEventElapsedTime(start: cudaEvent_t, end: cudaEvent_t) -> tuple[cudaError_t, float]:
    """Milliseconds between two events."""
    if start.time_ns is None or end.time_ns is None:
        return cudaError_t.cudaErrorInvalidResourceHandle, 0.0
    return _OK, (end.time_ns - start.time_ns) / 1e6


# the device


def cudaDeviceSynchronize() -> tuple[cudaError_t]:
    """Nothing to wait for."""
    return (_OK,)


def cudaDeviceReset() -> tuple[cudaError_t]:
    """Nothing to reset."""
    return (_OK,)


def cudaGetDeviceCount() -> tuple[cudaError_t, int]:
    """One: the host, which stands for a device."""
    return _OK, 1


def cudaGetDevice() -> tuple[cudaError_t, int]:
    """The host."""
    return _OK, 0


def cudaSetDevice(device: int) -> tuple[cudaError_t]:
    """Choose the only one."""
    return (_OK if int(device) == 0 else cudaError_t.cudaErrorInvalidDevice,)


def cudaDeviceGetAttribute(attr: Any, device: int) -> tuple[cudaError_t, int]:
    """No attribute of a GPU is known."""
    return cudaError_t.cudaErrorNotSupported, 0


def cudaGetDeviceProperties(device: int) -> tuple[cudaError_t, Any]:
    """What can be said of the host; a compute capability of 0.0."""
    if int(device) != 0:
        return cudaError_t.cudaErrorInvalidDevice, None
    total = cudaMemGetInfo()[2]
    return _OK, SimpleNamespace(
        name=b"host memory (no CUDA device)", major=0, minor=0, totalGlobalMem=total, multiProcessorCount=os.cpu_count()
    )


def cudaRuntimeGetVersion() -> tuple[cudaError_t, int]:
    """The version whose names these are."""
    return _OK, _VERSION


def cudaDriverGetVersion() -> tuple[cudaError_t, int]:
    """0: there is no driver."""
    return _OK, 0


def cudaGetLastError() -> tuple[cudaError_t]:
    """No error is kept: each call says its own."""
    return (_OK,)


def cudaPeekAtLastError() -> tuple[cudaError_t]:
    """The same."""
    return (_OK,)


def cudaGetErrorName(error: Any) -> tuple[cudaError_t, bytes]:
    """The name of an error."""
    return _OK, cudaError_t(int(error)).name.encode()


def cudaGetErrorString(error: Any) -> tuple[cudaError_t, bytes]:
    """What an error means."""
    name = cudaError_t(int(error)).name.removeprefix("cuda").removeprefix("Error")
    return _OK, "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip().encode()
