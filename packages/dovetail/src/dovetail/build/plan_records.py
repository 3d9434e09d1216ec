"""Parts of a manifest, from what a build found."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from dovetail.build.lower.blobs import BlobTable
from dovetail.build.profile import OptimizationProfile
from dovetail.build.progress import Phases
from dovetail.build.refittable import is_refit
from dovetail.build.request import BuildRequest
from dovetail.build.tune.combinations import layout_text
from dovetail.build.tune.plugins import Choice, TunedLayer
from dovetail.build.tune.trial import PluginLayer
from dovetail.plan.manifest import (
    FieldRecord,
    LayerRecord,
    LibraryRecord,
    PhaseRecord,
    PluginRecord,
    ProfileRecord,
    ProgramRecord,
    RefitRecord,
)
from dovetail.plan.walk import walk_steps
from dovetail.plugin.fields import encode_fields
from dovetail.plugin.handle import PluginHandle

__all__ = [
    "layer_record",
    "library_records",
    "list_layers",
    "phase_records",
    "plugin_record",
    "profile_record",
    "refit_record",
]


def library_records(libraries: Sequence[tuple[str, bytes]], blobs: BlobTable) -> list[LibraryRecord]:
    """The plugin libraries that a plan carries, whose contents become blobs."""
    return [
        LibraryRecord(
            name=name, blob=blobs.add_array(f"library:{name}", np.frombuffer(payload, np.uint8), kind="library")
        )
        for name, payload in libraries
    ]


def refit_record(request: BuildRequest, blobs: BlobTable) -> RefitRecord | None:
    """Which weights can be replaced; None where the plan is not made for that."""
    if not request.refittable and not is_refit(request.config):
        return None
    weights = {name: name for name in sorted(request.refittable) if name in blobs.arrays}
    excluded = dict(request.excluded_weights)
    for name in sorted(request.refittable - weights.keys()):
        excluded.setdefault(name, "no step of the plan uses it")
    layers = {name: request.weight_layers[name] for name in weights if name in request.weight_layers}
    return RefitRecord(weights=weights, excluded=excluded, layers=layers)


def profile_record(profile: OptimizationProfile) -> ProfileRecord:
    """The bounds of a profile."""
    return ProfileRecord(
        shapes={name: _lists(bounds) for name, bounds in profile.shapes.items()},
        values={name: _lists(bounds) for name, bounds in profile.values.items()},
    )


def _lists(bounds: tuple[tuple[int, ...], ...]) -> tuple[list[int], list[int], list[int]]:
    return list(bounds[0]), list(bounds[1]), list(bounds[2])


def plugin_record(final: PluginHandle, metadata: str | None, *, has_fields: bool = True) -> PluginRecord:
    """What makes a plugin again when the plan is loaded; one that is a kernel is made of nothing else."""
    fields = encode_fields(final.get_fields_to_serialize(), where=final.where) if has_fields else []
    return PluginRecord(
        name=final.name,
        version=final.version,
        namespace=final.namespace,
        fields=[FieldRecord(**field) for field in fields],
        metadata=metadata,
    )


def phase_records(phases: Phases) -> list[PhaseRecord]:
    """How long each phase took that is over."""
    times = phases.times
    return [PhaseRecord(name=each.name, seconds=round(each.seconds, 6), parent=each.parent or "") for each in times]


def list_layers(programs: Sequence[ProgramRecord]) -> frozenset[str]:
    """The layers that programs run, as steps of their own or in partitions."""
    steps = [step for program in programs for step in walk_steps(program)]
    inside = [layer for step in steps if step.partition is not None for layer in step.partition.layers]
    return frozenset((*(step.name for step in steps), *inside))


def layer_record(
    layer: PluginLayer, tuned: TunedLayer, choice: Choice, profile: int, metadata: str | None
) -> LayerRecord:
    """The table of a tuned layer, with what was chosen."""
    formats = [layout_text(layout) for layout in choice.combination]
    candidates = [
        msgspec.structs.replace(c, chosen=c.formats == formats and c.tactic == choice.tactic) for c in tuned.table
    ]
    return LayerRecord(name=layer.name, profile=profile, candidates=candidates, metadata=metadata)
