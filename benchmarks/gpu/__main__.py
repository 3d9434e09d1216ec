"""Measure rows on this machine's GPU, each side in a process of its own, inside of a limit of time.

    python -m benchmarks.gpu                                every row
    python -m benchmarks.gpu resnet50:1 bert_base           some of them
    python -m benchmarks.gpu vit_b_16:1 --sides run witness with torch.compile beside ours, which takes minutes

Models are exported side by side first, into a folder that the next call on this machine uses again. Then come the
calibrator, builds with an empty timing cache and store of kernels, builds with full ones, and runs. What does not come
into the limit is left for another call: results of one commit are merged. A store of an earlier call, also of another
machine of the kind, can be given; its rows are not built from nothing again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.results import Results, describe_machine, find_commit
from benchmarks.gpu.rows import Row, find_rows

EXPORTS_AT_ONCE = 10
SIDES = ("build", "rebuild", "run", "plugin", "witness")
PLUGIN_ROUNDS = 2
PLAIN = "plain"
"""The side of rows whose peer is timed beside ours."""
ROOT = Path(__file__).resolve().parents[2]


class Clock:
    """How much of the time is left."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds."""
        return self._end - time.monotonic()


def _run_side(side: str, row: Row, args: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """What one side says in its last line, or why it failed."""
    limit = min(args.side_seconds, clock.left_s)
    if limit < 2:
        return {"failed": "not in the time of this call"}
    command = [sys.executable, "-m", "benchmarks.gpu", "--side", side, "--store", str(args.store), row.name]
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {limit:.0f} s"}
    print(f"{row.name} {side}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    if done.returncode:
        return {"failed": done.stderr.strip()[-args.error_length :]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _find_folder(row: Row) -> Path:
    return ROOT / "build" / "gpu" / row.name.replace(":", "-")


def _find_store(row: Row, args: argparse.Namespace) -> Path:
    folder: Path = args.store / _find_folder(row).name
    return folder


def _measure(rows: Sequence[Row], args: argparse.Namespace, results: Results) -> None:
    clock = Clock(args.seconds)

    def do(side: str, row: Row) -> bool:
        found = _run_side(side, row, args, clock)
        results.add(row, side, found)
        return "failed" not in found

    def do_all(side: str, rows: Sequence[Row], at_once: int = 1) -> list[Row]:
        with ThreadPoolExecutor(at_once) as workers:
            done = list(workers.map(lambda row: do(side, row), rows))
        results.save()
        return [row for row, is_done in zip(rows, done, strict=True) if is_done]

    do_all("export", [row for row in rows if not (_find_folder(row) / "reference.npz").exists()], EXPORTS_AT_ONCE)
    ready = [row for row in rows if (_find_folder(row) / "reference.npz").exists()]
    calibrator = _run_side("calibrator", rows[0], args, clock)
    for row in ready:
        results.add(row, "calibrator", calibrator)
    if "build" in args.sides:
        do_all("build", [row for row in ready if not _find_store(row, args).exists()], args.builds_at_once)
    for row in ready:
        if row.has_plain_peer:
            do_all(PLAIN, [row])
        for side in SIDES[1:]:
            if side in args.sides and side != "plugin":
                do_all(side, [row])
        if "plugin" in args.sides and row.takes_plugin:
            results.add(row, "plugin", _compare_plugins(row, args, clock))
            results.save()


def _compare_plugins(row: Row, args: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """What a plugin costs: the best of rounds in which each number of plugins has a process of its own."""
    from benchmarks.gpu.plugin_cost import describe_cost

    rounds = [[_run_side(f"plugin{count}", row, args, clock) for count in range(3)] for _ in range(PLUGIN_ROUNDS)]
    failed = [found for each in rounds for found in each if "failed" in found]
    return (
        failed[0]
        if failed
        else describe_cost([min(found["ms"] for found in each) for each in zip(*rounds, strict=True)])
    )


# one process


def _work(side: str, row: Row, store: Path) -> dict[str, Any]:
    from benchmarks.gpu import decoding, networks, ours, peers, plugin_cost

    folder = _find_folder(row)
    store /= folder.name
    folder.mkdir(parents=True, exist_ok=True)
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "export": lambda: networks.export_row(row, folder),
        "calibrator": lambda: dict(peers.calibrate()),
        "build": lambda: ours.build_row(folder, store),
        "rebuild": lambda: ours.build_row(folder, store),
        "run": lambda: ours.run_row(folder),
        **{f"plugin{count}": partial(plugin_cost.time_with_plugins, folder, store, count) for count in range(3)},
        PLAIN: lambda: decoding.time_plain(networks.make_network(row), networks.make_inputs(row)),
        "witness": lambda: dict(peers.time_witness(row)),
    }
    return work[side]()


def main() -> None:
    """Measure, or be one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="such as resnet50:1; all of them by default")
    parser.add_argument("--seconds", type=float, default=450, help="how long this call may take")
    parser.add_argument("--side-seconds", type=float, default=200, help="how long one side of a row may take")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES[:3], help="what is done for each row")
    parser.add_argument("--builds-at-once", type=int, default=1, help="more are quicker, and choose and time badly")
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "gpu" / "store", help="kernels and timings")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="where results are kept")
    parser.add_argument("--error-length", type=int, default=600, help="how much is told of a failure")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        rows = find_rows(args.rows)
    except ValueError as error:
        parser.error(str(error))
    if args.side:
        print(json.dumps(_work(args.side, rows[0], args.store)))
        return
    # Modules have byte code where they are installed; without it each process would compile them anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    results = Results(args.results, find_commit())
    results.machine = {**describe_machine(), "builds_at_once": args.builds_at_once}
    _measure(rows, args, results)
    results.save()
    print(results.make_table())


if __name__ == "__main__":
    main()
