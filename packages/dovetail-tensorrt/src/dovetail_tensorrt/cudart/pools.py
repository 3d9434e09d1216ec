"""Memory pools of the stand-in for the runtime: blocks of the host, with nothing to keep between them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from dovetail_tensorrt.cudart.results import cudaError_t

__all__ = [
    "cudaDeviceGetDefaultMemPool",
    "cudaMemAllocationHandleType",
    "cudaMemAllocationType",
    "cudaMemLocation",
    "cudaMemLocationType",
    "cudaMemPoolAttr",
    "cudaMemPoolCreate",
    "cudaMemPoolDestroy",
    "cudaMemPoolProps",
    "cudaMemPoolSetAttribute",
    "cudaMemPoolTrimTo",
    "cudaMemPool_t",
]

_OK = cudaError_t.cudaSuccess


class cudaMemAllocationType(IntEnum):
    """What kind of memory a pool has; all of it is the host's."""

    cudaMemAllocationTypeInvalid = 0
    cudaMemAllocationTypePinned = 1


class cudaMemAllocationHandleType(IntEnum):
    """How a pool is shared between processes; none is."""

    cudaMemHandleTypeNone = 0
    cudaMemHandleTypePosixFileDescriptor = 1


class cudaMemLocationType(IntEnum):
    """Where a pool is."""

    cudaMemLocationTypeInvalid = 0
    cudaMemLocationTypeDevice = 1


class cudaMemPoolAttr(IntEnum):
    """What can be set of a pool, none of which changes anything."""

    cudaMemPoolReuseFollowEventDependencies = 1
    cudaMemPoolReuseAllowOpportunistic = 2
    cudaMemPoolReuseAllowInternalDependencies = 3
    cudaMemPoolAttrReleaseThreshold = 4


class cudaMemLocation:
    """A place."""

    def __init__(self) -> None:
        self.type = cudaMemLocationType.cudaMemLocationTypeInvalid
        self.id = 0


class cudaMemPoolProps:
    """How a pool is to be."""

    def __init__(self) -> None:
        self.allocType = cudaMemAllocationType.cudaMemAllocationTypeInvalid
        self.handleTypes = cudaMemAllocationHandleType.cudaMemHandleTypeNone
        self.location = cudaMemLocation()
        self.maxSize = 0


class cudaMemPool_t:
    """A pool."""


def cudaMemPoolCreate(poolProps: cudaMemPoolProps) -> tuple[cudaError_t, cudaMemPool_t]:
    """A pool."""
    return _OK, cudaMemPool_t()


def cudaDeviceGetDefaultMemPool(device: int) -> tuple[cudaError_t, cudaMemPool_t]:
    """A pool."""
    return _OK, cudaMemPool_t()


def cudaMemPoolSetAttribute(memPool: cudaMemPool_t, attr: Any, value: Any) -> tuple[cudaError_t]:
    """Nothing depends on it."""
    return (_OK,)


def cudaMemPoolTrimTo(memPool: cudaMemPool_t, minBytesToKeep: int) -> tuple[cudaError_t]:
    """Nothing is kept."""
    return (_OK,)


def cudaMemPoolDestroy(memPool: cudaMemPool_t) -> tuple[cudaError_t]:
    """Nothing to give back."""
    return (_OK,)
