"""Rules about profiling: P80 and P81."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dovetail.provider.interfaces import ProfileEvent
from dovetail.rules import Broken, NotOffered
from dovetail.testing.provider_kit.models import CHAIN
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.subject import CheckedProvider, overrides

__all__: list[str] = []


def _profile(subject: CheckedProvider, times: int) -> tuple[Sequence[ProfileEvent], tuple[float, float]]:
    """What the provider noted during runs, and from when to when they were, in microseconds."""
    provider = subject.provider
    if not overrides(provider, "start_profiling"):
        raise NotOffered("it notes nothing")
    engine = subject.build(CHAIN)
    start = time.perf_counter() * 1e6
    provider.start_profiling()
    try:
        for _ in range(times):
            subject.run(engine, CHAIN.make_feeds()[0])
        provider.synchronize()
    finally:
        events = list(provider.stop_profiling())
    return events, (start, time.perf_counter() * 1e6)


@rule(
    "P80",
    "Profiling events have names and times on the clock of time.perf_counter",
    why="They are shown on one time line with the layers.",
    fix="convert times of the device to microseconds of time.perf_counter(), with durations from 0 on",
)
def judge_events(subject: CheckedProvider) -> str:
    """Profile two runs."""
    events, (start, end) = _profile(subject, 2)
    event: Any
    for event in events:
        if not isinstance(event, ProfileEvent) or not event.name:
            raise Broken(f"an event is {event!r}, expected a ProfileEvent with a name")
        if not event.duration_us >= 0:
            raise Broken(f"'{event.name}' took {event.duration_us} us")
        if not start - 1000 <= event.start_us <= end + 1000:
            raise Broken(f"'{event.name}' began at {event.start_us}, and the runs were from {start} to {end}")
    if not events:
        raise NotOffered("two runs were profiled, and it noted nothing")
    return f"{len(events)} events"


@rule(
    "P81",
    "Profiling ends when it is stopped, and events name layers that exist",
    why="Events of another run, or of a layer that nobody knows, are worse than none.",
    fix="forget events when they were given, and set ProfileEvent.layer to the name of the step, or leave it empty",
)
def judge_layers(subject: CheckedProvider) -> str:
    """Profile one run, then three, then none."""
    one, _ = _profile(subject, 1)
    three, _ = _profile(subject, 3)
    none, _ = _profile(subject, 0)
    if none:
        raise Broken(f"nothing ran, and there are {len(none)} events")
    if not len(one) <= len(three) <= 4 * max(len(one), 1):
        raise Broken(f"one run has {len(one)} events, and three have {len(three)}")
    known = _layer_names(subject)
    unknown = [event.layer for event in (*one, *three) if event.layer and event.layer not in known]
    if unknown:
        raise Broken(f"an event is of layer '{unknown[0]}', which the plan does not have")
    return f"{sum(bool(event.layer) for event in one)} of {len(one)} events name a layer"


def _layer_names(subject: CheckedProvider) -> set[str]:
    engine: Any = subject.build(CHAIN)
    steps = [step for program in engine.manifest.programs for step in program.steps]
    sources = [name for step in steps for name in getattr(step, "sources", ())]
    return {step.name for step in steps} | set(sources)
