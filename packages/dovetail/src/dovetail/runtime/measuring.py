"""How long something takes: runs until enough was seen, and the numbers that sum them up."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

from dovetail.errors import UsageError

__all__ = ["PERCENTILES", "Pace", "Span", "export_times", "measure", "percentile", "summarize"]

Span = tuple[int, int]
"""Start and end in nanoseconds, on the clock of ``time.perf_counter_ns``."""

PERCENTILES: Final = (50, 90, 95, 99, 99.9)
_MIN_RUNS: Final = 10


@dataclass(frozen=True, kw_only=True)
class Pace:
    """When to stop: after a time, after a number of runs, or at whichever of both comes first."""

    warmup_s: float = 0.2
    duration_s: float | None = 3.0
    """With no number of runs, there are at least ten even if they take longer."""
    iterations: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            UsageError: Nothing would be measured, or it would not end.
        """
        if not 0.0 <= self.warmup_s < math.inf:
            raise UsageError("it is no time to warm up", where="warmup_s", expected="seconds", got=self.warmup_s)
        if self.duration_s is not None and not 0.0 < self.duration_s < math.inf:
            raise UsageError(
                "it is no time to measure", where="duration_s", expected="seconds above 0", got=self.duration_s
            )
        if self.iterations is not None and self.iterations < 1:
            raise UsageError("nothing would run", where="iterations", expected="1 or more", got=self.iterations)

    def is_over(self, count: int, now_ns: int, start_ns: int) -> bool:
        """Whether that many runs since a time are enough."""
        if self.iterations is not None and count >= self.iterations:
            return True
        if self.duration_s is None or (self.iterations is None and count < _MIN_RUNS):
            return False
        return count > 0 and now_ns - start_ns >= self.duration_s * 1e9


def measure(function: Callable[[], object], pace: Pace, *, on_warm: Callable[[], object] | None = None) -> list[Span]:
    """Run something until the pace says stop; warm-up runs are not in the result.

    Args:
        function: What to run.
        pace: When to stop.
        on_warm: Called between the warm-up and the first run that counts.
    """
    clock = time.perf_counter_ns
    warm_until = clock() + int(pace.warmup_s * 1e9)
    function()
    while clock() < warm_until:
        function()
    if on_warm is not None:
        on_warm()
    spans: list[Span] = []
    with _without_collection():
        begin = clock()
        while not pace.is_over(len(spans), clock(), begin):
            start = clock()
            function()
            spans.append((start, clock()))
    return spans


@contextmanager
def _without_collection() -> Iterator[None]:
    """The collector of this process is not what is measured."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest time that this share of the runs does not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 75)
    3.0
    """
    # 99.9 % of 1000 is 999, not the 999.0000000000001 that floats make of it.
    return ordered[max(math.ceil(round(len(ordered) * percent / 100, 9)) - 1, 0)]


def summarize(spans: Sequence[Span]) -> dict[str, Any]:
    """Latencies in milliseconds and runs a second.

    >>> summarize([(0, 1_000_000), (1_000_000, 4_000_000)])["latency_ms"]["max"]
    3.0
    """
    times_ms = sorted((end - start) / 1e6 for start, end in spans)
    wall_s = (spans[-1][1] - spans[0][0]) / 1e9
    return {
        "iterations": len(times_ms),
        "wall_s": wall_s,
        "throughput_qps": len(times_ms) / wall_s if wall_s else None,
        "latency_ms": {
            "min": times_ms[0],
            "max": times_ms[-1],
            "mean": fmean(times_ms),
            "median": median(times_ms),
            **{f"p{p:g}": percentile(times_ms, p) for p in PERCENTILES},
        },
    }


def export_times(spans: Sequence[Span]) -> list[dict[str, float]]:
    """Each run with the field names that ``trtexec`` exports; on a host nothing is copied to or from a device."""
    origin = spans[0][0]
    return [_export_run((start - origin) / 1e6, (end - origin) / 1e6) for start, end in spans]


def _export_run(start_ms: float, end_ms: float) -> dict[str, float]:
    return {
        "startEnqMs": start_ms,
        "endEnqMs": end_ms,
        "startH2dMs": start_ms,
        "endH2dMs": start_ms,
        "startComputeMs": start_ms,
        "endComputeMs": end_ms,
        "startD2hMs": end_ms,
        "endD2hMs": end_ms,
        "h2dMs": 0.0,
        "computeMs": end_ms - start_ms,
        "d2hMs": 0.0,
        "latencyMs": end_ms - start_ms,
    }
