"""A partition that is planned: its regions, and the memory they read and write."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail_cuda.graph.regions import Region
from dovetail_cuda.lower.sizes import is_fixed
from dovetail_cuda.lower.types import size_of
from dovetail_cuda.run.variants import SymbolRecord

__all__ = ["Buffer", "PartitionPlan", "PlannedShapes", "PlannedVariant"]


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
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Output -> the input in whose memory it is written."""

    @property
    def is_generic(self) -> bool:
        """Whether sizes in it vary with the shapes of a run."""
        return not all(is_fixed(size) for buffer in self.buffers.values() for size in buffer.shape)


@dataclass(frozen=True, kw_only=True)
class PlannedVariant:
    """A partition planned for one set of shapes."""

    values: tuple[int, ...]
    """What the symbols are."""
    plan: PartitionPlan


@dataclass(frozen=True, kw_only=True)
class PlannedShapes:
    """A partition planned for all its shapes."""

    variants: Sequence[PlannedVariant] = ()
    symbols: Sequence[SymbolRecord] = ()
    generic: PartitionPlan | None = None
