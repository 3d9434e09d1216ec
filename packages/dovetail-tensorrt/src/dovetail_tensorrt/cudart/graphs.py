"""Graphs of the stand-ins: work on a stream that is captured is kept, and done in order with each launch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from dovetail_tensorrt.cudart.results import cudaError_t

__all__ = [
    "cudaGraphDestroy",
    "cudaGraphExecDestroy",
    "cudaGraphExec_t",
    "cudaGraphInstantiate",
    "cudaGraphInstantiateWithFlags",
    "cudaGraphLaunch",
    "cudaGraphUpload",
    "cudaGraph_t",
    "cudaStreamBeginCapture",
    "cudaStreamCaptureMode",
    "cudaStreamCaptureStatus",
    "cudaStreamEndCapture",
    "cudaStreamIsCapturing",
    "defer",
    "is_capturing",
]

Work = Callable[[], bool]
"""Does something; False when that fails."""

_OK = cudaError_t.cudaSuccess
_INVALID = cudaError_t.cudaErrorInvalidValue


class cudaStreamCaptureMode(IntEnum):
    """What else may be called during a capture; everything may."""

    cudaStreamCaptureModeGlobal = 0
    cudaStreamCaptureModeThreadLocal = 1
    cudaStreamCaptureModeRelaxed = 2


class cudaStreamCaptureStatus(IntEnum):
    """Whether a stream is captured."""

    cudaStreamCaptureStatusNone = 0
    cudaStreamCaptureStatusActive = 1
    cudaStreamCaptureStatusInvalidated = 2


class cudaGraph_t:
    """What was captured, in order."""

    def __init__(self, work: list[Work] | None = None) -> None:
        self.work = list(work or ())


class cudaGraphExec_t(cudaGraph_t):
    """A graph that can be launched."""


class _Capture(threading.local):
    """The capture that a thread is in; streams are all 0, so there is one."""

    work: list[Work] | None = None


_CAPTURE = _Capture()


def is_capturing() -> bool:
    """Whether work of this thread is kept."""
    return _CAPTURE.work is not None


def defer(work: Work) -> bool:
    """Keep work for the graph that is captured; False when none is, so that it has to be done now."""
    if _CAPTURE.work is None:
        return False
    _CAPTURE.work.append(work)
    return True


def cudaStreamBeginCapture(stream: Any, mode: Any = 0) -> tuple[cudaError_t]:
    """Keep what comes from now on instead of doing it."""
    if _CAPTURE.work is not None:
        return (_INVALID,)
    _CAPTURE.work = []
    return (_OK,)


def cudaStreamEndCapture(stream: Any) -> tuple[cudaError_t, cudaGraph_t | None]:
    """The graph of what was kept."""
    work, _CAPTURE.work = _CAPTURE.work, None
    return (_INVALID, None) if work is None else (_OK, cudaGraph_t(work))


def cudaStreamIsCapturing(stream: Any) -> tuple[cudaError_t, cudaStreamCaptureStatus]:
    """Whether a capture is under way."""
    return _OK, cudaStreamCaptureStatus(int(is_capturing()))


def cudaGraphInstantiate(graph: cudaGraph_t, *arguments: Any) -> tuple[cudaError_t, cudaGraphExec_t]:
    """A graph to launch; flags and buffers for messages of CUDA's versions are taken."""
    return _OK, cudaGraphExec_t(graph.work)


def cudaGraphInstantiateWithFlags(graph: cudaGraph_t, flags: int = 0) -> tuple[cudaError_t, cudaGraphExec_t]:
    """The same."""
    return cudaGraphInstantiate(graph)


def cudaGraphUpload(graphExec: cudaGraphExec_t, stream: Any) -> tuple[cudaError_t]:
    """Nothing to bring anywhere."""
    return (_OK,)


def cudaGraphLaunch(graphExec: cudaGraphExec_t, stream: Any) -> tuple[cudaError_t]:
    """Do all of it in order; what comes after a failure is not done."""
    return (_OK if all(work() for work in graphExec.work) else _INVALID,)


def cudaGraphExecDestroy(graphExec: cudaGraphExec_t) -> tuple[cudaError_t]:
    """Nothing to give back."""
    return (_OK,)


def cudaGraphDestroy(graph: cudaGraph_t) -> tuple[cudaError_t]:
    """Nothing to give back."""
    return (_OK,)
