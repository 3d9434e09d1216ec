"""The codes that calls of the runtime answer with, and the kinds of copies."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["cudaError_t", "cudaMemcpyKind"]


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
