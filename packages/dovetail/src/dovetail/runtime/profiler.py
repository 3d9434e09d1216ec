"""Times of single layers: the profiler interface, one that collects, and the slower loop that feeds it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.provider.calls import call
from dovetail.provider.devices import ProfileEvent
from dovetail.provider.interfaces import Provider
from dovetail.runtime.runner import ProgramRunner
from dovetail.runtime.steps import Frame, Segments, make_segments, run_segments

__all__ = ["IProfiler", "LayerTimes", "Profiler", "run_profiled"]


class IProfiler:
    """Told the time of every layer after each run."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Take the time of one layer."""
        raise NotImplementedError(f"{type(self).__name__} must implement report_layer_time(layer_name, ms)")

    def report_layer_span(self, layer_name: str, start_ns: int, end_ns: int) -> None:
        """Take when a layer ran, on the clock of ``time.perf_counter_ns``; nothing is done with it by default."""
        return

    def report_device_event(self, provider: str, event: ProfileEvent) -> None:
        """Take something that a device did; nothing is done with it by default."""
        return


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
        self.device_times_ms: dict[str, list[float]] = {}
        """What devices did, under the provider's name and theirs."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Keep one time."""
        self.times_ms.setdefault(layer_name, []).append(ms)

    def report_device_event(self, provider: str, event: ProfileEvent) -> None:
        """Keep what a device did."""
        self.device_times_ms.setdefault(f"{provider}: {event.name}", []).append(event.duration_us / 1e3)

    def clear(self) -> None:
        """Forget all times."""
        self.times_ms.clear()
        self.device_times_ms.clear()

    def rows(self) -> list[dict[str, float | str]]:
        """One row a layer, with the field names that profile exports commonly use."""
        return _rows(self.times_ms)

    def device_rows(self) -> list[dict[str, float | str]]:
        """The same for what devices did; a layer's own time has it too."""
        return _rows(self.device_times_ms)


def _rows(times_ms: dict[str, list[float]]) -> list[dict[str, float | str]]:
    from statistics import median  # it brings fractions and random numbers with it, and few runs are profiled

    total = sum(sum(times) for times in times_ms.values()) or 1.0
    return [
        {
            "name": name,
            "timeMs": sum(times),
            "averageMs": sum(times) / len(times),
            "medianMs": median(times),
            "percentage": 100.0 * sum(times) / total,
        }
        for name, times in times_ms.items()
    ]


def run_profiled(runner: ProgramRunner, profiler: IProfiler) -> None:
    """One run with a clock around every step; reports come after the run so that they do not disturb it."""
    runner.announce_changes()
    with _device_events(runner) as events:
        spans = [_time_span(segments, runner.frame) for segments in _single_steps(runner)]
    for record, (start_ns, end_ns) in zip(runner.program.steps, spans, strict=True):
        profiler.report_layer_time(record.name, (end_ns - start_ns) / 1e6)
        profiler.report_layer_span(record.name, start_ns, end_ns)
    for provider, event in events:
        profiler.report_device_event(provider, event)


def _single_steps(runner: ProgramRunner) -> list[Segments]:
    if runner.schedule is not None:
        return list(runner.schedule.single_steps())
    return [[(enter, [step])] for enter, steps in make_segments(runner.steps) for step in steps]


def _time_span(segments: Segments, frame: Frame) -> tuple[int, int]:
    start = time.perf_counter_ns()
    run_segments(segments, frame)
    return start, time.perf_counter_ns()


@contextmanager
def _device_events(runner: ProgramRunner) -> Iterator[list[tuple[str, ProfileEvent]]]:
    """Have the devices of a program note what they do; the list is filled at the end."""
    events: list[tuple[str, ProfileEvent]] = []
    names = sorted({value.memory for value in runner.program.values if value.memory})
    started: list[Provider] = []
    try:
        for name in names:
            provider = runner.devices.providers[name]
            call(name, "start_profiling", provider.start_profiling)
            started.append(provider)
        yield events
    finally:
        for provider in started:
            found = call(provider.name, "stop_profiling", provider.stop_profiling)
            events += [(provider.name, event) for event in found]
