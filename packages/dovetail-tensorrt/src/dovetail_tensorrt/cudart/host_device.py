"""The device of the stand-in for the runtime, which is the host, and what its calls say of versions and errors."""

from __future__ import annotations

import os
from typing import Any

from dovetail_tensorrt.cudart.results import cudaError_t

__all__ = [
    "cudaDeviceGetAttribute",
    "cudaDeviceGetStreamPriorityRange",
    "cudaDeviceProp",
    "cudaDeviceReset",
    "cudaDeviceSynchronize",
    "cudaDriverGetVersion",
    "cudaGetDevice",
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaGetLastError",
    "cudaMemGetInfo",
    "cudaPeekAtLastError",
    "cudaProfilerStart",
    "cudaProfilerStop",
    "cudaRuntimeGetVersion",
    "cudaSetDevice",
    "cudaSetDeviceFlags",
]

_OK = cudaError_t.cudaSuccess
_VERSION = 13000


def cudaMemGetInfo() -> tuple[cudaError_t, int, int]:
    """Free and total bytes of the host."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return _OK, os.sysconf("SC_AVPHYS_PAGES") * page_bytes, os.sysconf("SC_PHYS_PAGES") * page_bytes


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


def cudaSetDeviceFlags(flags: int) -> tuple[cudaError_t]:
    """Nothing waits, so it does not matter how."""
    return (_OK,)


def cudaDeviceGetStreamPriorityRange() -> tuple[cudaError_t, int, int]:
    """Streams have no priorities."""
    return _OK, 0, 0


def cudaProfilerStart() -> tuple[cudaError_t]:
    """Nobody profiles."""
    return (_OK,)


def cudaProfilerStop() -> tuple[cudaError_t]:
    """Nobody profiles."""
    return (_OK,)


def cudaDeviceGetAttribute(attr: Any, device: int) -> tuple[cudaError_t, int]:
    """No attribute of a GPU is known."""
    return cudaError_t.cudaErrorNotSupported, 0


class cudaDeviceProp:
    """What can be said of the host."""

    name = b"host memory (no CUDA device)"
    major = minor = 0

    def __init__(self) -> None:
        self.totalGlobalMem = cudaMemGetInfo()[2]
        self.multiProcessorCount = os.cpu_count() or 1


def cudaGetDeviceProperties(device: int) -> tuple[cudaError_t, Any]:
    """What can be said of the host; a compute capability of 0.0."""
    if int(device) != 0:
        return cudaError_t.cudaErrorInvalidDevice, None
    return _OK, cudaDeviceProp()


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
