"""``dovetail bench``: how long a run takes, and which layers take it."""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dovetail.cli.answers import Answer, Document, dump_document
from dovetail.cli.feeds import make_context, make_inputs
from dovetail.cli.files import write_file
from dovetail.cli.options import (
    add_model_options,
    add_target,
    finish_command,
    non_negative_float,
    positive_float,
    positive_int,
)
from dovetail.cli.screen import Screen
from dovetail.cli.settings import add_build_settings
from dovetail.cli.shapes import parse_shapes
from dovetail.cli.targets import open_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["declare", "percentile", "run"]

_PERCENTILES: Final = (90, 95, 99)
_MIN_RUNS: Final = 10


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    add_target(parser)
    add_model_options(parser)
    add_build_settings(parser)
    parser.add_argument(
        "--warmup-ms", type=non_negative_float, default=200.0, metavar="MS", help="run this long first (default 200)"
    )
    parser.add_argument(
        "--duration",
        type=positive_float,
        default=3.0,
        metavar="S",
        help="measure this long, 10 runs at least (default 3)",
    )
    parser.add_argument("--iterations", type=positive_int, metavar="N", help="measure exactly this many runs instead")
    parser.add_argument("--profile-layers", action="store_true", help="then time each layer, in runs of their own")
    parser.add_argument("--export-times", metavar="FILE", help="write the time of each run as JSON")
    parser.add_argument("--export-profile", metavar="FILE", help="write the time of each layer as JSON")


class _Pace(NamedTuple):
    """When to stop."""

    warmup_s: float
    duration_s: float
    iterations: int | None


def run(args: argparse.Namespace) -> Answer:
    """Measure; a profile is measured apart, because its clocks slow the runs down."""
    shapes = parse_shapes(args.shapes)
    pace = _Pace(warmup_s=args.warmup_ms / 1e3, duration_s=args.duration, iterations=args.iterations)
    with open_engine(args, shapes) as engine:
        named = make_inputs(engine, files=args.inputs, shapes=shapes, seed=args.seed)
        context, inputs = make_context(engine, named), list(named.values())
        spans = _measure(lambda: context.run(inputs), pace)
        wants_profile = args.profile_layers or args.export_profile
        profile, on_devices = _profile(context, inputs, pace) if wants_profile else (None, [])
    document = {
        "engine": engine.name,
        "inputs": {name: _shape(value) for name, value in named.items()},
        **summarize(spans),
    }
    if profile is not None:
        document["profile"] = profile
    if on_devices:
        document["device_profile"] = on_devices
    if args.export_times is not None:
        write_file(Path(args.export_times), dump_document(_trace(spans)).encode(), option="--export-times")
    if args.export_profile is not None:
        write_file(Path(args.export_profile), dump_document(profile or []).encode(), option="--export-profile")
    return Answer(document=document, show=_show)


Span = tuple[int, int]
"""Start and end of a run in nanoseconds."""


def _shape(value: Any) -> list[int] | str:
    """The shape of an input; what has none is counted."""
    if value is None:
        return "none"
    return f"sequence of {len(value)}" if isinstance(value, list) else list(value.shape)


def _measure(function: Callable[[], object], pace: _Pace, *, on_warm: Callable[[], object] | None = None) -> list[Span]:
    clock = time.perf_counter_ns
    warm_until = clock() + int(pace.warmup_s * 1e9)
    function()
    while clock() < warm_until:
        function()
    if on_warm is not None:
        on_warm()
    spans: list[Span] = []
    limit, until = pace.iterations, clock() + int(pace.duration_s * 1e9)
    with _without_collection():
        while len(spans) < limit if limit is not None else clock() < until or len(spans) < _MIN_RUNS:
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


def _profile(context: Any, inputs: list[Any], pace: _Pace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The times of layers in the form that profile exports commonly have: a count, then one row a layer.

    Beside it what devices did, as they noted it themselves: the same form, without the count.
    """
    from dovetail.runtime.profiler import LayerTimes

    times = LayerTimes()
    context.profiler = times
    spans = _measure(lambda: context.run(inputs), pace._replace(warmup_s=0.0), on_warm=times.clear)
    context.profiler = None
    return [{"count": len(spans)}, *times.rows()], times.device_rows()


def summarize(spans: Sequence[Span]) -> dict[str, Any]:
    """Latencies in milliseconds and runs a second."""
    from statistics import fmean, median

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
            **{f"p{p}": percentile(times_ms, p) for p in _PERCENTILES},
        },
    }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest time that this share of the runs does not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 75)
    3.0
    """
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def _trace(spans: Sequence[Span]) -> list[dict[str, float]]:
    """Each run with the fields of common trace exports; on a host nothing is copied to or from a device."""
    origin = spans[0][0]
    return [_trace_entry((start - origin) / 1e6, (end - origin) / 1e6) for start, end in spans]


def _trace_entry(start_ms: float, end_ms: float) -> dict[str, float]:
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


def _show(document: Document, screen: Screen) -> None:
    latency = document["latency_ms"]
    screen.line(f"{document['engine']}: {document['iterations']} runs in {document['wall_s']:.2f} s")
    screen.facts(
        [
            ("throughput", f"{document['throughput_qps'] or 0.0:.1f} runs/s"),
            *((name, f"{latency[name]:.4f} ms") for name in ("min", "median", "mean", "p90", "p95", "p99", "max")),
        ]
    )
    if "profile" in document:
        count, *layers = document["profile"]
        _show_profile(f"Profile ({count['count']} iterations)", "Layer", layers, screen)
    if "device_profile" in document:
        _show_profile("On devices", "Work", document["device_profile"], screen)


def _show_profile(title: str, kind: str, layers: Sequence[Any], screen: Screen) -> None:
    rows = [
        (f"{r['timeMs']:.2f}", f"{r['averageMs']:.4f}", f"{r['medianMs']:.4f}", f"{r['percentage']:.1f}", r["name"])
        for r in layers
    ]
    total_ms = sum(row["timeMs"] for row in layers)
    average_ms, median_ms = (sum(row[key] for row in layers) for key in ("averageMs", "medianMs"))
    rows.append((f"{total_ms:.2f}", f"{average_ms:.4f}", f"{median_ms:.4f}", "100.0", "Total"))
    screen.title(title)
    screen.table(("Time(ms)", "Avg.(ms)", "Median(ms)", "Time(%)", kind), rows, right=(0, 1, 2, 3))
