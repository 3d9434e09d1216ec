"""Dovetail over its OpenVINO provider against OpenVINO used directly: the time of a run, for networks and real models.

Each side runs in processes of its own, which take turns, a tenth of a second each. OpenVINO takes part twice: how far
it is from itself, in the column "itself", tells how far to trust a ratio. It compiles the ONNX file with its default
options and is called with a dict of arrays; Dovetail loads a plan that was built beforehand. Results of both are
compared with ONNX Runtime's first.

    .venv-openvino/bin/python benchmarks/openvino_provider.py                  every model, three rounds
    .venv-openvino/bin/python benchmarks/openvino_provider.py resnet50 vad     some of them
    .venv-openvino/bin/python benchmarks/openvino_provider.py --rivals         the better of two providers against the
                                                                               plan for which both were timed
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cpu import ROWS, Model

__all__ = ["ATOL", "PROVIDERS", "RTOL", "main"]

MAX_RATIO = 1.03
TURN_S = 0.1
RTOL, ATOL = 1e-3, 1e-4
PROVIDERS = ["openvino", "cpu"]
RIVALS = ["openvino", "onnxruntime"]


def _start_openvino(path: str) -> Callable[[dict[str, Any]], Any]:
    import openvino

    compiled = openvino.Core().compile_model(path, "CPU")
    return lambda feeds: list(compiled(feeds).values())


def _start_dovetail(path: str) -> Callable[[dict[str, Any]], Any]:
    import dovetail

    engine = dovetail.load(path)
    return lambda feeds: engine(**feeds)


def _serve(model: Model, path: str) -> None:
    """Get ready, then run for a while whenever a line comes; the last line is the median in milliseconds."""
    run = (_start_dovetail if path.endswith(".plan") else _start_openvino)(path)
    feeds = {name: one.make() for name, one in model.inputs.items()}
    run(feeds)
    print("ready", flush=True)
    times: list[float] = []
    for _ in sys.stdin:
        end = time.perf_counter() + TURN_S
        while time.perf_counter() < end:
            start = time.perf_counter()
            run(feeds)
            times.append((time.perf_counter() - start) * 1e3)
        print("done", flush=True)
    print(statistics.median(times))


class _Worker:
    """A process that has a model ready and runs it when told to."""

    def __init__(self, name: str, path: str) -> None:
        command = [sys.executable, __file__, "--worker", name, path]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, text=True, **pipes)
        self._await("ready")

    def _await(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word:
            raise RuntimeError(f"{self._process.args} failed")

    def take_turn(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self._await("done")

    def end(self) -> float:
        told, _ = self._process.communicate()
        return float(told)


def _build(model: Model, plan: str, providers: Sequence[str] = PROVIDERS, *, rivals: bool = False) -> str:
    """Build the plan, compare its results with ONNX Runtime's, and tell by how much they differ at most."""
    import numpy as np
    import onnxruntime

    import dovetail

    path = str(model.file())
    feeds = {name: one.make() for name, one in model.inputs.items()}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    shapes = {name: array.shape for name, array in feeds.items()}
    config = dovetail.BuilderConfig()
    config.rivals, config.rival_inputs = rivals, feeds if rivals else {}
    with dovetail.compile(path, providers=providers, shapes=shapes, config=config) as engine:
        engine.save(plan)
        results = engine(**feeds)
    found = list(results.values()) if isinstance(results, dict) else [results]
    pairs = list(zip(found, expected, strict=True))
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=RTOL, atol=ATOL)
    return f"{max(float(np.max(np.abs(one - other), initial=0)) for one, other in pairs):.1e}"


def _takes(model: Model) -> bool:
    """Whether OpenVINO can compile a model by itself."""
    try:
        _start_openvino(str(model.file()))
    except RuntimeError:
        return False
    return True


def _time(files: Mapping[str, str], model: Model, rounds: int, seconds: float) -> dict[str, list[float]]:
    """What each side takes in each round, in milliseconds."""
    seen: dict[str, list[float]] = {side: [] for side in files}
    for number in range(rounds):
        first = number % len(files)
        sides = [*files][first:] + [*files][:first]
        workers = {side: _Worker(model.name, files[side]) for side in sides}
        for _ in range(max(1, round(seconds / TURN_S))):
            for worker in workers.values():
                worker.take_turn()
        for side, worker in workers.items():
            seen[side].append(worker.end())
    return seen


def _measure_rivals(model: Model, rounds: int, seconds: float) -> float:
    """Print a row: the better of two plans over one provider each, twice, and the plan for which both were timed."""
    with tempfile.TemporaryDirectory() as folder:
        plans = {name: str(Path(folder, f"{name}.plan")) for name in (*RIVALS, "rivals")}
        for name in RIVALS:
            _build(model, plans[name], [name, "cpu"])
        _build(model, plans["rivals"], [*RIVALS, "cpu"], rivals=True)
        alone = _time({name: plans[name] for name in RIVALS}, model, 1, seconds)
        better = min(alone, key=lambda name: alone[name])
        files = {"better": plans[better], "rivals": plans["rivals"], "itself": plans[better]}
        seen = _time(files, model, rounds, seconds)
    ours, theirs = statistics.median(seen["rivals"]), statistics.median(seen["better"] + seen["itself"])
    itself = statistics.median(seen["itself"]) / statistics.median(seen["better"])
    print(f"{model.name:<18}{better:>14}{theirs:>10.3f}{ours:>10.3f}{ours / theirs:>8.3f}{itself:>8.3f}", flush=True)
    return ours / theirs


def _measure(model: Model, rounds: int, seconds: float) -> float | None:
    """Print a row and give the ratio; None where OpenVINO alone does not take the model."""
    with tempfile.TemporaryDirectory() as folder:
        plan = str(Path(folder, "m.plan"))
        error = _build(model, plan)
        if not _takes(model):
            print(f"{model.name:<18}{'does not take it':>46}{error:>10}", flush=True)
            return None
        files = {"openvino": str(model.file()), "dovetail": plan, "itself": str(model.file())}
        seen = _time(files, model, rounds, seconds)
    ours, control = statistics.median(seen["dovetail"]), statistics.median(seen["itself"])
    theirs = statistics.median(seen["openvino"] + seen["itself"])
    itself = control / statistics.median(seen["openvino"])
    print(f"{model.name:<18}{theirs:>10.3f}{ours:>10.3f}{ours / theirs:>8.3f}{itself:>8.3f}{error:>10}", flush=True)
    return ours / theirs


def main() -> None:
    """Print the table, or as a worker one side of one row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of rows; all of them by default")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each process runs its model")
    parser.add_argument("--rivals", action="store_true", help="time the better of two providers against both")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    rows = {model.name: model for model in ROWS}
    if args.worker:
        name, path = args.worker
        _serve(rows[name], path)
        return
    measure, header = _measure, f"{'model':<18}{'OpenVINO':>10}{'ours ms':>10}{'ratio':>8}{'itself':>8}{'error':>10}"
    if args.rivals:
        measure, header = (
            _measure_rivals,
            f"{'model':<18}{'better':>14}{'ms':>10}{'rivals':>10}{'ratio':>8}{'itself':>8}",
        )
    print(header)
    ratios = [measure(rows[name], args.rounds, args.seconds) for name in args.models or rows]
    mean = statistics.geometric_mean([ratio for ratio in ratios if ratio is not None])
    print(f"geometric mean {mean:.3f}, at most {MAX_RATIO}: {'met' if mean <= MAX_RATIO else 'MISSED'}")


if __name__ == "__main__":
    main()
