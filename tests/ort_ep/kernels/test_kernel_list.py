"""The list of kernels: what goes into ONNX Runtime's registry is what its schemas and the back end's kernels say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dovetail.network.onnx_schema import find_schema
from dovetail.provider.interfaces import Provider
from dovetail.provider.kernels import KernelRegistry
from dovetail.provider.loader import get_provider
from dovetail.testing import host_device
from onnxruntime_ep_dovetail.graph.read import NHWC_DOMAIN
from onnxruntime_ep_dovetail.kernels.table import CONTROL_FLOW, KernelEntry, list_kernels

FLOAT, INT64, HALF = 1, 7, 10


@pytest.fixture(scope="module")
def entries() -> list[KernelEntry]:
    return list_kernels(get_provider("cpu"))


def _of(entries: Sequence[KernelEntry], op: str, domain: str = "") -> dict[int, KernelEntry]:
    return {entry.since: entry for entry in entries if (entry.op, entry.domain) == (op, domain)}


def _schema(entry: KernelEntry) -> Any:
    return find_schema(entry.op, "" if entry.domain == NHWC_DOMAIN else entry.domain, entry.since)


class _Provider(Provider):
    """A host provider of a few made-up kernels."""

    name = "few"

    def __init__(self) -> None:
        self._kernels = KernelRegistry("few")

    @property
    def kernels(self) -> KernelRegistry:
        return self._kernels

    def add(self, op: str, types: Mapping[str, Sequence[str]], **ranges: Any) -> None:
        self._kernels.register(op, types=types, **ranges)(lambda *arrays: arrays[0])


def test_every_version_is_one_at_which_the_schema_changed(entries: list[KernelEntry]) -> None:
    assert len(entries) > 500
    for entry in entries:
        assert _schema(entry).since_version == entry.since, entry


def test_constraints_are_those_of_the_schema(entries: list[KernelEntry]) -> None:
    for entry in entries:
        names = {constraint.type_param_str for constraint in _schema(entry).type_constraints}
        assert entry.types.keys() == names, entry
        assert all(entry.types.values()), entry


def test_no_definition_stands_twice(entries: list[KernelEntry]) -> None:
    keys = [(entry.op, entry.domain, entry.since) for entry in entries]
    assert len(keys) == len(set(keys))


def test_a_range_becomes_one_definition_a_version(entries: list[KernelEntry]) -> None:
    found = _of(entries, "Relu")
    assert sorted(found) == [6, 13, 14]
    assert INT64 in found[14].types["T"]
    assert INT64 not in found[13].types["T"], "the schema of 13 has no integers, whatever the kernel takes"


def test_a_kernel_ends_where_its_range_ends() -> None:
    provider = _Provider()
    provider.add("Relu", {"T": ("float32", "float16")}, since=6, until=13)
    found = _of(list_kernels(provider), "Relu")
    assert {since: entry.types["T"] for since, entry in found.items()} == {6: (FLOAT, HALF), 13: (FLOAT, HALF)}


def test_what_is_no_memory_has_no_definition(entries: list[KernelEntry]) -> None:
    operators = {entry.op for entry in entries}
    assert operators.isdisjoint({"SequenceInsert", "StringConcat", "ZipMap", "MemcpyFromHost", "MemcpyToHost"})


def test_an_operator_without_a_schema_has_no_definition() -> None:
    provider = _Provider()
    provider.add("Swirl", {}, since=1, domain="acme")
    assert {entry.op for entry in list_kernels(provider)} == set(CONTROL_FLOW)


def test_versions_that_onnxruntime_lacks_are_left_out() -> None:
    entries = list_kernels(get_provider("cpu"), lambda op, _domain, since: op != "Relu" or since < 14)
    assert sorted(_of(entries, "Relu")) == [6, 13]


def test_control_flow_belongs_to_every_back_end() -> None:
    found = list_kernels(_Provider())
    assert {entry.op for entry in found} == {"If", "Loop", "Scan"}
    assert min(_of(found, "Scan")) == 9, "the Scan of 8 ran over batches"
    assert all(FLOAT in entry.types["V"] for entry in found)


def test_rewritten_operators_are_listed_in_their_domain(entries: list[KernelEntry]) -> None:
    assert {entry.op for entry in entries if entry.domain == NHWC_DOMAIN} >= {"Conv", "MaxPool", "GlobalAveragePool"}


def test_a_device_says_which_inputs_the_host_reads() -> None:
    with host_device(name="listed") as device:
        found = list_kernels(device)
    assert _of(found, "Reshape")[14].host_inputs == {1}
    assert _of(found, "Loop")[21].host_inputs == {0, 1}
    assert not _of(found, "Relu")[14].host_inputs
    assert not any(entry.host_inputs for entry in list_kernels(get_provider("cpu")))
