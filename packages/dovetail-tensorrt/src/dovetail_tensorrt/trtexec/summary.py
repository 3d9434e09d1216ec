"""The numbers of a measurement, in the lines and files that readers of ``trtexec`` know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Any, Final

from dovetail.runtime.measuring import percentile
from dovetail_tensorrt.trtexec.inference import RunTimes

__all__ = [
    "EXPLANATIONS",
    "describe_times",
    "describe_trace",
    "export_outputs",
    "export_times",
    "show_profile",
    "split_times",
]

_PARTS: Final = ("Latency", "Enqueue Time", "H2D Latency", "GPU Compute Time", "D2H Latency")
_ENQUEUE_BOUND: Final = 0.8
EXPLANATIONS: Final = (
    "=== Explanations of the performance metrics ===",
    "Total Host Walltime: from the first run (after the warm-up) to the end of the last.",
    "GPU Compute Time: from when a run is begun to when its work is done; without a device, the time of the run.",
    "Total GPU Compute Time: the sum of these. Far below the walltime, the host or the copies hold the runs up.",
    "Enqueue Time: until the host is free again; the same as the compute time where there is no device.",
    "H2D and D2H Latency: copies of inputs and outputs, with --includeDataTransfers.",
    "Throughput: runs in a second, over the walltime.",
    "Latency: H2D Latency, GPU Compute Time and D2H Latency together.",
)
_UNSTABLE: Final = 2.5


def split_times(runs: Sequence[RunTimes]) -> dict[str, list[float]]:
    """Milliseconds of each part of each run.

    >>> split_times([RunTimes(0, 0, 1_000_000, 3_000_000, 3_000_000)])["GPU Compute Time"]
    [3.0]
    """
    spans = {
        "Latency": [(each.begin, each.copied_out) for each in runs],
        "Enqueue Time": [(each.copied_in, each.enqueued) for each in runs],
        "H2D Latency": [(each.begin, each.copied_in) for each in runs],
        "GPU Compute Time": [(each.copied_in, each.computed) for each in runs],
        "D2H Latency": [(each.computed, each.copied_out) for each in runs],
    }
    return {name: [(end - begin) / 1e6 for begin, end in pairs] for name, pairs in spans.items()}


def describe_trace(runs: Sequence[RunTimes], count: int) -> list[str]:
    """A line for each so many runs."""
    parts, lines = split_times(runs), [f"Trace averages of {count} runs:"]
    for start in range(0, len(runs) - count + 1, count):
        compute, latency, enqueue = (
            fmean(parts[name][start : start + count]) for name in ("GPU Compute Time", "Latency", "Enqueue Time")
        )
        lines.append(
            f"Average on {count} runs - GPU latency: {compute:.6g} ms - Host latency: {latency:.6g} ms "
            f"(enqueue {enqueue:.6g} ms)"
        )
    return lines


def describe_times(runs: Sequence[RunTimes], percents: Sequence[float], num_lanes: int) -> tuple[list[str], list[str]]:
    """The lines of the summary, and warnings about it."""
    parts = split_times(runs)
    wall_s = (max(each.copied_out for each in runs) - min(each.begin for each in runs)) / 1e9
    lines = [f"Throughput: {len(runs) / wall_s:.6g} qps"]
    lines += [f"{name}: {_statistics(parts[name], percents)}" for name in _PARTS]
    lines += [
        f"Total Host Walltime: {wall_s:.6g} s",
        f"Total GPU Compute Time: {sum(parts['GPU Compute Time']) / 1e3:.6g} s",
    ]
    return lines, _find_warnings(parts, num_lanes)


def _statistics(times_ms: Sequence[float], percents: Sequence[float]) -> str:
    ordered = sorted(times_ms)
    facts = [
        f"min = {ordered[0]:.6g} ms",
        f"max = {ordered[-1]:.6g} ms",
        f"mean = {fmean(ordered):.6g} ms",
        f"median = {median(ordered):.6g} ms",
        *(f"percentile({percent:g}%) = {percentile(ordered, percent):.6g} ms" for percent in percents),
    ]
    return ", ".join(facts)


def _find_warnings(parts: Mapping[str, Sequence[float]], num_lanes: int) -> list[str]:
    compute, enqueue = fmean(parts["GPU Compute Time"]), fmean(parts["Enqueue Time"])
    found = []
    if _ENQUEUE_BOUND * compute < enqueue < compute:
        found.append("* Throughput may be bound by Enqueue Time rather than GPU Compute.")
    for name in ("H2D Latency", "D2H Latency"):
        if fmean(parts[name]) > compute:
            found.append(f"* Throughput may be bound by {name[:3]} copies rather than GPU Compute.")
    spread = 100 * pstdev(parts["GPU Compute Time"]) / compute if compute else 0.0
    if spread > _UNSTABLE:
        found.append(f"* GPU compute time is unstable, with coefficient of variance = {spread:.4g}%.")
    if num_lanes > 1:
        found.append(f"* {num_lanes} contexts ran at once: a latency has the time that the others took.")
    return found


def export_times(runs: Sequence[RunTimes]) -> list[dict[str, float]]:
    """Each run with its points and spans in milliseconds."""
    origin = runs[0].begin
    return [_export_run(each, origin) for each in runs]


def _export_run(run: RunTimes, origin: int) -> dict[str, float]:
    begin, copied_in, enqueued, computed, end = (
        (point - origin) / 1e6 for point in (run.begin, run.copied_in, run.enqueued, run.computed, run.copied_out)
    )
    return {
        "startEnqMs": copied_in,
        "endEnqMs": enqueued,
        "startH2dMs": begin,
        "endH2dMs": copied_in,
        "startComputeMs": copied_in,
        "endComputeMs": computed,
        "startD2hMs": computed,
        "endD2hMs": end,
        "h2dMs": copied_in - begin,
        "computeMs": computed - copied_in,
        "d2hMs": end - computed,
        "latencyMs": end - begin,
    }


def export_outputs(outputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each output with its dimensions and values; numbers that JSON lacks are texts."""
    return [
        {
            "name": name,
            "dimensions": "x".join(map(str, array.shape)) or "scalar",
            "values": [_plain(value) for value in array.reshape(-1).tolist()],
        }
        for name, array in outputs.items()
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, complex):
        return [value.real, value.imag]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def show_profile(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of layers."""
    count, *layers = rows
    titles = ("Time(ms)", "Avg.(ms)", "Median(ms)", "Time(%)")
    lines = [
        f"=== Profile ({count['count']} iterations ) ===",
        " ".join(f"{title:>12}" for title in titles) + "   Layer",
    ]
    lines += [_show_row(row) for row in layers]
    total = {name: sum(row[name] for row in layers) for name in ("timeMs", "averageMs", "medianMs", "percentage")}
    return [*lines, _show_row({**total, "name": "Total"})]


def _show_row(row: Mapping[str, Any]) -> str:
    times = f"{row['timeMs']:>12.2f} {row['averageMs']:>12.4f} {row['medianMs']:>12.4f}"
    return f"{times} {row['percentage']:>12.1f}   {row['name']}"
