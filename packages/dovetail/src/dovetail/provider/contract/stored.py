"""What loading gets: a kernel or a partition as the plan has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.tensors import TensorSpec

__all__ = ["StoredCandidates", "StoredKernel", "StoredPartition"]


@dataclass(frozen=True, kw_only=True)
class StoredKernel:
    """A node that is a step of its own."""

    op: str
    domain: str = ""
    opset: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[TensorSpec | None] = ()
    """None for an input that is absent."""
    num_outputs: int = 1
    name: str = ""
    """The layer."""
    payload: memoryview = field(default_factory=lambda: memoryview(b""))
    """What ``build_kernel`` gave; empty where nothing was built."""
    version: str = ""
    tactic: str = ""
    code: Mapping[str, memoryview] = field(default_factory=dict)

    @property
    def input_types(self) -> list[str | None]:
        """NumPy names of the input types."""
        return [None if spec is None else spec.dtype for spec in self.inputs]


@dataclass(frozen=True, kw_only=True)
class StoredCandidates:
    """The candidates that a plan carries for a partition."""

    payload: memoryview
    code: Mapping[str, memoryview] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StoredPartition:
    """A compiled partition."""

    name: str
    payload: memoryview
    version: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    weights: Mapping[str, Any]
    """Arrays, mapped and read-only where the plan is a file."""
    places: Mapping[str, int]
    """Where each weight lies in ``path``; empty when there is no file."""
    path: str | None = None
    is_whole: bool = False
    """Whether it is the only step of its program, so that nothing else waits for the cores while it does not run."""
    input_specs: Sequence[TensorSpec] = ()
    """What the step will bring, in the order of ``inputs``: a payload from outside may want something else."""
    output_specs: Sequence[TensorSpec] = ()
    code: Mapping[str, memoryview] = field(default_factory=dict)
    candidates: StoredCandidates | None = None
    """What the plan carries besides; only ``tune_partition`` gets it."""
