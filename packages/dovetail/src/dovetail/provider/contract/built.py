"""What building gives: payloads, weights in the provider's own form, device code, and a report for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BuildReport",
    "BuiltKernel",
    "BuiltPartition",
    "CarriedCandidates",
    "NodeReport",
    "PackedWeight",
    "TunedPartition",
]


@dataclass(frozen=True, kw_only=True)
class PackedWeight:
    """A weight in the form that the provider wants it, packed once and stored in the plan."""

    array: Any
    sources: tuple[str, ...] = ()
    """The weights of the model that it is made of; when one is replaced, ``Provider.pack_weight`` makes it again."""
    recipe: str = ""
    """What ``pack_weight`` needs to know to do so, in the provider's own words."""


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """One thing that a compiled partition does."""

    name: str
    op: str
    layers: Sequence[str] = ()
    """The layers of the network it was made of."""
    made_by: str = ""
    """The pass that fused it; empty for what is as it was."""
    tactic: str = ""
    flops: int | None = None
    bytes: int | None = None
    """How much memory it reads and writes."""
    time_us: float | None = None
    inputs: Sequence[int] = ()
    """The nodes of the report, all before this one, that make what it reads, by number."""
    reads: Sequence[int] = ()
    """The inputs of the partition that it reads, by position."""
    writes: Sequence[int] = ()
    """The outputs of the partition that it makes, by position."""
    parent: int = -1
    """The node before it that is control flow, for one in a body; -1 for the others."""
    body: int = 0
    """Which of the bodies of its parent it is in."""
    dtype: str = ""
    """The type of what it makes."""
    shape: Sequence[int | None] | None = None
    """The usual shape of its first output, as far as it is known."""


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What people may want to know of a compiled partition; ``dovetail inspect`` shows it."""

    nodes: Sequence[NodeReport] = ()
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Layers for which something better was not possible, with the reason."""


@dataclass(frozen=True, kw_only=True)
class BuiltKernel:
    """What a plan stores of a node that is a step of its own."""

    payload: bytes = b""
    """What ``load_kernel`` gets back; never code of the host."""
    version: str = ""
    """What made the payload."""
    tactic: str = ""
    weights: Mapping[int, PackedWeight] = field(default_factory=dict)
    """Inputs, by position, that the kernel gets packed instead of as the network has them."""
    code: Mapping[str, bytes] = field(default_factory=dict)
    """Code of the device, such as a cubin, by name; loaded only where device code is trusted."""
    workspace_bytes: int = 0
    """Scratch memory that it needs for the largest shapes of the profile."""


@dataclass(frozen=True, kw_only=True)
class CarriedCandidates:
    """The candidates of a partition's questions, compiled, so that another machine can choose between them."""

    payload: bytes
    """What ``tune_partition`` gets back; never code of the host."""
    code: Mapping[str, bytes] = field(default_factory=dict)
    """Code of the device that the partition itself does not have, by name."""

    @property
    def size_bytes(self) -> int:
        """How much a plan grows by them at most."""
        return len(self.payload) + sum(len(code) for code in self.code.values())


@dataclass(frozen=True, kw_only=True)
class BuiltPartition:
    """What a plan stores of a compiled partition; the plan adds its weights, once for all partitions."""

    payload: bytes
    """What ``load_partition`` gets back; never code of the host."""
    weights: Mapping[str, Any] = field(default_factory=dict)
    """Arrays, or ``PackedWeight``, that the payload names and does not hold."""
    version: str = ""
    """What made the payload; a provider that is asked to load another version's says what to do."""
    code: Mapping[str, bytes] = field(default_factory=dict)
    """Code of the device, such as a cubin, by name; loaded only where device code is trusted."""
    workspace_bytes: int = 0
    """Scratch memory that it needs for the largest shapes of the profile."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Output -> the input in whose memory it lies: the partition writes what changes and leaves the rest. Only those
    that ``BuildContext.aliases`` has."""
    report: BuildReport = field(default_factory=BuildReport)
    candidates: CarriedCandidates | None = None
    """What it could be instead, for ``Provider.tune_partition``; only where the build asks for it."""


@dataclass(frozen=True, kw_only=True)
class TunedPartition:
    """A partition for which candidates that its plan carried were chosen; its weights are those of before."""

    payload: bytes
    """What ``load_partition`` gets from now on."""
    code: Sequence[str] = ()
    """The device code that it needs, by the names that the stored partition and its candidates have for it."""
    added: Mapping[str, bytes] = field(default_factory=dict)
    """Code that it needs besides, which a library of the device made now, by names that are new."""
    workspace_bytes: int = 0
    report: BuildReport = field(default_factory=BuildReport)
