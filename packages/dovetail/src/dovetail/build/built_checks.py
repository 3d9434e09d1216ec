"""Checks of what providers give to a plan: texts, bytes and reports that every reader takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail.errors import ProviderError
from dovetail.plan.limits import MAX_NAME_CHARS
from dovetail.plan.manifest import NodeReportRecord, ReportRecord
from dovetail.provider.interfaces import BuildReport, NodeReport, Provider

__all__ = ["StepOwner", "check_bytes", "check_text", "check_workspace", "report_record"]

_MAX_COUNT: Final = 2**63
_MAX_PORTS: Final = 2**31


@dataclass(frozen=True, kw_only=True)
class StepOwner:
    """Who built a step, for names of blobs and for errors."""

    provider: Provider
    name: str

    @property
    def where(self) -> str:
        """How errors name it."""
        return f"provider '{self.provider.id}', step '{self.name[:200]}'"


def report_record(owner: StepOwner, report: BuildReport) -> ReportRecord | None:
    """What a plan stores of a report; None where it says nothing."""
    record = ReportRecord(
        nodes=[_node_record(owner, node, number) for number, node in enumerate(report.nodes)],
        refusals={
            check_text(layer, "a layer of its report", owner): check_text(reason, "a refusal", owner)
            for layer, reason in report.refusals.items()
        },
    )
    return None if record == ReportRecord() else record


def _node_record(owner: StepOwner, node: NodeReport, number: int) -> NodeReportRecord:
    name, op, made_by, tactic, dtype = (
        check_text(text, "its report", owner) for text in (node.name, node.op, node.made_by, node.tactic, node.dtype)
    )
    return NodeReportRecord(
        name=name,
        op=op,
        layers=_check_texts(node.layers, owner),
        made_by=made_by,
        tactic=tactic,
        flops=_check_count(node.flops, owner),
        bytes=_check_count(node.bytes, owner),
        time_us=_check_time(node.time_us, owner),
        inputs=_check_numbers(node.inputs, number, "a node that does not come before it", owner),
        reads=_check_numbers(node.reads, _MAX_PORTS, "an input that cannot be", owner),
        writes=_check_numbers(node.writes, _MAX_PORTS, "an output that cannot be", owner),
        parent=_check_numbers([node.parent], number, "a parent that does not come before it", owner, least=-1)[0],
        body=_check_numbers([node.body], _MAX_PORTS, "a body that cannot be", owner)[0],
        dtype=dtype,
        shape=None if node.shape is None else [-1 if size is None else int(size) for size in node.shape],
    )


def _check_numbers(numbers: Sequence[int], end: int, what: str, owner: StepOwner, *, least: int = 0) -> list[int]:
    wrong = [number for number in numbers if not least <= number < end]
    if wrong:
        text = f"a node of its report names {what}"
        raise ProviderError(text, where=owner.where, expected=f"numbers below {end}", got=wrong[0])
    return list(numbers)


def _check_texts(texts: Sequence[str], owner: StepOwner) -> list[str]:
    return [check_text(text, "a layer of its report", owner) for text in texts]


def check_text(text: Any, what: str, owner: StepOwner) -> str:
    """A text that a plan can store."""
    if not isinstance(text, str) or "\0" in text or len(text) > MAX_NAME_CHARS:
        raise ProviderError(
            f"{what} is no text that a plan can store",
            where=owner.where,
            expected=f"at most {MAX_NAME_CHARS} characters, none of them NUL",
            got=ascii(text)[:60],
        )
    return text


def check_bytes(data: Any, what: str, owner: StepOwner) -> bytes:
    """Bytes as a plan stores them."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ProviderError(f"{what} is no bytes", where=owner.where, got=type(data).__name__)
    return bytes(data)


def _check_count(count: Any, owner: StepOwner) -> int | None:
    if count is not None and not 0 <= int(count) < _MAX_COUNT:
        raise ProviderError("a count of its report is out of range", where=owner.where, got=count)
    return None if count is None else int(count)


def _check_time(time_us: Any, owner: StepOwner) -> float | None:
    if time_us is not None and not (math.isfinite(time_us) and time_us >= 0):
        raise ProviderError("a time of its report is out of range", where=owner.where, got=time_us)
    return None if time_us is None else float(time_us)


def check_workspace(owner: StepOwner, size_bytes: int, limit: int) -> int:
    """The scratch memory that a step asks for, which must be within the limit of the build."""
    if not 0 <= size_bytes <= limit:
        raise ProviderError(
            "a step needs more workspace than the build allows",
            where=owner.where,
            expected=f"0 to {limit} bytes",
            got=size_bytes,
            fix="raise the limit: config.set_memory_pool_limit(MemoryPoolType.WORKSPACE, ...) (--workspace)",
        )
    return size_bytes
