"""Calls that allocate, create handles or wait for a device, by the names that the common libraries have."""

from __future__ import annotations

import re
from typing import Final

from dovetail_tensorrt.lint.facts import CallFacts, Language

__all__ = ["allocates", "allocates_on_device", "synchronizes"]

_MAKERS: Final = "array|empty|empty_like|full|full_like|ones|ones_like|zeros|zeros_like|arange|tensor|rand|randn"
_PYTHON_DEVICE: Final = re.compile(
    rf"(?:cp|cupy|torch)\.(?:{_MAKERS})"
    r"|(?:\w+\.)*(?:cuda_?[mM]alloc\w*|cuMemAlloc\w*|mem_alloc\w*|device_array\w*|to_device|to_gpu|alloc_pinned\w*)"
    r"|(?:cp|cupy)\.cuda\.(?:alloc\w*|Stream|Event)|torch\.cuda\.(?:Stream|Event)"
    r"|(?:\w+\.)*(?:cudaStreamCreate\w*|cudaEventCreate\w*|cublasCreate|cudnnCreate)"
)
_CPP_DEVICE: Final = re.compile(
    r"(?:::)?(?:cudaMalloc\w*|cudaHostAlloc|cuMemAlloc\w*|cudaStreamCreate\w*|cudaEventCreate\w*"
    r"|cublas(?:Lt)?Create|cudnnCreate\w*|curandCreateGenerator|cusparseCreate|(?:thrust::)?device_vector)"
)
_CPP_HOST: Final = re.compile(r"(?:std::)?(?:malloc|calloc|realloc|aligned_alloc|make_unique|make_shared)|new")
_PYTHON_WAITS: Final = re.compile(
    r"torch\.cuda\.synchronize|(?:\w+\.)*cuda(?:Device|Stream|Event)Synchronize"
    r"|(?:\w+\.)*cu(?:Ctx|Stream|Event)Synchronize|(?:\w+\.)*cudaMemcpy|(?:\w+\.)*memcpy_[dh]to[dh]"
    r"|.*\.(?:synchronize|cpu)"
)
_CPP_WAITS: Final = re.compile(
    r"(?:::)?(?:cuda(?:Device|Stream|Event|Thread)Synchronize|cu(?:Ctx|Stream|Event)Synchronize|cudaMemcpy)"
)


def allocates_on_device(call: CallFacts, language: Language) -> bool:
    """Whether a call allocates memory of a device, or creates a handle of one."""
    pattern = _PYTHON_DEVICE if language is Language.PYTHON else _CPP_DEVICE
    return pattern.fullmatch(call.callee) is not None


def allocates(call: CallFacts, language: Language) -> bool:
    """Whether a call allocates memory of a device, or in C++ of the host."""
    if allocates_on_device(call, language):
        return True
    return language is Language.CPP and _CPP_HOST.fullmatch(call.callee) is not None


def synchronizes(call: CallFacts, language: Language) -> bool:
    """Whether a call waits for a device."""
    pattern = _PYTHON_WAITS if language is Language.PYTHON else _CPP_WAITS
    return pattern.fullmatch(call.callee) is not None
