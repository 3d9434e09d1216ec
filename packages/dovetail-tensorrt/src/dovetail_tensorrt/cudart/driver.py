"""Stands in for ``cuda.bindings.driver`` and ``cuda.cuda``: the error type, contexts and memory."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from dovetail_tensorrt.cudart import runtime
from dovetail_tensorrt.cudart.handles import Handle

__all__ = [
    "CUcontext",
    "CUdevice",
    "CUresult",
    "CUstream",
    "cuCtxCreate",
    "cuCtxDestroy",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDevicePrimaryCtxRetain",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemcpyDtoH",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoD",
    "cuMemcpyHtoDAsync",
    "cuStreamCreate",
    "cuStreamDestroy",
    "cuStreamSynchronize",
]


class CUresult(IntEnum):
    """What a call says."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_NOT_SUPPORTED = 801


class CUcontext(Handle):
    """A context: there is one, and nothing depends on it."""


class CUdevice(Handle):
    """A device: the host."""


class CUstream(Handle):
    """A stream, which is 0."""


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


def cuMemcpyHtoD(dstDevice: Any, srcHost: Any, ByteCount: int) -> tuple[Any, ...]:
    """Copy, within the blocks."""
    return _convert(runtime.cudaMemcpy(dstDevice, srcHost, ByteCount))


def cuMemcpyDtoH(dstHost: Any, srcDevice: Any, ByteCount: int) -> tuple[Any, ...]:
    """Copy, within the blocks."""
    return _convert(runtime.cudaMemcpy(dstHost, srcDevice, ByteCount))


def cuMemcpyHtoDAsync(dstDevice: Any, srcHost: Any, ByteCount: int, hStream: Any = 0) -> tuple[Any, ...]:
    """The same."""
    return cuMemcpyHtoD(dstDevice, srcHost, ByteCount)


def cuMemcpyDtoHAsync(dstHost: Any, srcDevice: Any, ByteCount: int, hStream: Any = 0) -> tuple[Any, ...]:
    """The same."""
    return cuMemcpyDtoH(dstHost, srcDevice, ByteCount)


def cuStreamCreate(Flags: int) -> tuple[CUresult, CUstream]:
    """A stream, which is 0."""
    return _OK, CUstream(0)


def cuStreamSynchronize(hStream: Any) -> tuple[CUresult]:
    """Nothing to wait for."""
    return (_OK,)


def cuStreamDestroy(hStream: Any) -> tuple[CUresult]:
    """Nothing to give back."""
    return (_OK,)


def cuGetErrorName(error: Any) -> tuple[CUresult, bytes]:
    """The name of an error."""
    return _OK, CUresult(int(error)).name.encode()


def cuGetErrorString(error: Any) -> tuple[CUresult, bytes]:
    """What an error means."""
    return _OK, CUresult(int(error)).name.removeprefix("CUDA_").replace("_", " ").lower().encode()
