"""Recorder of one build on the CPU: plan, calls of plugins, log, phases and errors."""

from __future__ import annotations

import gc
import hashlib
import itertools
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

import dovetail as dt
from dovetail.build.progress import Phases
from dovetail.build.tune import tuner as tuner_module
from dovetail.build.tune.measure import Measurement
from dovetail.network.importer.importer import import_model
from dovetail.plan.manifest import encode_manifest
from tests.support.plugins import ScalePlugin

__all__ = ["BuildRecorder", "make_plain", "replay_case"]

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_TRACED: dict[Any, type] = {}


class _Log(dt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.lines.append(f"{severity!r}: {msg}")


class _Monitor(dt.IProgressMonitor):
    """Records phases; cancels the build after a number of steps, -1 for never."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.num_steps_left = -1

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        self.lines.append(f"start {phase_name} in {parent_phase}: {num_steps}")

    def step_complete(self, phase_name: str, step: int) -> bool:
        self.lines.append(f"step {phase_name} {step}")
        self.num_steps_left -= 1
        return self.num_steps_left != 0

    def phase_finish(self, phase_name: str) -> None:
        self.lines.append(f"finish {phase_name}")


class BuildRecorder:
    """One build: its configuration and everything observed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log, self.monitor = _Log(), _Monitor()
        self.builder = dt.Builder(self.log)
        self.config = self.builder.create_builder_config()
        self.config.providers = ["cpu"]
        self.config.progress_monitor = self.monitor
        self.timing_cache = self.config.create_timing_cache(b"")
        self.config.set_timing_cache(self.timing_cache, ignore_mismatch=True)
        self.calls: list[str] = []
        self.serials = itertools.count()
        self.plan: list[str] = []
        self.exits = ExitStack()

    def create_network(self, **options: Any) -> Any:
        """Create an empty network."""
        return self.builder.create_network(**options)

    def add_profile(self, **shapes: Any) -> None:
        """Add an optimization profile: a name and its (min, opt, max) shapes."""
        profile = self.builder.create_optimization_profile()
        for name, bounds in shapes.items():
            profile.set_shape(name, *bounds)
        self.config.add_optimization_profile(profile)

    def make_plugin(self, kind: type = ScalePlugin, **members: Any) -> Any:
        """Create a plugin whose calls are recorded with the number of the object."""
        return _make_traced(kind, members)(self)

    def build(self, network: Any, **options: Any) -> None:
        """Build a network and record the plan."""
        plan = self.builder.build_plan(network, self.config, **options)
        manifest = encode_manifest(plan.manifest)
        self.plan.append(msgspec.json.format(manifest, indent=1).decode())
        for blob in plan.blobs:
            data = memoryview(blob.data).cast("B")
            self.plan.append(f"blob {blob.name}: {data.nbytes} bytes {hashlib.sha256(data).hexdigest()}")

    def build_model(self, model: Any) -> None:
        """Build an ONNX model; without a profile as `dovetail.compile` does, with open dims."""
        imported = import_model(model, registry=self.builder.get_plugin_registry(), logger=self.log)
        self.build(imported, is_open=not self.config.profiles)


def _make_traced(kind: type, members: dict[str, Any]) -> type:
    key = (kind, tuple(sorted((name, repr(value)) for name, value in members.items())))
    if key not in _TRACED:

        def __init__(self: Any, recorder: BuildRecorder, factor: float = 2.0) -> None:  # noqa: N807
            kind.__init__(self, factor, [])  # type: ignore[misc]
            self.recorder, self.serial = recorder, next(recorder.serials)

        def note(self: Any, method: str, detail: Any = None) -> None:
            self.recorder.calls.append(f"#{self.serial} {method} {_describe_call(method, detail)}".rstrip())

        def clone(self: Any) -> Any:
            copy = type(self)(self.recorder, self.factor)
            serial = copy.serial
            copy.__dict__.update(self.__dict__)
            copy.serial = serial
            self.note("clone", serial)
            return copy

        body = {"__init__": __init__, "note": note, "clone": clone, "timing_cache_id": "replay", **members}
        _TRACED[key] = type(kind.__name__, (kind,), body)
    return _TRACED[key]


def _describe_call(method: str, detail: Any) -> str:
    if method == "configure_plugin":
        return " ".join(f"{d.desc.type} {d.desc.format} {d.desc.scale} {d.min} {d.opt} {d.max}" for d in detail)
    if method == "on_shape_change":
        return " ".join(f"{d.type} {d.format} {d.dims}" for d in detail)
    return "" if method == "enqueue" or detail is None else str(detail)


def _measure_fake(candidates: Any, *, worker: Any, timeout_s: float, **_: Any) -> list[Measurement]:
    """Run each candidate once and derive its time from its label."""
    rows = []
    for candidate in candidates:
        time_us, status, reason = float(zlib.crc32(candidate.label.encode()) % 1000 + 1), "timed", None
        try:
            worker.call(candidate.prepare, timeout_s)
            worker.call(candidate.run, timeout_s)
        except Exception as error:  # noqa: BLE001 - as `measure`: a candidate that fails is a result
            status, reason = "failed", tuner_module.describe_error(error)
        us = time_us if status == "timed" else None
        runs = int(status == "timed")
        row = {"id": candidate.id, "median_us": us, "low_us": us, "high_us": us, "rounds": runs, "runs": runs}
        rows.append(Measurement(**row, status=status, reason=reason))  # type: ignore[arg-type]
    return rows


@contextmanager
def _fixed_times() -> Iterator[None]:
    """Replace measurement and the clock of build phases."""
    ticks = itertools.count()
    defaults = Phases.__init__.__kwdefaults__
    measure, clock = tuner_module.measure, defaults["clock"]
    tuner_module.measure, defaults["clock"] = _measure_fake, lambda: next(ticks) * 1e-3
    try:
        yield
    finally:
        tuner_module.measure, defaults["clock"] = measure, clock


def make_plain(text: str, folder: Path) -> str:
    """Return text without paths of this machine and addresses of objects."""
    tools = Path(__file__).resolve().parents[1]  # of the current tree, also for a base revision
    for path, name in ((str(folder), "FOLDER"), (str(tools), "TREE/tools"), (str(Path.cwd()), "TREE")):
        text = text.replace(path, name)
    return _ADDRESS.sub("0xADDRESS", text)


def replay_case(run: Callable[[BuildRecorder], None]) -> str:
    """Run one case and return its canonical text.

    Args:
        run: Function that configures and builds with the recorder it receives.

    Returns:
        Sections with the error, the calls of plugins, the log, the phases, the timing-cache keys and the plan.
    """
    with tempfile.TemporaryDirectory() as folder, _fixed_times():
        recorder = BuildRecorder(Path(folder))
        error = ""
        try:
            with recorder.exits:
                run(recorder)
        except Exception as raised:  # noqa: BLE001 - errors are part of the text
            error = f"{type(raised).__module__}.{type(raised).__name__}: {raised}\ncause: {raised.__cause__!r}"
        gc.collect()
        sections = {
            "error": [error] if error else [],
            "calls": recorder.calls,
            "log": recorder.log.lines,
            "phases": recorder.monitor.lines,
            "timing-cache keys": sorted(recorder.timing_cache.query_keys()),
            "plan": recorder.plan,
        }
        text = "".join(f"== {title}\n" + "".join(f"{line}\n" for line in rows) for title, rows in sections.items())
        return make_plain(text, Path(folder))
