"""``dovetail bench``: how long a run takes, and which layers take it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply, dump_document
from dovetail.cli.feeds import make_inputs
from dovetail.cli.files import keep_apart
from dovetail.cli.options import (
    add_model_options,
    add_target,
    finish_command,
    non_negative_float,
    positive_float,
    positive_int,
)
from dovetail.cli.screen import Screen, format_histogram
from dovetail.cli.settings import add_build_settings
from dovetail.cli.shapes import format_shape, parse_shapes
from dovetail.cli.targets import StderrLogger, open_engine, reopen_engine
from dovetail.files import write_file
from dovetail.tools.engine_runs import make_context

if TYPE_CHECKING:
    from dovetail.build.progress import IProgressMonitor
    from dovetail.runtime.engine import Engine
    from dovetail.runtime.measuring import Pace, Span
    from dovetail.tools.profiling import LayerProfile
    from dovetail.tools.traces.timeline import Timeline

__all__ = ["declare", "run"]

_DURATION_S: Final = 3.0
_TRACED_RUNS: Final = 2000
"""Of the measured runs; a viewer with more is slow and shows nothing new."""
_BINS: Final = 40
_SHOWN_ROWS: Final = 20
_TIME_HEADERS: Final = ("Avg.(ms)", "Median(ms)", "Time(%)")
_LATENCIES: Final = ("min", "p50", "p90", "p95", "p99", "p99.9", "max", "mean")


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    add_target(parser)
    add_model_options(parser)
    parser.add_argument(
        "--warmup-ms", type=non_negative_float, default=200.0, metavar="MS", help="run this long first (default 200)"
    )
    parser.add_argument(
        "--duration",
        type=positive_float,
        metavar="S",
        help=f"measure this long, 10 runs at least (default {_DURATION_S:g})",
    )
    parser.add_argument(
        "--iterations",
        type=positive_int,
        metavar="N",
        help="measure this many runs instead; with --duration, whichever is over first",
    )
    parser.add_argument(
        "--threads", type=positive_int, metavar="N", help="threads of ONNX Runtime (default: one a core)"
    )
    parser.add_argument(
        "--profile", action="store_true", help="then time each layer, in runs of their own, and nodes inside partitions"
    )
    parser.add_argument("--trace", metavar="FILE", help="write a timeline for Perfetto or chrome://tracing")
    parser.add_argument("--export-times", metavar="FILE", help="write the time of each run as JSON")
    parser.add_argument("--export-profile", metavar="FILE", help="write the time of each layer as JSON")
    parser.add_argument("--export-layer-info", metavar="FILE", help="write what the layers are as JSON")
    add_build_settings(parser)


def run(args: argparse.Namespace) -> Reply:
    """Measure; a profile is measured apart, because its clocks slow the runs down."""
    if args.threads is not None:
        args.provider_option = [*args.provider_option, f"onnxruntime.threads={args.threads}"]
    exports = ("trace", "export_times", "export_profile", "export_layer_info")
    outputs = {f"--{name.replace('_', '-')}": getattr(args, name) for name in exports}
    keep_apart(outputs, [args.target, *args.inputs])
    bench = _BenchRun(args)
    document = bench.run()
    return Reply(document=document, show=_show)


class _BenchRun:
    """One benchmark: the timeline fills as it goes."""

    def __init__(self, args: argparse.Namespace) -> None:
        from dovetail.runtime.measuring import Pace
        from dovetail.tools.traces.timeline import Timeline

        self._args = args
        self._shapes = parse_shapes(args.shapes)
        self._logger = StderrLogger()
        duration_s = args.duration if args.duration is not None else None if args.iterations else _DURATION_S
        self._pace: Pace = Pace(warmup_s=args.warmup_ms / 1e3, duration_s=duration_s, iterations=args.iterations)
        self._trace: Timeline = Timeline(f"dovetail bench {Path(args.target).name}")

    def run(self) -> dict[str, Any]:
        from dovetail.tools.bound_runs import bind_run

        args = self._args
        wants_profile = args.profile or args.export_profile is not None or args.trace is not None
        with self._open() as engine:
            named, unset = make_inputs(engine, args, self._shapes, self._logger)
            spans = self._measure("engine(x)", _call_engine(engine, named))
            context = make_context(engine, named)
            bound = bind_run(context, named)
            call = bound or (lambda: context.run(list(named.values())))
            context_spans = self._measure("context", call)
            profile = self._profile(engine, named) if wants_profile else None
            document = {
                **_describe(engine, named, args.target),
                "unset": [dim.to_dict() for dim in unset],
                **_summarize(spans),
                "context": {"call": "run" if bound is None else "execute_async_v3", **_summarize(context_spans)},
                "uncaptured": [{"step": found.step, "reason": found.reason} for found in context.uncaptured_steps],
            }
            self._export(engine, spans, profile)
        if profile is not None:
            document |= _describe_profile(profile)
        return document

    def _open(self) -> Engine:
        start = time.perf_counter_ns()
        monitor = partial(_make_monitor, self._trace)
        engine = open_engine(
            self._args, self._shapes, self._logger, detailed=self._args.export_layer_info is not None, monitor=monitor
        )
        self._trace.add("phases", "load", start, time.perf_counter_ns())
        return engine

    def _measure(self, track: str, function: Callable[[], object]) -> list[Span]:
        from dovetail.runtime.measuring import measure

        marks: list[int] = [time.perf_counter_ns()]
        spans = measure(function, self._pace, on_warm=lambda: marks.append(time.perf_counter_ns()))
        self._trace.add("phases", f"warm up {track}", marks[0], marks[1])
        self._trace.add("phases", f"measure {track}", marks[1], time.perf_counter_ns())
        for index, (start, end) in enumerate(spans[:_TRACED_RUNS]):
            self._trace.add(track, f"run {index}", start, end)
        return spans

    def _profile(self, engine: Engine, named: Mapping[str, Any]) -> LayerProfile:
        from dovetail.tools.profiling import has_inner_times, inner_times, profile_layers
        from dovetail.tools.traces.profile_trace import trace_profile

        start = time.perf_counter_ns()
        with ExitStack() as stack:
            collect = None
            if has_inner_times(engine.manifest):
                collect = stack.enter_context(inner_times())
                engine = stack.enter_context(reopen_engine(self._args, engine))
            context = make_context(engine, named)
            profile = profile_layers(context, list(named.values()), self._pace, collect)
            number = context.active_optimization_profile
        self._trace.add("phases", "profile", start, time.perf_counter_ns())
        if self._args.trace is not None:
            shapes = {name: _shape_of(value) for name, value in named.items()}
            trace_profile(profile, engine.manifest, number, shapes, self._trace)
        return profile

    def _export(self, engine: Engine, spans: Sequence[Span], profile: LayerProfile | None) -> None:
        from dovetail.runtime.measuring import export_times
        from dovetail.tools.profiling import describe_profile, export_profile

        args = self._args
        if args.export_times is not None:
            _write(args.export_times, export_times(spans), "--export-times")
        if args.export_profile is not None and profile is not None:
            _write(args.export_profile, export_profile(describe_profile(profile)), "--export-profile")
        if args.export_layer_info is not None:
            _write_layer_info(engine, Path(args.export_layer_info))
        if args.trace is not None:
            _write(args.trace, self._trace.to_document(), "--trace")


def _make_monitor(trace: Timeline) -> IProgressMonitor:
    """A monitor that puts the phases of a build on the timeline."""
    from dovetail.build.progress import IProgressMonitor

    class Monitor(IProgressMonitor):
        """Knows when each open phase began."""

        def __init__(self) -> None:
            self._starts: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self._starts[phase_name] = time.perf_counter_ns()

        def step_complete(self, phase_name: str, step: int) -> bool:
            return True

        def phase_finish(self, phase_name: str) -> None:
            trace.add("build", phase_name, self._starts.pop(phase_name), time.perf_counter_ns())

    return Monitor()


# what is timed


def _call_engine(engine: Engine, named: Mapping[str, Any]) -> Callable[[], object]:
    inputs = list(named.values())
    return lambda: engine(*inputs)


# the document and files


def _describe(engine: Engine, named: Mapping[str, Any], target: str) -> dict[str, Any]:
    return {
        "target": target,
        "engine": engine.name,
        "providers": {device.provider: device.version for device in engine.manifest.devices},
        "num_steps": engine.num_layers,
        "inputs": {name: _shape_of(value) for name, value in named.items()},
    }


def _shape_of(value: Any) -> list[int]:
    return [len(value)] if isinstance(value, list | tuple | Mapping) else list(value.shape)


def _summarize(spans: Sequence[Span]) -> dict[str, Any]:
    from dovetail.runtime.measuring import summarize

    times_ms = [(end - start) / 1e6 for start, end in spans]
    return {**summarize(spans), "histogram": _histogram(times_ms)}


def _histogram(times_ms: Sequence[float]) -> dict[str, Any]:
    """How many runs took how long, up to the 95th percentile: a few slow runs must not flatten the rest."""
    from dovetail.runtime.measuring import percentile

    ordered = sorted(times_ms)
    low, high = ordered[0], percentile(ordered, 95)
    width = (high - low) / _BINS or 1.0
    counts = [0] * _BINS
    for value in ordered:
        if value <= high:
            counts[min(int((value - low) / width), _BINS - 1)] += 1
    return {"from_ms": low, "to_ms": high, "counts": counts}


def _describe_profile(profile: LayerProfile) -> dict[str, Any]:
    from dovetail.tools.profiling import describe_profile, flatten_profile, sum_by_op

    rows = describe_profile(profile)
    described: dict[str, Any] = {"profile": rows, "by_operator": sum_by_op(flatten_profile(rows))}
    if profile.device_rows:
        described["device_profile"] = profile.device_rows
    return described


def _write(path: str, content: Any, option: str) -> None:
    write_file(Path(path), dump_document(content).encode(), option=option)


def _write_layer_info(engine: Engine, path: Path) -> None:
    from dovetail.plan.inspect import LayerInformationFormat

    text = engine.create_engine_inspector().get_engine_information(LayerInformationFormat.JSON)
    write_file(path, text.encode(), option="--export-layer-info")


# for people


def _show(document: Document, screen: Screen) -> None:
    providers = ", ".join(f"{name} {version}" for name, version in document["providers"].items())
    screen.line(f"{document['engine']}: {document['num_steps']} step(s) on {providers}")
    for name, shape in document["inputs"].items():
        screen.line(f"input '{name}': {format_shape(shape)}")
    _show_latencies(document, screen)
    for found in document["uncaptured"]:
        screen.line(f"not captured: step '{found['step']}', because {found['reason']}")
    if "profile" in document:
        _show_profile(document, screen)
    if "device_profile" in document:
        _show_devices(document["device_profile"], screen)


def _show_latencies(document: Document, screen: Screen) -> None:
    sides = (document, document["context"])
    screen.title("Latency in ms")
    rows: list[tuple[str, ...]] = [
        (name, *(f"{side['latency_ms'][name]:.4f}" for side in sides)) for name in _LATENCIES
    ]
    rows.append(("runs", *(f"{side['iterations']:,}" for side in sides)))
    rows.append(("throughput", *(f"{side['throughput_qps'] or 0.0:,.1f}/s" for side in sides)))
    screen.table(("", "engine(x)", f"context.{document['context']['call']}"), rows, right=(1, 2))
    histogram = document["histogram"]
    bars = format_histogram(histogram["counts"])
    if screen.has_blocks and len(set(histogram["counts"])) > 1:
        screen.line(f"engine(x)  {histogram['from_ms']:.4f} {bars} {histogram['to_ms']:.4f} (p95)")


def _show_profile(document: Document, screen: Screen) -> None:
    """The layers and nodes that take most, and what each operator takes in all."""
    from dovetail.tools.profiling import flatten_profile

    count, *steps = document["profile"]
    rows = sorted(flatten_profile(document["profile"]), key=lambda row: -row["timeMs"])
    total_ms = sum(row["timeMs"] for row in rows)
    screen.title(f"Profile ({count['count']} iterations, {total_ms:.2f} ms in all)")
    cells = [(*_time_cells(row), row["op"], _name_layers(row)) for row in rows[:_SHOWN_ROWS]]
    screen.table((*_TIME_HEADERS, "Operator", "Layer"), cells, right=range(3))
    if len(rows) > _SHOWN_ROWS:
        left = rows[_SHOWN_ROWS:]
        share = sum(row["percentage"] for row in left)
        screen.line(f"... and {len(left)} more with {share:.1f}% of the time; --json and --export-profile have all")
    screen.title("By operator")
    sums = document["by_operator"]
    screen.table(
        (*_TIME_HEADERS, "Count", "Operator"), [(*_time_cells(s), s["count"], s["op"]) for s in sums], right=range(4)
    )
    if any("nodes" in step for step in steps):
        screen.line("Providers timed the parts of their steps themselves, which slows these runs down:")
        screen.line("they tell shares, not latencies. (rest) is what a step does besides them.")


def _name_layers(row: Mapping[str, Any]) -> str:
    """What a row is called in the network, where the provider calls it otherwise."""
    return " + ".join(row.get("reported") or (row["name"],))


def _show_devices(rows: Sequence[Any], screen: Screen) -> None:
    screen.title("On devices")
    ordered = sorted(rows, key=lambda row: -row["timeMs"])
    screen.table(
        (*_TIME_HEADERS, "Work"), [(*_time_cells(row), row["name"]) for row in ordered[:_SHOWN_ROWS]], right=range(4)
    )
    if len(ordered) > _SHOWN_ROWS:
        screen.line(f"... and {len(ordered) - _SHOWN_ROWS} more; --json has all")


def _time_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"{row['averageMs']:.4f}", f"{row['medianMs']:.4f}", f"{row['percentage']:.1f}")
