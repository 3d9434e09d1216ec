"""What happened to requests, counted where it happens: one writer each, and no lock.

A reader may see the numbers of a run that is being counted half added; the next look has them all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from dovetail_serve.models.pending import PendingRequest
from dovetail_serve.protocol.documents import BatchStatistics, Duration, ModelStatistics

__all__ = ["LoopCounters", "RunCounters", "gather_statistics"]


class RunCounters:
    """What one runner has done."""

    __slots__ = (
        "batches",
        "executions",
        "failed",
        "failed_ns",
        "infer_ns",
        "input_ns",
        "output_ns",
        "queue_ns",
        "samples",
        "succeeded",
        "succeeded_ns",
    )

    def __init__(self) -> None:
        self.succeeded = self.succeeded_ns = self.failed = self.failed_ns = 0
        self.queue_ns = self.input_ns = self.infer_ns = self.output_ns = 0
        self.samples = self.executions = 0
        self.batches: dict[int, list[int]] = {}
        """Samples of a run -> runs, and the time for inputs, the run and outputs."""

    def add_run(self, batch: Sequence[PendingRequest], samples: int, times_ns: tuple[int, int, int, int]) -> None:
        """Count a run that succeeded: when it began, had its inputs, had run, and had given its outputs."""
        began, ready, ran, done = times_ns
        count = len(batch)
        self.executions += 1
        self.samples += samples
        self.succeeded += count
        self.input_ns += (ready - began) * count
        self.infer_ns += (ran - ready) * count
        self.output_ns += (done - ran) * count
        for pending in batch:
            self.queue_ns += began - pending.arrived_ns
            self.succeeded_ns += done - pending.arrived_ns
        sums = self.batches.get(samples)
        if sums is None:
            sums = self.batches[samples] = [0, 0, 0, 0]
        sums[0] += 1
        sums[1] += ready - began
        sums[2] += ran - ready
        sums[3] += done - ran

    def add_failure(self, pending: PendingRequest) -> None:
        """Count a request whose run failed."""
        self.failed += 1
        self.failed_ns += time.perf_counter_ns() - pending.arrived_ns


class LoopCounters:
    """What the event loop has seen of the requests of one model."""

    __slots__ = ("cancelled", "last_ns", "refused", "refused_ns", "rejected", "timed_out")

    def __init__(self) -> None:
        self.cancelled = self.rejected = self.timed_out = 0
        self.refused = self.refused_ns = 0
        """Requests that failed without having run."""
        self.last_ns = 0
        """When the last request came; 0 for never."""

    def add_refusal(self, arrived_ns: int) -> None:
        """Count a request that failed without having run."""
        self.refused += 1
        self.refused_ns += time.perf_counter_ns() - arrived_ns


def gather_statistics(
    name: str, version: str, loop: LoopCounters, runners: Iterable[RunCounters], *, waiting: int, batching: str
) -> ModelStatistics:
    """All counters of one version, as clients see them."""
    counters = list(runners)

    def add(field: str) -> int:
        return sum(getattr(each, field) for each in counters)

    succeeded = add("succeeded")
    return ModelStatistics(
        name=name,
        version=version,
        last_inference_ms=_tell_wall_clock(loop.last_ns),
        inference_count=add("samples"),
        execution_count=add("executions"),
        success=Duration(succeeded, add("succeeded_ns")),
        fail=Duration(add("failed") + loop.refused, add("failed_ns") + loop.refused_ns),
        queue=Duration(succeeded, add("queue_ns")),
        compute_input=Duration(succeeded, add("input_ns")),
        compute_infer=Duration(succeeded, add("infer_ns")),
        compute_output=Duration(succeeded, add("output_ns")),
        cancelled=loop.cancelled,
        rejected=loop.rejected,
        timed_out=loop.timed_out,
        queue_size=waiting,
        batches=_gather_batches(counters),
        batching=batching,
    )


def _gather_batches(counters: Iterable[RunCounters]) -> tuple[BatchStatistics, ...]:
    sums: dict[int, list[int]] = {}
    for each in counters:
        for size, numbers in list(each.batches.items()):
            sums[size] = [a + b for a, b in zip(sums.get(size, [0, 0, 0, 0]), numbers, strict=True)]
    return tuple(
        BatchStatistics(size, *(Duration(numbers[0], ns) for ns in numbers[1:]))
        for size, numbers in sorted(sums.items())
    )


def _tell_wall_clock(moment_ns: int) -> int:
    """Milliseconds since 1970 for a moment of the performance counter."""
    if not moment_ns:
        return 0
    return (time.time_ns() - (time.perf_counter_ns() - moment_ns)) // 1_000_000
