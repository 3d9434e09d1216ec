"""Times of single layers: the profiler interface, one that collects, and what feeds it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.provider.calls import call
from dovetail.provider.devices import ProfileEvent
from dovetail.provider.interfaces import Provider
from dovetail.runtime.bind.instance import ProgramInstance
from dovetail.runtime.bind.run import BoundRun, Visit
from dovetail.runtime.memory.checks import memories_of
from dovetail.runtime.steps.loop import BoundSteps
from dovetail.strict_attributes import StrictAttributes

__all__ = ["IProfiler", "LayerTimes", "Profiler", "profile_with"]


class IProfiler:
    """Told the time of every layer after each run."""

    __slots__ = ()

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Take the time of one layer."""
        raise NotImplementedError(f"{type(self).__name__} must implement report_layer_time(layer_name, ms)")

    def report_layer_span(self, layer_name: str, start_ns: int, end_ns: int) -> None:
        """Take when a layer ran, on the clock of ``time.perf_counter_ns``; nothing is done with it by default."""
        return

    def report_device_event(self, provider: str, event: ProfileEvent) -> None:
        """Take something that a device did; nothing is done with it by default."""
        return


class Profiler(IProfiler, StrictAttributes):
    """Prints each time."""

    __slots__ = ()

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


def profile_with(profiler: IProfiler) -> Visit:
    """What runs the steps of a bound run with a clock around each, and then tells the profiler."""

    def visit(run: BoundRun) -> None:
        # Reports come after the run, so that they do not disturb it.
        with _device_events(run.instance) as events:
            run.begin()
            spans = [(record.name, *_time_span(step)) for record, step in run.single_steps()]
            run.end()
        for name, start_ns, end_ns in spans:
            profiler.report_layer_time(name, (end_ns - start_ns) / 1e6)
            profiler.report_layer_span(name, start_ns, end_ns)
        for provider, event in events:
            profiler.report_device_event(provider, event)

    return visit


def _time_span(step: BoundSteps) -> tuple[int, int]:
    start = time.perf_counter_ns()
    step.run()
    return start, time.perf_counter_ns()


@contextmanager
def _device_events(instance: ProgramInstance) -> Iterator[list[tuple[str, ProfileEvent]]]:
    """Have the devices of a program note what they do; the list is filled at the end."""
    events: list[tuple[str, ProfileEvent]] = []
    started: list[Provider] = []
    try:
        for name in memories_of(instance.program):
            provider = instance.devices.providers[name]
            call(name, "start_profiling", provider.start_profiling)
            started.append(provider)
        yield events
    finally:
        for provider in started:
            found = call(provider.id, "stop_profiling", provider.stop_profiling)
            events += [(provider.id, event) for event in found]
