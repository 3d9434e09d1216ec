"""Stands in for ``cuda.bindings.runtime`` and ``cuda.cudart``: each call gives a tuple, an error code first."""

from __future__ import annotations

from typing import Any

from dovetail_tensorrt.cudart.graphs import (
    cudaGraph_t,
    cudaGraphDestroy,
    cudaGraphExec_t,
    cudaGraphExecDestroy,
    cudaGraphInstantiate,
    cudaGraphInstantiateWithFlags,
    cudaGraphLaunch,
    cudaGraphUpload,
    cudaStreamBeginCapture,
    cudaStreamCaptureMode,
    cudaStreamCaptureStatus,
    cudaStreamEndCapture,
    cudaStreamIsCapturing,
    defer,
)
from dovetail_tensorrt.cudart.handles import cudaEvent_t, cudaStream_t
from dovetail_tensorrt.cudart.host_device import (
    cudaDeviceGetAttribute,
    cudaDeviceGetStreamPriorityRange,
    cudaDeviceProp,
    cudaDeviceReset,
    cudaDeviceSynchronize,
    cudaDriverGetVersion,
    cudaGetDevice,
    cudaGetDeviceCount,
    cudaGetDeviceProperties,
    cudaGetErrorName,
    cudaGetErrorString,
    cudaGetLastError,
    cudaMemGetInfo,
    cudaPeekAtLastError,
    cudaProfilerStart,
    cudaProfilerStop,
    cudaRuntimeGetVersion,
    cudaSetDevice,
    cudaSetDeviceFlags,
)
from dovetail_tensorrt.cudart.memory import BLOCKS, address_of
from dovetail_tensorrt.cudart.pools import (
    cudaDeviceGetDefaultMemPool,
    cudaMemAllocationHandleType,
    cudaMemAllocationType,
    cudaMemLocation,
    cudaMemLocationType,
    cudaMemPool_t,
    cudaMemPoolAttr,
    cudaMemPoolCreate,
    cudaMemPoolDestroy,
    cudaMemPoolProps,
    cudaMemPoolSetAttribute,
    cudaMemPoolTrimTo,
)
from dovetail_tensorrt.cudart.results import cudaError_t, cudaMemcpyKind
from dovetail_tensorrt.cudart.streams import (
    cudaEventCreate,
    cudaEventCreateWithFlags,
    cudaEventDestroy,
    cudaEventElapsedTime,
    cudaEventQuery,
    cudaEventRecord,
    cudaEventSynchronize,
    cudaStreamCreate,
    cudaStreamCreateWithFlags,
    cudaStreamCreateWithPriority,
    cudaStreamDestroy,
    cudaStreamQuery,
    cudaStreamSynchronize,
    cudaStreamWaitEvent,
)

__all__ = [
    "cudaDeviceGetAttribute",
    "cudaDeviceGetDefaultMemPool",
    "cudaDeviceGetStreamPriorityRange",
    "cudaDeviceProp",
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
    "cudaGraphDestroy",
    "cudaGraphExecDestroy",
    "cudaGraphExec_t",
    "cudaGraphInstantiate",
    "cudaGraphInstantiateWithFlags",
    "cudaGraphLaunch",
    "cudaGraphUpload",
    "cudaGraph_t",
    "cudaHostAlloc",
    "cudaHostGetDevicePointer",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaMalloc",
    "cudaMallocAsync",
    "cudaMallocFromPoolAsync",
    "cudaMallocHost",
    "cudaMallocManaged",
    "cudaMemAllocationHandleType",
    "cudaMemAllocationType",
    "cudaMemGetInfo",
    "cudaMemLocation",
    "cudaMemLocationType",
    "cudaMemPoolAttr",
    "cudaMemPoolCreate",
    "cudaMemPoolDestroy",
    "cudaMemPoolProps",
    "cudaMemPoolSetAttribute",
    "cudaMemPoolTrimTo",
    "cudaMemPool_t",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemcpyKind",
    "cudaMemset",
    "cudaMemsetAsync",
    "cudaPeekAtLastError",
    "cudaProfilerStart",
    "cudaProfilerStop",
    "cudaRuntimeGetVersion",
    "cudaSetDevice",
    "cudaSetDeviceFlags",
    "cudaStreamBeginCapture",
    "cudaStreamCaptureMode",
    "cudaStreamCaptureStatus",
    "cudaStreamCreate",
    "cudaStreamCreateWithFlags",
    "cudaStreamCreateWithPriority",
    "cudaStreamDestroy",
    "cudaStreamEndCapture",
    "cudaStreamIsCapturing",
    "cudaStreamNonBlocking",
    "cudaStreamQuery",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
    "cudaStream_t",
]


_OK = cudaError_t.cudaSuccess
_INVALID = cudaError_t.cudaErrorInvalidValue
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
cudaDeviceScheduleAuto = 0
cudaDeviceScheduleSpin = 1
cudaDeviceScheduleYield = 2
cudaDeviceScheduleBlockingSync = 4
cudaDeviceMapHost = 8


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"'{name}' is not stood in for: there is no CUDA device here, and dovetail_tensorrt.cudart has memory, "
        "streams, events and graphs only"
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


def cudaMallocFromPoolAsync(size: int, memPool: Any, stream: Any = 0) -> tuple[cudaError_t, int]:
    """The same: pools keep nothing."""
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


def cudaHostGetDevicePointer(pHost: Any, flags: int = 0) -> tuple[cudaError_t, int]:
    """The same address."""
    return _OK, address_of(pHost)


def cudaMemcpy(dst: Any, src: Any, count: int, kind: Any = cudaMemcpyKind.cudaMemcpyDefault) -> tuple[cudaError_t]:
    """Copy; cudaErrorInvalidValue where it would leave a block."""
    return (_OK if count >= 0 and BLOCKS.copy(dst, src, int(count)) else _INVALID,)


def cudaMemcpyAsync(
    dst: Any, src: Any, count: int, kind: Any = cudaMemcpyKind.cudaMemcpyDefault, stream: Any = 0
) -> tuple[cudaError_t]:
    """The same; while a graph is captured it is kept for the launches."""
    if defer(lambda: cudaMemcpy(dst, src, count, kind)[0] is _OK):
        return (_OK,)
    return cudaMemcpy(dst, src, count, kind)


def cudaMemset(devPtr: Any, value: int, count: int) -> tuple[cudaError_t]:
    """Set bytes; cudaErrorInvalidValue where they would leave a block."""
    return (_OK if count >= 0 and BLOCKS.fill(devPtr, value, int(count)) else _INVALID,)


def cudaMemsetAsync(devPtr: Any, value: int, count: int, stream: Any = 0) -> tuple[cudaError_t]:
    """The same; while a graph is captured it is kept for the launches."""
    if defer(lambda: cudaMemset(devPtr, value, count)[0] is _OK):
        return (_OK,)
    return cudaMemset(devPtr, value, count)
