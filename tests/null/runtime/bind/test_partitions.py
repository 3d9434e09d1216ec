"""Partitions are loaded once for the programs that share them, and anew wherever anything about them differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from dovetail.errors import PlanCorruptError
from dovetail.plan.manifest import PartitionRecord, StepRecord, ValueRecord
from dovetail.provider.devices import Device
from dovetail.provider.interfaces import (
    BindContext,
    BoundPartition,
    LoadedPartition,
    Provider,
    StoredPartition,
    TensorSpec,
)
from dovetail.provider.kernels import KernelRegistry
from dovetail.runtime.bind.partitions import Partitions
from dovetail.runtime.steps.partition import PartitionLease
from tests.support.dims import read_dims

VALUES = [
    ValueRecord(name="x", dtype="float32", kind="input", dims=read_dims(["n", 3])),
    ValueRecord(name="t", dtype="float32", kind="planned", dims=read_dims(["n", ["sum", "n", 1], 4])),
    ValueRecord(name="y", dtype="int64", kind="output", dims=read_dims(["n", 3])),
    ValueRecord(name="s", dtype="float32", kind="object", type="seq(tensor(float))"),
    ValueRecord(name="d", dtype="bfloat16", kind="dynamic"),
]
RECORD = PartitionRecord(payload="p", version="1", inputs=["x"], outputs=["t"], weights={"a": "w", "b": "v"})
STEP = StepRecord(
    name="part", kind="partition", provider="recorder", op="Partition", inputs=[0], outputs=[1], partition=RECORD
)


class _Loaded(LoadedPartition):
    def __init__(self, closed: list[_Loaded]) -> None:
        self._closed = closed

    def bind(self, context: BindContext) -> BoundPartition:
        raise AssertionError("nothing is run here")

    def close(self) -> None:
        self._closed.append(self)


class _Recorder(Provider):
    """Keeps what it is asked to load."""

    name = "recorder"
    device = Device(name="recorder", kind="cpu", fingerprint="recorder")

    def __init__(self, when_loading: Callable[[], object] = lambda: None) -> None:
        self.stored: list[StoredPartition] = []
        self.closed: list[_Loaded] = []
        self._when_loading = when_loading

    @property
    def kernels(self) -> KernelRegistry:
        return KernelRegistry(self.name)

    def load_partition(self, stored: StoredPartition) -> LoadedPartition:
        self.stored.append(stored)
        self._when_loading()
        return _Loaded(self.closed)


class _File:
    """A plan file that can be replaced."""

    def __init__(self) -> None:
        self.path: str | None = "a.plan"
        self.missing: set[str] = set()

    def find_places(self, blobs: Mapping[str, str]) -> Mapping[str, int]:
        return dict.fromkeys(blobs, 64)


def _load_blob(name: str) -> Any:
    return np.frombuffer(name.encode(), np.uint8)


def _load(partitions: Partitions, provider: Provider, step: StepRecord = STEP) -> PartitionLease | None:
    return partitions.load(step, provider, _load_blob, values=VALUES, is_whole=False)


def test_what_is_the_same_is_loaded_once() -> None:
    partitions, provider = Partitions(), _Recorder()
    assert _load(partitions, provider) is _load(partitions, provider)
    assert len(provider.stored) == 1
    partitions.forget()
    _load(partitions, provider)
    assert len(provider.stored) == 2


def test_what_has_weights_of_before_is_closed_with_its_last_user() -> None:
    partitions, provider = Partitions(), _Recorder()
    held = [_load(partitions, provider)]
    for number in range(5):
        partitions.forget()
        _load(partitions, provider)
        assert len(provider.closed) == number  # all but the one that is held and the one of now
    held.clear()
    assert len(provider.closed) == 5


def test_what_is_still_held_is_closed_with_the_engine_and_once() -> None:
    partitions, provider = Partitions(), _Recorder()
    held = [_load(partitions, provider)]
    partitions.forget()
    held.append(_load(partitions, provider))
    partitions.close()
    held.clear()
    assert len(provider.closed) == len(set(map(id, provider.closed))) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": "q"},
        {"weights": {"b": "w", "a": "v"}},
        {"weights": {"a": "w"}},
        {"inputs": ["z"]},
        {"outputs": ["z"]},
    ],
    ids=str,
)
def test_other_names_and_weights_are_another_partition(changes: dict[str, Any]) -> None:
    partitions, provider = Partitions(), _Recorder()
    first = _load(partitions, provider)
    other = msgspec.structs.replace(STEP, partition=msgspec.structs.replace(RECORD, **changes))
    assert _load(partitions, provider, other) is not first


@pytest.mark.parametrize("changes", [{"inputs": [2]}, {"inputs": [3]}, {"outputs": [4]}], ids=str)
def test_values_of_another_type_are_another_partition(changes: dict[str, Any]) -> None:
    partitions, provider = Partitions(), _Recorder()
    first = _load(partitions, provider)
    assert _load(partitions, provider, msgspec.structs.replace(STEP, **changes)) is not first


def test_the_provider_is_told_types_and_the_sizes_that_are_fixed() -> None:
    provider = _Recorder()
    _load(Partitions(), provider, msgspec.structs.replace(STEP, inputs=[0, 3], outputs=[1, 2, 4]))
    (stored,) = provider.stored
    assert list(stored.input_specs) == [
        TensorSpec(dtype="float32", dims=read_dims(["n", 3])),
        TensorSpec(dtype="float32", type="seq(tensor(float))"),
    ]
    assert list(stored.output_specs) == [
        TensorSpec(dtype="float32", dims=read_dims(["n", ["sum", "n", 1], 4])),
        TensorSpec(dtype="int64"),
        TensorSpec(dtype="bfloat16"),
    ]


def test_a_file_that_is_replaced_while_the_provider_reads_it_is_refused() -> None:
    file = _File()
    provider = _Recorder(when_loading=lambda: setattr(file, "path", None))
    with pytest.raises(PlanCorruptError, match="replaced while it was loaded"):
        _load(Partitions(file), provider)
    assert provider.stored[0].path == "a.plan"


def test_a_file_that_was_replaced_before_is_not_named() -> None:
    file, provider = _File(), _Recorder()
    file.path = None
    assert _load(Partitions(file), provider) is not None
    assert provider.stored[0].path is None


def test_a_partition_that_misses_weights_waits_for_them() -> None:
    file, provider = _File(), _Recorder()
    file.missing = {"w"}
    partitions = Partitions(file)
    assert _load(partitions, provider) is None
    file.missing = set()
    assert _load(partitions, provider) is not None
