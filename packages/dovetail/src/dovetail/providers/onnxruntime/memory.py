"""What loading and running a partition takes of memory and of time to get it, beyond what ONNX Runtime sees to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

__all__ = ["prepare_allocator", "save_memory"]

_LARGE_BYTES: Final = 64 << 20
"""From here on weights are large: of a network whose run takes milliseconds."""
_GREATEST_BYTES: Final = 31 << 20
"""A little below the greatest buffer from which glibc learns."""


def save_memory(options: Any, weights_bytes: Sequence[int]) -> None:
    """Have a session with large weights allocate its intermediate values one by one.

    By default the first run does so, and later runs put all of them into one block that the first run measured: the
    memory of the first run stays unused from then on. What the block saves is the time of a few hundred allocations,
    which only small networks feel.
    """
    if sum(weights_bytes) >= _LARGE_BYTES:
        options.enable_mem_pattern = False


def prepare_allocator(weights_bytes: Sequence[int]) -> None:
    """Have the C library get memory for copies of the weights with fewer page faults, half the time of a load.

    ONNX Runtime lays weights out anew when it loads them, those of convolutions through buffers that live shortly.
    glibc maps a buffer that is larger than all that were freed before and unmaps it again, so that every page of it is
    made anew. It learns from the first such buffer that is freed, and takes smaller ones from its heap from then on.
    The array here is never touched and takes no memory.
    """
    is_large = sum(weights_bytes) >= _LARGE_BYTES
    np.empty(_GREATEST_BYTES if is_large else min(2 * max(weights_bytes, default=0), _GREATEST_BYTES), np.uint8)
