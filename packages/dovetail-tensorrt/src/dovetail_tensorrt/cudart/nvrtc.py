"""Stands in for ``cuda.bindings.nvrtc`` and ``cuda.nvrtc``: it can be imported, and compiles nothing."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

__all__ = ["nvrtcResult"]


class nvrtcResult(IntEnum):
    """What a call says."""

    NVRTC_SUCCESS = 0
    NVRTC_ERROR_OUT_OF_MEMORY = 1
    NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2
    NVRTC_ERROR_INVALID_INPUT = 3
    NVRTC_ERROR_INVALID_PROGRAM = 4
    NVRTC_ERROR_INVALID_OPTION = 5
    NVRTC_ERROR_COMPILATION = 6


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"'{name}' is not stood in for: there is no CUDA device here, and kernels cannot be compiled; "
        "compute with NumPy over the pointers, which are the host's"
    )
