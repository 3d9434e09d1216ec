"""Times of single layers: the profiler interface, one that collects, and the slower loop that feeds it."""

from __future__ import annotations

import time
from statistics import median

from dovetail.runtime.runner import ProgramRunner
from dovetail.runtime.steps import make_segments, run_segments

__all__ = ["IProfiler", "LayerTimes", "Profiler", "run_profiled"]


class IProfiler:
    """Told the time of every layer after each run."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Take the time of one layer."""
        raise NotImplementedError(f"{type(self).__name__} must implement report_layer_time(layer_name, ms)")


class Profiler(IProfiler):
    """Prints each time."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Print one line."""
        print(f"{layer_name}: {ms:.4f}ms")


class LayerTimes(IProfiler):
    """Collects times by layer, in the order layers ran.

    >>> times = LayerTimes(); times.report_layer_time("a", 1.0); times.report_layer_time("a", 3.0)
    >>> times.rows()[0]["averageMs"]
    2.0
    """

    def __init__(self) -> None:
        self.times_ms: dict[str, list[float]] = {}

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Keep one time."""
        self.times_ms.setdefault(layer_name, []).append(ms)

    def rows(self) -> list[dict[str, float | str]]:
        """One row a layer, with the field names that profile exports commonly use."""
        total = sum(sum(times) for times in self.times_ms.values()) or 1.0
        return [
            {
                "name": name,
                "timeMs": sum(times),
                "averageMs": sum(times) / len(times),
                "medianMs": median(times),
                "percentage": 100.0 * sum(times) / total,
            }
            for name, times in self.times_ms.items()
        ]


def run_profiled(runner: ProgramRunner, profiler: IProfiler) -> None:
    """One run with a clock around every step; reports come after the run so that they do not disturb it."""
    if runner.is_dirty:
        runner.announce_shapes()
    frame, clock, times = runner.frame, time.perf_counter_ns, []
    for segment in make_segments(runner.steps):
        for step in segment[1]:
            start = clock()
            run_segments([(segment[0], [step])], frame)
            times.append(clock() - start)
    for record, elapsed_ns in zip(runner.program.steps, times, strict=True):
        profiler.report_layer_time(record.name, elapsed_ns / 1e6)
