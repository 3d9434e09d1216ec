"""What to build and how, and the parts of the plan that comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.build.config import BuilderConfig
from dovetail.loggers import ILogger
from dovetail.plan.container import Blob
from dovetail.plan.manifest import Manifest, PrecisionRecord
from dovetail.plugin.registry import PluginRegistry

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.build.precision.trial import Sample

__all__ = ["BuildRequest", "BuiltPlan"]


@dataclass(kw_only=True)
class BuildRequest:
    """What to build and how."""

    model: ir.Model
    config: BuilderConfig
    logger: ILogger
    name: str = ""
    providers: Sequence[str] = ("cpu",)
    """Back ends in order of preference; ``cpu`` runs what no other takes."""
    order: Sequence[str] = ()
    """In which order providers get nodes, where ``cpu`` need not be the last; empty for the order of ``providers``."""
    is_open: bool = False
    strongly_typed: bool = True
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Explicit dynamic ranges by tensor name."""
    updates: Mapping[str, str] = field(default_factory=dict)
    """Output -> the input that a layer of the network updates, which it then shares the memory of where it can."""
    libraries: Sequence[tuple[str, bytes]] = ()
    """Plugin libraries to carry: name and packed contents."""
    refittable: frozenset[str] = frozenset()
    """Weights that can be replaced later, by name."""
    weight_layers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The layer and the role of each of these."""
    excluded_weights: Mapping[str, str] = field(default_factory=dict)
    """Weights that cannot, with the reason."""
    is_reference: bool = False
    """Whether plugins are offered only the network's own types, row by row."""
    passes: Mapping[str, int] = field(default_factory=dict)
    """The passes that changed the model, and how often."""
    num_threads: int = 0
    """How many threads providers may compile in; 0 for one a core."""
    precision: Sequence[PrecisionRecord] = ()
    """The types that layers were given."""
    registry: PluginRegistry | None = None
    """Registry of the creators of the plugins in the plan."""
    is_loaded: bool = False
    """Whether the caller loads the plan at once, which creates its plugins."""


@dataclass(frozen=True)
class BuiltPlan:
    """The parts of a plan file."""

    manifest: Manifest
    blobs: list[Blob]
    samples: Sequence[Sample] = ()
    """Runs of the network in FP32, where it was given other types: what the plan is compared with."""
