"""``dovetail trtexec``: build or load, run and report as the flags say; the last line and the exit code judge it."""

from __future__ import annotations

import json
import math
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import dovetail
from dovetail.errors import DovetailError, InternalError, UsageError
from dovetail.files import write_file
from dovetail.loggers import Severity
from dovetail.plan.inspect import inspect_plan
from dovetail_tensorrt.trtexec.console import Console
from dovetail_tensorrt.trtexec.engines import build_plan, find_providers, load_plan, prepare_plugins
from dovetail_tensorrt.trtexec.flags import FLAGS, SECTIONS
from dovetail_tensorrt.trtexec.inference import Lane, make_inputs, measure, profile
from dovetail_tensorrt.trtexec.summary import (
    EXPLANATIONS,
    describe_times,
    describe_trace,
    export_outputs,
    export_times,
    show_profile,
)
from dovetail_tensorrt.trtexec.words import Options, parse_words

__all__ = ["run_trtexec"]


def run_trtexec(words: Sequence[str], stream: TextIO) -> int:
    """Do what a command line says; 0 where it passed, 1 where it failed."""
    console = Console(stream, shlex.join(["trtexec", *words]), is_verbose="--verbose" in words)
    console.mark("RUNNING")
    try:
        options = parse_words(words)
        if options.has("help") or not words:
            _show_help(stream)
        else:
            _Session(options, console).run()
    except KeyboardInterrupt:
        console.mark("FAILED")
        raise
    except Exception as error:  # noqa: BLE001 - the last place: everything becomes a message and a verdict
        known = error if isinstance(error, DovetailError) else InternalError(f"{type(error).__name__}: {error}")
        console.log(Severity.ERROR, str(known))
        console.mark("FAILED")
        return 1
    console.mark("PASSED")
    return 0


def _show_help(stream: TextIO) -> None:
    for section in SECTIONS:
        stream.write(f"=== {section} Options ===\n")
        for flag in FLAGS.values():
            if flag.section == section:
                value = "" if flag.kind == "switch" else "=..."
                idle = f" (no effect: {flag.idle})" if flag.idle else ""
                stream.write(f"  --{flag.name + value:<34} {flag.help}{idle}\n")


class _Session:
    """One command line."""

    def __init__(self, options: Options, console: Console) -> None:
        self._options, self._console = options, console

    def run(self) -> None:
        options, console = self._options, self._console
        self._check()
        if options.has("getPlanVersionOnly"):
            return self._show_version()
        self._show_options()
        prepare_plugins(options)
        plan = self._build() if options.has("onnx") else None
        engine = self._load(plan)
        with engine:
            self._show_engine(engine)
            if options.has("timeDeserialize"):
                return self._time_loading(plan)
            if options.has("skipInference") or options.has("buildOnly"):
                console.say("Skipped inference phase since --skipInference is added.")
                return None
            self._measure(engine)
        return None

    def _check(self) -> None:
        options = self._options
        if options.has("onnx") == options.has("loadEngine"):
            raise UsageError(
                "one of --onnx and --loadEngine is needed, and only one",
                where="trtexec",
                fix="--onnx=model.onnx builds an engine, --loadEngine=file runs one that was saved",
            )
        if options.get("infStreams", 1) < 1 or options.get("iterations", 10) < 0 or options.get("avgRuns", 10) < 1:
            raise UsageError("a number of runs or streams is too small", where="trtexec")
        self._percents()

    def _percents(self) -> list[float]:
        texts = self._options.get("percentile", ["90", "95", "99"])
        try:
            found = [float(text) for text in texts]
        except ValueError:
            raise UsageError("percentiles are numbers", where="--percentile", got=",".join(texts)) from None
        if not all(0 <= percent <= 100 and math.isfinite(percent) for percent in found):
            raise UsageError("a percentile is from 0 to 100", where="--percentile", got=",".join(texts))
        return found

    # what was asked for

    def _show_options(self) -> None:
        options, console = self._options, self._console
        for section in SECTIONS:
            console.title(f"{section} Options")
            for name, value in options.values.items():
                if FLAGS[name].section == section:
                    console.say(f"{name}: {_show_value(value)}")
            if section == "Build":
                for index, bounds in enumerate(options.profiles):
                    for name, (low, opt, high) in bounds.complete().items():
                        console.say(
                            f"Input build shape (profile {index}): {name}={'+'.join(map(_dims, (low, opt, high)))}"
                        )
        for flag in options.idle:
            console.warn(f"--{flag.name} has no effect: {flag.idle}")
        console.title("Device Information")
        for name in find_providers():
            console.say(f"Provider: {name}")

    def _show_version(self) -> None:
        path = self._options.get("loadEngine")
        if path is None:
            raise UsageError("--getPlanVersionOnly needs --loadEngine", where="trtexec")
        self._console.say(f"Engine was written by: {inspect_plan(path)['producer']}")

    # engines

    def _build(self) -> bytes:
        options, console = self._options, self._console
        start = time.perf_counter()
        plan = build_plan(options, console)
        console.say(f"Engine built in {time.perf_counter() - start:.6g} sec.")
        console.say(f"Created engine with size: {len(plan) / (1 << 20):.6g} MiB")
        if options.has("saveEngine"):
            write_file(Path(options.get("saveEngine")), plan, option="--saveEngine")
        return plan

    def _load(self, plan: bytes | None) -> Any:
        start = time.perf_counter()
        engine = load_plan(self._options, plan, self._console)
        self._console.say(f"Engine deserialized in {time.perf_counter() - start:.6g} sec.")
        return engine

    def _time_loading(self, plan: bytes | None) -> None:
        times = []
        for _ in range(max(self._options.get("iterations", 10), 1)):
            start = time.perf_counter()
            load_plan(self._options, plan, self._console).close()
            times.append(time.perf_counter() - start)
        mean = sum(times) / len(times)
        self._console.say(f"Deserialization: min = {min(times):.6g} s, max = {max(times):.6g} s, mean = {mean:.6g} s")

    def _show_engine(self, engine: Any) -> None:
        options, console = self._options, self._console
        inspector = engine.create_engine_inspector()
        if options.has("dumpLayerInfo"):
            console.title("Layer Information")
            text = inspector.get_engine_information(dovetail.LayerInformationFormat.ONELINE)
            console.say(text.splitlines())
        if options.has("exportLayerInfo"):
            text = inspector.get_engine_information(dovetail.LayerInformationFormat.JSON)
            write_file(Path(options.get("exportLayerInfo")), text.encode(), option="--exportLayerInfo")
        if options.has("dumpOptimizationProfile"):
            for index, each in enumerate(engine.manifest.profiles):
                for name, bounds in each.shapes.items():
                    console.say(f"Profile {index}: {name}: {', '.join(map(_dims, bounds))}")
        if options.has("dumpRefit"):
            names = engine.manifest.refit.weights if engine.manifest.refit is not None else {}
            console.say([f"Refittable: {name}" for name in names] or ["No weights can be replaced."])

    # running

    def _measure(self, engine: Any) -> None:
        options, console = self._options, self._console
        inputs = make_inputs(engine, options)
        for name, array in inputs.items():
            console.say(f"Input '{name}' with dimensions {_dims(array.shape)} is used")
        lanes = [Lane(engine, inputs, options) for _ in range(options.get("infStreams", 1))]
        console.say("Starting inference")
        runs = measure(lanes, options)
        console.title("Trace details")
        console.say(describe_trace(runs, options.get("avgRuns", 10)))
        console.title("Performance summary")
        lines, warnings = describe_times(runs, self._percents(), len(lanes))
        console.say(lines)
        for warning in warnings:
            console.warn(warning)
        console.say("Explanations of the performance metrics are printed in the verbose logs.")
        for line in EXPLANATIONS:
            console.log(Severity.VERBOSE, line)
        if options.has("exportTimes"):
            self._write_json("exportTimes", export_times(runs))
        self._report_outputs(lanes[0], inputs)
        self._report_profile(lanes[0])

    def _report_profile(self, lane: Lane) -> None:
        options = self._options
        if not options.has("dumpProfile") and not options.has("exportProfile"):
            return
        rows = profile(lane, options)
        if options.has("dumpProfile"):
            self._console.say(show_profile(rows))
        if options.has("exportProfile"):
            self._write_json("exportProfile", rows)

    def _report_outputs(self, lane: Lane, inputs: Mapping[str, Any]) -> None:
        options = self._options
        outputs = lane.read_outputs()
        if options.has("dumpOutput"):
            self._console.say("Output Tensors:")
            for name, array in outputs.items():
                self._console.say(f"{name}: ({_dims(array.shape)})")
                self._console.say(" ".join(f"{value:.6g}" for value in array.reshape(-1).tolist()))
        if options.has("exportOutput"):
            self._write_json("exportOutput", export_outputs(outputs))
        if options.has("dumpRawBindingsToFile"):
            for mode, arrays in (("input", inputs), ("output", outputs)):
                for name, array in arrays.items():
                    self._write_raw(name, mode, array)

    def _write_raw(self, name: str, mode: str, array: Any) -> None:
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        path = Path(f"{plain}.{mode}.{'.'.join(map(str, array.shape)) or 'scalar'}.{array.dtype.name}.raw")
        write_file(path, array.tobytes(), option="--dumpRawBindingsToFile")
        self._console.say(f"Writing file {path} for {mode} binding {name}")

    def _write_json(self, flag: str, document: Any) -> None:
        text = json.dumps(document, indent=2, allow_nan=False)
        write_file(Path(self._options.get(flag)), text.encode(), option=f"--{flag}")


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _show_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{_dims(each) if isinstance(each, tuple) else each}" for name, each in value.items())
    return "Enabled" if value is True else ",".join(map(str, value)) if isinstance(value, list) else str(value)
