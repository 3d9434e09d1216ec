"""Streams and events of the stand-in for the runtime: all work is done when a call returns."""

from __future__ import annotations

from typing import Any

from dovetail_tensorrt.cudart.handles import cudaEvent_t, cudaStream_t
from dovetail_tensorrt.cudart.results import cudaError_t

__all__ = [
    "cudaEventCreate",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventElapsedTime",
    "cudaEventQuery",
    "cudaEventRecord",
    "cudaEventSynchronize",
    "cudaStreamCreate",
    "cudaStreamCreateWithFlags",
    "cudaStreamCreateWithPriority",
    "cudaStreamDestroy",
    "cudaStreamQuery",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
]

_OK = cudaError_t.cudaSuccess


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
