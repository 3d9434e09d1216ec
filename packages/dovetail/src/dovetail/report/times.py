"""Times that were measured, joined with the nodes of a report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail.decoding import decode
from dovetail.errors import InputError
from dovetail.files import open_regular
from dovetail.plan.manifest import Manifest
from dovetail.report.nodes import ReportNode

__all__ = ["BenchTimes", "load_bench", "read_bench"]

_MAX_BYTES: Final = 256 << 20


class _InnerRow(msgspec.Struct, frozen=True):
    name: str
    medianMs: float  # noqa: N815 - as trtexec spells it
    op: str = ""
    reported: list[str] = []


class _StepRow(msgspec.Struct, frozen=True):
    name: str = ""
    medianMs: float = 0.0  # noqa: N815
    nodes: list[_InnerRow] = []


class _Answer(msgspec.Struct, frozen=True):
    """What is used of an answer of ``dovetail bench --profile --json``."""

    engine: str
    num_steps: int
    inputs: dict[str, list[int]]
    iterations: int
    latency_ms: dict[str, float]
    profile: list[_StepRow]
    context: dict[str, Any] = {}
    peaks: dict[str, dict[str, float]] = {}


def load_bench(path: str | os.PathLike[str], *, where: str) -> dict[str, Any]:
    """An answer of ``dovetail bench --profile --json`` from a file.

    Raises:
        InputError: It is none.
    """
    with open_regular(path, follow=True) as file:
        text = file.read(_MAX_BYTES + 1)
    if len(text) > _MAX_BYTES:
        raise _no_bench(f"more than {_MAX_BYTES} bytes", where)
    answer: dict[str, Any] = decode(msgspec.json.Decoder(dict[str, Any]), text, lambda got: _no_bench(got, where))
    return answer


def _no_bench(got: str, where: str) -> InputError:
    return InputError(
        "this is no answer of a benchmark",
        where=where,
        expected="what 'dovetail bench PLAN --profile --json' writes",
        got=got[:200],
        fix="write it anew, with --profile",
    )


def read_bench(document: Mapping[str, Any], manifest: Manifest) -> BenchTimes:
    """The times of an engine from the answer of a benchmark of it.

    Raises:
        InputError: The document is no such answer, or is about another engine.
    """
    where = f"times for '{manifest.name[:200]}'"
    try:
        answer = msgspec.convert(dict(document), _Answer)
    except msgspec.ValidationError as error:
        raise _no_bench(str(error), where) from None
    if answer.num_steps not in {len(program.steps) for program in manifest.programs}:
        raise InputError(
            "the times are those of another engine",
            where=where,
            expected=f"{len(manifest.programs[0].steps)} steps",
            got=f"{answer.num_steps} steps of '{answer.engine[:200]}'",
            fix="measure this plan: dovetail bench PLAN --profile --json",
        )
    return BenchTimes(answer, _find_profile(answer, manifest))


def _find_profile(answer: _Answer, manifest: Manifest) -> int:
    """The first profile whose bounds hold the shapes that were measured."""
    for number, profile in enumerate(manifest.profiles):
        if all(_is_within(answer.inputs.get(name), low, high) for name, (low, _, high) in profile.shapes.items()):
            return number
    return 0


def _is_within(shape: Sequence[int] | None, low: Sequence[int], high: Sequence[int]) -> bool:
    if shape is None or len(shape) != len(low):
        return False
    return all(least <= size <= most for size, least, most in zip(shape, low, high, strict=True))


class BenchTimes:
    """The times of one benchmark."""

    def __init__(self, answer: _Answer, profile: int) -> None:
        self._answer = answer
        self.profile = profile

    @property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """The shapes of inputs that were measured."""
        return self._answer.inputs

    @property
    def summary(self) -> dict[str, Any]:
        """What is shown of the whole."""
        answer = self._answer
        return {
            "profile": self.profile,
            "inputs": answer.inputs,
            "iterations": answer.iterations,
            "latency_ms": answer.latency_ms,
            "peaks": answer.peaks,
        }

    def add_to(self, nodes: Sequence[ReportNode]) -> None:
        """Give nodes the times that were measured, instead of those that the tuner saw."""
        steps: dict[str, list[int]] = {}
        for number, node in enumerate(nodes):
            steps.setdefault(node.step_name, []).append(number)
        for row in self._answer.profile:
            members = steps.get(row.name, [])
            if row.nodes and any(nodes[number].kind == "part" for number in members):
                _add_parts(row.nodes, nodes, members)
            elif len(members) == 1:
                _set_time(nodes[members[0]], row.medianMs)


def _set_time(node: ReportNode, median_ms: float) -> None:
    is_measured = node.time_source == "bench"
    node.time_us = median_ms * 1e3 + (node.time_us or 0.0 if is_measured else 0.0)
    node.time_source = "bench"


def _add_parts(rows: Sequence[_InnerRow], nodes: Sequence[ReportNode], members: Sequence[int]) -> None:
    """Times of parts; what runs as one goes to the last part of it, and the others say where they are."""
    by_name = {nodes[number].name: number for number in members}
    for row in rows:
        found = [by_name[name] for name in (row.reported or [row.name]) if name in by_name]
        if not found:
            continue
        last = max(found)
        _set_time(nodes[last], row.medianMs)
        nodes[last].runs_as = row.op if row.op != nodes[last].op or len(found) > 1 else ""
        for number in found:
            if number != last:
                nodes[number].within = last
