"""Stands in for ``cuda.bindings.driver`` and ``cuda.cuda``: the error type, contexts and memory."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from dovetail_tensorrt.cudart import runtime
from dovetail_tensorrt.cudart.handles import Handle, cudaEvent_t

__all__ = [
    "CU_MEMHOSTALLOC_DEVICEMAP",
    "CU_MEMHOSTALLOC_PORTABLE",
    "CU_MEMHOSTREGISTER_DEVICEMAP",
    "CU_MEMHOSTREGISTER_PORTABLE",
    "CUcontext",
    "CUctx_flags",
    "CUdevice",
    "CUdeviceptr",
    "CUevent",
    "CUevent_flags",
    "CUresult",
    "CUstream",
    "CUstream_flags",
    "cuCtxCreate",
    "cuCtxDestroy",
    "cuCtxGetCurrent",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuMemAlloc",
    "cuMemAllocHost",
    "cuMemFree",
    "cuMemFreeHost",
    "cuMemGetInfo",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuMemcpy",
    "cuMemcpyAsync",
    "cuMemcpyDtoD",
    "cuMemcpyDtoDAsync",
    "cuMemcpyDtoH",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoD",
    "cuMemcpyHtoDAsync",
    "cuMemsetD8",
    "cuMemsetD8Async",
    "cuStreamCreate",
    "cuStreamDestroy",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuuint32_t",
    "cuuint64_t",
]


class CUresult(IntEnum):
    """What a call says."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_SUPPORTED = 801


class CUcontext(Handle):
    """A context: there is one, and nothing depends on it."""


class CUdevice(Handle):
    """A device: the host."""


class CUstream(Handle):
    """A stream, which is 0."""


class CUdeviceptr(Handle):
    """An address, of the host."""


class cuuint64_t(Handle):
    """A number of 64 bits."""


class cuuint32_t(Handle):
    """A number of 32 bits."""


CUevent = cudaEvent_t


class CUctx_flags(IntEnum):
    """Flags of contexts, none of which changes anything."""

    CU_CTX_SCHED_AUTO = 0
    CU_CTX_SCHED_SPIN = 1
    CU_CTX_SCHED_BLOCKING_SYNC = 4
    CU_CTX_MAP_HOST = 8


class CUstream_flags(IntEnum):
    """Flags of streams, none of which changes anything."""

    CU_STREAM_DEFAULT = 0
    CU_STREAM_NON_BLOCKING = 1


class CUevent_flags(IntEnum):
    """Flags of events, none of which changes anything."""

    CU_EVENT_DEFAULT = 0
    CU_EVENT_BLOCKING_SYNC = 1
    CU_EVENT_DISABLE_TIMING = 2


CU_MEMHOSTALLOC_PORTABLE = CU_MEMHOSTREGISTER_PORTABLE = 1
CU_MEMHOSTALLOC_DEVICEMAP = CU_MEMHOSTREGISTER_DEVICEMAP = 2


_OK = CUresult.CUDA_SUCCESS


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"'{name}' is not stood in for: there is no CUDA device here, and kernels cannot be loaded or launched; "
        "compute with NumPy over the pointers, which are the host's"
    )


def _convert(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    return (CUresult(int(answer[0])), *answer[1:])


def cuInit(Flags: int) -> tuple[CUresult]:
    """Nothing to begin."""
    return (_OK,)


def cuDeviceGetCount() -> tuple[CUresult, int]:
    """One: the host."""
    return _OK, 1


def cuDeviceGet(ordinal: int) -> tuple[CUresult, CUdevice]:
    """The host."""
    return (_OK if ordinal == 0 else CUresult.CUDA_ERROR_INVALID_DEVICE), CUdevice(0)


def cuCtxCreate(*arguments: Any) -> tuple[CUresult, CUcontext]:
    """A context; flags and the device are taken in either order of CUDA's versions."""
    return _OK, CUcontext(0)


def cuDevicePrimaryCtxRetain(dev: Any) -> tuple[CUresult, CUcontext]:
    """The context."""
    return _OK, CUcontext(0)


def cuCtxSetCurrent(ctx: Any) -> tuple[CUresult]:
    """Nothing to do."""
    return (_OK,)


def cuCtxGetCurrent() -> tuple[CUresult, CUcontext]:
    """The context."""
    return _OK, CUcontext(0)


def cuCtxPushCurrent(ctx: Any) -> tuple[CUresult]:
    """Nothing to do."""
    return (_OK,)


def cuCtxPopCurrent() -> tuple[CUresult, CUcontext]:
    """The context."""
    return _OK, CUcontext(0)


def cuDevicePrimaryCtxRelease(dev: Any) -> tuple[CUresult]:
    """Nothing to give back."""
    return (_OK,)


def cuDeviceGetName(length: int, dev: Any) -> tuple[CUresult, bytes]:
    """What the host is called."""
    return _OK, runtime.cudaDeviceProp.name[:length]


def cuDeviceTotalMem(dev: Any) -> tuple[CUresult, int]:
    """Bytes of the host."""
    return _OK, runtime.cudaMemGetInfo()[2]


def cuDriverGetVersion() -> tuple[Any, ...]:
    """0: there is no driver."""
    return _convert(runtime.cudaDriverGetVersion())


def cuMemGetInfo() -> tuple[Any, ...]:
    """Free and total bytes of the host."""
    return _convert(runtime.cudaMemGetInfo())


def cuCtxSynchronize() -> tuple[CUresult]:
    """Nothing to wait for."""
    return (_OK,)


def cuCtxDestroy(ctx: Any) -> tuple[CUresult]:
    """Nothing to give back."""
    return (_OK,)


def cuMemAlloc(bytesize: int) -> tuple[Any, ...]:
    """A block of the host's memory."""
    return _convert(runtime.cudaMalloc(bytesize))


def cuMemFree(dptr: Any) -> tuple[Any, ...]:
    """Give a block back."""
    return _convert(runtime.cudaFree(dptr))


def cuMemAllocHost(bytesize: int) -> tuple[Any, ...]:
    """The same: all memory is the host's."""
    return cuMemAlloc(bytesize)


def cuMemHostAlloc(bytesize: int, Flags: int = 0) -> tuple[Any, ...]:
    """The same."""
    return cuMemAlloc(bytesize)


def cuMemFreeHost(p: Any) -> tuple[Any, ...]:
    """Give a block back."""
    return cuMemFree(p)


def cuMemHostRegister(p: Any, bytesize: int, Flags: int = 0) -> tuple[CUresult]:
    """Nothing to do: memory of the host is all there is."""
    return (_OK,)


def cuMemHostUnregister(p: Any) -> tuple[CUresult]:
    """Nothing to do."""
    return (_OK,)


def cuMemsetD8(dstDevice: Any, uc: int, N: int) -> tuple[Any, ...]:
    """Set bytes, within the block."""
    return _convert(runtime.cudaMemset(dstDevice, uc, N))


def cuMemsetD8Async(dstDevice: Any, uc: int, N: int, hStream: Any = 0) -> tuple[Any, ...]:
    """The same."""
    return _convert(runtime.cudaMemsetAsync(dstDevice, uc, N))


def cuMemcpy(dst: Any, src: Any, ByteCount: int) -> tuple[Any, ...]:
    """Copy, within the blocks."""
    return _convert(runtime.cudaMemcpy(dst, src, ByteCount))


def cuMemcpyAsync(dst: Any, src: Any, ByteCount: int, hStream: Any = 0) -> tuple[Any, ...]:
    """The same; while a graph is captured it is kept for the launches."""
    return _convert(runtime.cudaMemcpyAsync(dst, src, ByteCount))


cuMemcpyDtoD = cuMemcpy
cuMemcpyDtoDAsync = cuMemcpyAsync


def cuMemcpyHtoD(dstDevice: Any, srcHost: Any, ByteCount: int) -> tuple[Any, ...]:
    """Copy, within the blocks."""
    return _convert(runtime.cudaMemcpy(dstDevice, srcHost, ByteCount))


def cuMemcpyDtoH(dstHost: Any, srcDevice: Any, ByteCount: int) -> tuple[Any, ...]:
    """Copy, within the blocks."""
    return _convert(runtime.cudaMemcpy(dstHost, srcDevice, ByteCount))


def cuMemcpyHtoDAsync(dstDevice: Any, srcHost: Any, ByteCount: int, hStream: Any = 0) -> tuple[Any, ...]:
    """The same; while a graph is captured it is kept for the launches."""
    return cuMemcpyAsync(dstDevice, srcHost, ByteCount)


def cuMemcpyDtoHAsync(dstHost: Any, srcDevice: Any, ByteCount: int, hStream: Any = 0) -> tuple[Any, ...]:
    """The same; while a graph is captured it is kept for the launches."""
    return cuMemcpyAsync(dstHost, srcDevice, ByteCount)


def cuStreamCreate(Flags: int) -> tuple[CUresult, CUstream]:
    """A stream, which is 0."""
    return _OK, CUstream(0)


def cuStreamSynchronize(hStream: Any) -> tuple[CUresult]:
    """Nothing to wait for."""
    return (_OK,)


def cuStreamDestroy(hStream: Any) -> tuple[CUresult]:
    """Nothing to give back."""
    return (_OK,)


def cuStreamQuery(hStream: Any) -> tuple[CUresult]:
    """Everything is done."""
    return (_OK,)


def cuStreamWaitEvent(hStream: Any, hEvent: Any, Flags: int = 0) -> tuple[CUresult]:
    """Nothing to wait for."""
    return (_OK,)


def cuEventCreate(Flags: int = 0) -> tuple[CUresult, cudaEvent_t]:
    """An event."""
    return _OK, cudaEvent_t()


def cuEventRecord(hEvent: cudaEvent_t, hStream: Any = 0) -> tuple[CUresult]:
    """Take the time."""
    hEvent.record()
    return (_OK,)


def cuEventSynchronize(hEvent: cudaEvent_t) -> tuple[CUresult]:
    """Nothing to wait for."""
    return (_OK,)


def cuEventElapsedTime(hStart: cudaEvent_t, hEnd: cudaEvent_t) -> tuple[Any, ...]:
    """Milliseconds between two events."""
    return _convert(runtime.cudaEventElapsedTime(hStart, hEnd))


def cuEventDestroy(hEvent: cudaEvent_t) -> tuple[CUresult]:
    """Nothing to give back."""
    return (_OK,)


def cuGetErrorName(error: Any) -> tuple[CUresult, bytes]:
    """The name of an error."""
    return _OK, CUresult(int(error)).name.encode()


def cuGetErrorString(error: Any) -> tuple[CUresult, bytes]:
    """What an error means."""
    return _OK, CUresult(int(error)).name.removeprefix("CUDA_").replace("_", " ").lower().encode()
