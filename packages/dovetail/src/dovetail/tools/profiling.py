"""Which layers take the time: runs with a clock around every step, and what providers know of the inside of steps.

A partition that ONNX Runtime compiled is one step. To see its nodes the plan is loaded once more, with sessions that
note what they do; that slows them down, so these runs tell shares, not latencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from dovetail.plan.walk import walk_steps
from dovetail.provider.devices import ProfileEvent
from dovetail.provider.loader import get_default_options, get_provider, set_default_options
from dovetail.runtime.measuring import Pace, Span, measure
from dovetail.runtime.profiler import LayerTimes

if TYPE_CHECKING:
    from dovetail.plan.manifest import Manifest, StepRecord
    from dovetail.runtime.context import ExecutionContext

__all__ = [
    "REST",
    "LayerProfile",
    "describe_profile",
    "export_profile",
    "flatten_profile",
    "has_inner_times",
    "inner_times",
    "profile_layers",
    "sum_by_op",
]

_PROVIDER: Final = "onnxruntime"
_MAX_EVENTS: Final = 20_000
"""ONNX Runtime writes about a kilobyte an event."""
_MIN_RUNS: Final = 3
_MAX_RUNS: Final = 200
_TIMES: Final = ("timeMs", "averageMs", "medianMs")
REST: Final = "(rest)"
"""Stands for the operator of what a step does besides its nodes."""


class _Spans(LayerTimes):
    """Keeps when layers ran, too."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[str, int, int]] = []
        self.device_events: list[tuple[str, ProfileEvent]] = []

    def report_layer_span(self, layer_name: str, start_ns: int, end_ns: int) -> None:
        self.spans.append((layer_name, start_ns, end_ns))

    def report_device_event(self, provider: str, event: ProfileEvent) -> None:
        super().report_device_event(provider, event)
        self.device_events.append((provider, event))

    def clear(self) -> None:
        super().clear()
        self.spans.clear()
        self.device_events.clear()


@dataclass(frozen=True, kw_only=True)
class LayerProfile:
    """Runs with a clock around every step."""

    runs: list[Span]
    steps: list[tuple[str, int, int]]
    """Name, start and end of every step of every run."""
    device_events: list[tuple[str, ProfileEvent]] = field(default_factory=list)
    """What devices did, with the provider."""
    inner_events: list[ProfileEvent] = field(default_factory=list)
    """What parts of steps did."""
    step_rows: list[dict[str, Any]] = field(default_factory=list)
    device_rows: list[dict[str, Any]] = field(default_factory=list)
    ops: Mapping[str, str] = field(default_factory=dict)
    """What each step is, by its name."""
    origins: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """For each step with a report the layers that each node of it was made of."""


def has_inner_times(manifest: Manifest) -> bool:
    """Whether a plan has steps with an inside that can be timed."""
    return any(step.kind == "partition" and step.provider == _PROVIDER for step in _all_steps(manifest))


def _all_steps(manifest: Manifest) -> Iterator[StepRecord]:
    for program in manifest.programs:
        yield from walk_steps(program)


@contextmanager
def inner_times() -> Iterator[Callable[[], Sequence[ProfileEvent]]]:
    """Have engines that are loaded meanwhile note what the nodes of their partitions do; the function tells it."""
    before = get_default_options(_PROVIDER)
    set_default_options(_PROVIDER, {**before, "profiling": "on"})
    provider = get_provider(_PROVIDER)
    try:
        yield provider.stop_profiling
    finally:
        provider.stop_profiling()
        set_default_options(_PROVIDER, before)


def profile_layers(
    context: ExecutionContext,
    inputs: Sequence[Any],
    pace: Pace,
    collect: Callable[[], Sequence[ProfileEvent]] | None = None,
) -> LayerProfile:
    """Run with a clock around every step.

    Args:
        context: What runs; its profiler is used.
        inputs: What it runs on.
        pace: When to stop; there are fewer runs where steps tell of their inside.
        collect: Tells what parts of steps did.
    """
    limit = pace.iterations
    if collect is not None:
        most = _most_runs(context.engine.manifest)
        limit = min(limit or most, most)
    spans = _Spans()
    context.profiler = spans
    try:
        runs = measure(
            lambda: context.run(inputs),
            Pace(warmup_s=0.0, duration_s=pace.duration_s, iterations=limit),
            on_warm=spans.clear,
        )
    finally:
        context.profiler = None
    begin_us = runs[0][0] / 1e3
    inner = [event for event in (collect() if collect is not None else ()) if event.start_us >= begin_us]
    return LayerProfile(
        runs=runs,
        steps=spans.spans,
        device_events=spans.device_events,
        inner_events=inner,
        step_rows=spans.rows(),
        device_rows=spans.device_rows(),
        ops={step.name: _op_of(step) for step in _all_steps(context.engine.manifest)},
        origins={step.name: _list_origins(step) for step in _all_steps(context.engine.manifest)},
    )


def _list_origins(step: StepRecord) -> dict[str, Sequence[str]]:
    report = None if step.partition is None else step.partition.report
    return {} if report is None else {node.name: node.layers for node in report.nodes}


def _most_runs(manifest: Manifest) -> int:
    """How many runs can tell of every node and not too much in all."""
    nodes = sum(len(step.partition.layers) if step.partition else 1 for step in _all_steps(manifest))
    return max(_MIN_RUNS, min(_MAX_RUNS, _MAX_EVENTS // max(nodes, 1)))


# rows


def describe_profile(profile: LayerProfile) -> list[dict[str, Any]]:
    """A count, then a row for each step with its operator; one whose inside is known has rows under ``nodes``."""
    total_ms = sum(row["timeMs"] for row in profile.step_rows) or 1.0
    inside = _group_by_layer([*profile.inner_events, *(event for _, event in profile.device_events if event.layer)])
    rows = []
    for row in profile.step_rows:
        origins = profile.origins.get(row["name"], {})
        groups = inside.get(row["name"], {})
        nodes = [_inner_row(name, names, events, total_ms, origins) for (name, names), events in groups.items()]
        described = {**row, "op": profile.ops.get(row["name"], "")}
        rows.append({**described, "nodes": nodes} if nodes else described)
    return [{"count": len(profile.runs)}, *rows]


def flatten_profile(described: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every time once, so that the shares add up to all of it.

    Where the inside of a step is known, its nodes have rows instead of it, and one row has what is left of its time.
    """
    rows: list[dict[str, Any]] = []
    total_ms = sum(row["timeMs"] for row in described[1:]) or 1.0
    for row in described[1:]:
        nodes = row.get("nodes", ())
        if not nodes:
            rows.append(dict(row))
            continue
        rows += [dict(node) for node in nodes]
        left = {key: max(row[key] - sum(node[key] for node in nodes), 0.0) for key in _TIMES}
        share = 100.0 * left["timeMs"] / total_ms
        rows.append({"name": f"{row['name']} (rest)", "op": REST, **left, "percentage": share})
    return rows


def export_profile(described: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same with the fields that ``trtexec`` exports."""
    ours = ("op", "layers", "reported")
    rows = [{key: value for key, value in row.items() if key not in ours} for row in flatten_profile(described)]
    return [dict(described[0]), *rows]


def sum_by_op(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each operator takes in all, the most first.

    >>> row = {"op": "Conv", "timeMs": 1.0, "averageMs": 1.0, "medianMs": 1.0, "percentage": 50.0}
    >>> [(found["op"], found["count"], found["percentage"]) for found in sum_by_op([row, row])]
    [('Conv', 2, 100.0)]
    """
    sums: dict[str, dict[str, Any]] = {}
    for row in rows:
        found = sums.setdefault(row["op"], {"op": row["op"], "count": 0, **dict.fromkeys((*_TIMES, "percentage"), 0.0)})
        found["count"] += 1
        for key in (*_TIMES, "percentage"):
            found[key] += row[key]
    return sorted(sums.values(), key=lambda found: -found["timeMs"])


def _op_of(step: StepRecord) -> str:
    """What a step is: its operator, the name of its plugin, or what the runtime does."""
    if step.plugin is not None:
        return step.plugin.name
    return step.op or step.kind.capitalize()


_Part = tuple[str, tuple[str, ...]]
"""A part of a step: what the provider calls it, and the nodes of the report that it does."""


def _group_by_layer(events: Iterable[ProfileEvent]) -> dict[str, dict[_Part, list[ProfileEvent]]]:
    grouped: dict[str, dict[_Part, list[ProfileEvent]]] = {}
    for event in events:
        grouped.setdefault(event.layer, {}).setdefault((event.name, event.nodes), []).append(event)
    return grouped


def _inner_row(
    name: str,
    nodes: Sequence[str],
    events: Sequence[ProfileEvent],
    total_ms: float,
    origins: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    times = [event.duration_us / 1e3 for event in events]
    return {
        "name": name,
        "op": events[0].kind,
        "reported": list(nodes),
        "layers": list(dict.fromkeys(layer for node in (nodes or (name,)) for layer in origins.get(node, nodes))),
        "timeMs": sum(times),
        "averageMs": sum(times) / len(times),
        "medianMs": median(times),
        "percentage": 100.0 * sum(times) / total_ms,
    }
