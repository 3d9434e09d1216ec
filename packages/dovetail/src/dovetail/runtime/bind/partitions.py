"""The compiled partitions of an engine, each loaded once for all programs that use it, from a plan file or memory.

Templates and steps hold a ``PartitionLease``, never the partition alone: a partition with weights of before is closed
when the last of them is gone, which may be in the middle of a run of another thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Protocol

from dovetail.errors import PlanCorruptError
from dovetail.finalizers import finalize
from dovetail.plan.manifest import PartitionRecord, StepRecord, ValueRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider, StoredPartition, TensorSpec
from dovetail.runtime.closing import close_all
from dovetail.runtime.steps.base import Array
from dovetail.runtime.steps.partition import PartitionLease

__all__ = ["BlobPlaces", "Partitions", "find_border", "make_stored"]

LoadBlob = Callable[[str], Array]
Border = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]


class BlobPlaces(Protocol):
    """Where the blobs of a plan lie."""

    @property
    def path(self) -> str | None:
        """The plan file; None for a plan in memory."""
        ...

    @property
    def missing(self) -> Set[str]:
        """Blobs that have no contents yet."""
        ...

    def find_places(self, blobs: Mapping[str, str]) -> Mapping[str, int]:
        """For each key whose blob is in the file as it is, where it begins."""
        ...


class Partitions:
    """Loads partitions and keeps them for all programs of an engine.

    Args:
        file: Where their weights lie; without one they are shared with the arrays in memory.
    """

    def __init__(self, file: BlobPlaces | None = None) -> None:
        self._file = file
        self._loaded: dict[Hashable, PartitionLease] = {}
        self._forgotten: list[weakref.finalize[[], PartitionLease]] = []
        """How to close those with weights of before, which contexts may still run."""
        self.notes: list[str] = []
        """What whoever loads the plan should know."""

    def forget(self) -> None:
        """Load everything anew when it is asked for next, because weights changed; what runs now goes on."""
        alive = [closer for closer in self._forgotten if closer.alive]
        self._forgotten = alive + [finalize(lease, lease.close) for lease in self._loaded.values()]
        self._loaded.clear()

    def close(self) -> None:
        """Have every partition let go of what it took; nobody runs any of them any more."""
        closers: list[Callable[[], object]] = [lease.close for lease in self._loaded.values()]
        closers += self._forgotten
        self._loaded.clear()
        self._forgotten.clear()
        close_all(closers)

    def refit(self, blobs: Mapping[str, Array]) -> None:
        """Give new weights, by blob, to every partition that is loaded and reads them."""
        for lease in self._loaded.values():
            for name, blob in lease.weights.items():
                if blob in blobs:
                    call(lease.provider, f"refit of weight '{name}'", lease.partition.refit, name, blobs[blob])

    def load(
        self,
        step: StepRecord,
        provider: Provider,
        load_blob: LoadBlob,
        *,
        values: Sequence[ValueRecord],
        is_whole: bool,
    ) -> PartitionLease | None:
        """Have the provider make a partition ready; one that misses weights is None until they come."""
        record = step.partition
        if record is None or not self._is_complete(record):
            return None
        border = find_border(step, values)
        names = (tuple(record.inputs), tuple(record.outputs), tuple(record.weights.items()))
        key = (provider.id, record.payload, tuple(record.code.items()), names, border)
        if key not in self._loaded:
            stored = self._store(step, record, load_blob, border, is_whole=is_whole)
            loaded = call(provider.id, f"load_partition of step '{step.name}'", provider.load_partition, stored)
            self._check_file(stored)
            if loaded.note and loaded.note not in self.notes:
                self.notes.append(loaded.note)
            self._loaded[key] = PartitionLease(loaded, provider.id, record.weights)
        return self._loaded[key]

    def _is_complete(self, record: PartitionRecord) -> bool:
        return self._file is None or self._file.missing.isdisjoint(record.weights.values())

    def _store(
        self, step: StepRecord, record: PartitionRecord, load_blob: LoadBlob, border: Border, *, is_whole: bool
    ) -> StoredPartition:
        return replace(
            make_stored(step, record, load_blob, border),
            places={} if self._file is None else self._file.find_places(record.weights),
            path=None if self._file is None else self._file.path,
            is_whole=is_whole,
        )

    def _check_file(self, stored: StoredPartition) -> None:
        """The digests were checked in the file that was opened; the provider must have read no other."""
        if stored.path is not None and self._file is not None and self._file.path != stored.path:
            raise PlanCorruptError("the file was replaced while it was loaded", where=stored.path, fix="load it again")


def make_stored(step: StepRecord, record: PartitionRecord, load_blob: LoadBlob, border: Border) -> StoredPartition:
    """A partition as its provider gets it, from blobs in memory."""
    return StoredPartition(
        name=step.name,
        payload=load_blob(record.payload).data,
        version=record.version,
        inputs=record.inputs,
        outputs=record.outputs,
        weights={name: load_blob(blob) for name, blob in record.weights.items()},
        places={},
        input_specs=border[0],
        output_specs=border[1],
        code={name: load_blob(blob).data for name, blob in record.code.items()},
    )


def find_border(step: StepRecord, values: Sequence[ValueRecord]) -> Border:
    """What a step brings to its partition and takes from it."""
    return _describe(values, step.inputs), _describe(values, step.outputs)


def _describe(values: Sequence[ValueRecord], ports: Sequence[int]) -> tuple[TensorSpec, ...]:
    return tuple(_describe_value(values[index]) for index in ports)


def _describe_value(value: ValueRecord) -> TensorSpec:
    # Results that leave the engine need no memory, and of those some models declare sizes that they do not have.
    dims = value.dims if value.kind in ("input", "planned") else None
    return TensorSpec(dtype=value.dtype, dims=dims, type=value.type)
