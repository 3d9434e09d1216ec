"""A partition that is planned: its regions, and the memory they read and write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dovetail_cuda.graph.regions import Region
from dovetail_cuda.lower.types import size_of

__all__ = ["Buffer", "PartitionPlan"]


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """Memory that regions read and write."""

    shape: tuple[int, ...]
    dtype: str
    kind: str
    """``input``, ``output``, ``weight``, ``temporary``, or ``zeroed`` for what is zero between runs."""

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        return math.prod(self.shape) * size_of(self.dtype)


@dataclass(frozen=True, kw_only=True)
class PartitionPlan:
    """Regions in the order they run, and all the memory they name."""

    regions: Sequence[Region]
    buffers: dict[str, Buffer]
    weights: dict[str, Any]
    inputs: Sequence[str]
    outputs: Sequence[str]
