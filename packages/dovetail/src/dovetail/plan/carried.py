"""Candidates that a plan carries for a device that was not there when it was built; no run reads them."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.plan.manifest import CarriedRecord, KernelRecord, Manifest, PartitionRecord
from dovetail.plan.walk import walk_steps

__all__ = ["count_carried", "find_carried_blobs", "find_step_blobs"]


def count_carried(manifest: Manifest) -> int:
    """How many steps carry candidates."""
    partitions = [step.partition for program in manifest.programs for step in walk_steps(program)]
    return sum(partition is not None and partition.candidates is not None for partition in partitions)


def find_carried_blobs(manifest: Manifest) -> frozenset[str]:
    """The blobs that candidates name and no step runs with."""
    partitions = [step.partition for program in manifest.programs for step in walk_steps(program)]
    carried = [partition.candidates for partition in partitions if partition is not None]
    named = frozenset(blob for record in carried if record is not None for blob in _list_blobs(record))
    return named - find_step_blobs(manifest)


def find_step_blobs(manifest: Manifest) -> frozenset[str]:
    """The payloads and the device code that steps run with."""
    steps = [step for program in manifest.programs for step in walk_steps(program)]
    built = [record for step in steps for record in (step.kernel, step.partition) if record is not None]
    return frozenset(blob for record in built for blob in _list_blobs(record))


def _list_blobs(record: CarriedRecord | KernelRecord | PartitionRecord) -> Iterable[str]:
    return (record.payload, *record.code.values())
