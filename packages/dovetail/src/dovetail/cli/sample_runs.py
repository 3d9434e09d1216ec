"""Many samples, one after the other: progress, a result file each, and no sample that was run before run again."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail._version import __version__
from dovetail.cli.answers import Document, Reply
from dovetail.cli.feeds import take_sample
from dovetail.cli.progress import make_monitor
from dovetail.cli.screen import Screen
from dovetail.cli.settings import read_settings
from dovetail.cli.shapes import format_shape
from dovetail.cli.targets import require_file
from dovetail.cli.values import describe_value, each_row
from dovetail.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.inputs.reader import InputReader
    from dovetail.loggers import ILogger
    from dovetail.runtime.engine import Engine
    from dovetail.tools.results.result_folder import ResultFolder

__all__ = ["identify_target", "run_samples"]

_SHOWN: Final = 20
_PART_BYTES: Final = 1 << 20
_EXIT_ODD: Final = 4


def run_samples(engine: Engine, reader: InputReader, args: argparse.Namespace, logger: ILogger) -> Reply:
    """Run every sample; results go to the folder of ``--save-outputs``, where there is one."""
    from dovetail.tools.engine_runs import EngineRunner
    from dovetail.tools.results.odd_elements import find_odd_elements
    from dovetail.tools.results.result_folder import ResultFolder, digest_feeds

    folder = None if args.save_outputs is None else ResultFolder(Path(args.save_outputs), option="--save-outputs")
    identity = "" if folder is None else identify_target(args)
    runner, rows = EngineRunner(engine), []
    with _progress(reader.count) as step:
        for sample in reader.samples():
            inputs, _ = take_sample(reader, sample, logger, strict=args.strict)
            key = digest_feeds(identity, inputs) if folder is not None else ""
            kept = None if folder is None or args.rerun else folder.find(sample.name, key)
            outputs = runner.run(inputs) if kept is None else _read_kept(kept, engine)
            path = _keep(folder, sample.name, key, outputs) if kept is None else kept
            odd = [each.describe() for each in find_odd_elements(outputs)] if args.validate else []
            rows.append(_describe(sample.name, outputs, path, odd, is_reused=kept is not None))
            step()
    return _reply(engine, rows, args)


def _keep(folder: ResultFolder | None, name: str, key: str, outputs: Mapping[str, Any]) -> Path | None:
    return None if folder is None else folder.write(name, key, outputs)


def _read_kept(path: Path, engine: Engine) -> dict[str, Any]:
    from dovetail.inputs.specs import specs_of_outputs
    from dovetail.tools.results.saved_outputs import read_outputs

    return read_outputs(path, specs_of_outputs(engine.manifest))


def _describe(
    name: str, outputs: Mapping[str, Any], path: Path | None, odd: Sequence[str], *, is_reused: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "outputs": [describe_value(output, value) for output, value in outputs.items()],
        "file": None if path is None else str(path),
        "is_reused": is_reused,
        "odd": list(odd),
    }


def _reply(engine: Engine, rows: Sequence[Mapping[str, Any]], args: argparse.Namespace) -> Reply:
    num_odd = sum(bool(row["odd"]) for row in rows)
    document = {
        "engine": engine.name,
        "samples": list(rows),
        "num_run": sum(not row["is_reused"] for row in rows),
        "num_reused": sum(row["is_reused"] for row in rows),
        "folder": args.save_outputs,
        "num_odd": num_odd if args.validate else None,
    }
    return Reply(document=document, show=_show, exit_code=_EXIT_ODD if num_odd else 0)


@contextmanager
def _progress(count: int | None) -> Iterator[Callable[[], None]]:
    """A bar on a terminal; what it gives is called after each sample."""
    monitor, done, start = make_monitor(quiet=False, verbose=False), 0, time.perf_counter()

    def step() -> None:
        nonlocal done
        done += 1
        if monitor is not None and count is not None:
            monitor.step_complete("samples", done - 1)
        elif monitor is not None:  # only the loader knows how many there are
            monitor.still_running(f"{done} sample(s)", time.perf_counter() - start)

    if monitor is not None:
        monitor.phase_start("samples", None, count or 0)
    try:
        yield step
    finally:
        if monitor is not None:
            monitor.phase_finish("samples")


def identify_target(args: argparse.Namespace) -> str:
    """A digest of all that decides what is computed, except the inputs: the files, and how a model is built."""
    import xxhash

    digest = xxhash.xxh3_128(repr((__version__, read_settings(args), sorted(args.provider_option))).encode())
    for path in (require_file(args.target), *_external_files(args), *_library_files(args.plugins)):
        digest.update(str(path.name).encode())
        with open_regular(path, follow=True) as file:
            while part := file.read(_PART_BYTES):
                digest.update(part)
    return str(digest.hexdigest())


def _external_files(args: argparse.Namespace) -> list[Path]:
    """The files in which a model has weights."""
    from dovetail.cli.targets import is_plan

    path = require_file(args.target)
    if is_plan(path):
        return []
    import onnx_ir as ir

    from dovetail.tools.sides import read_source

    values = read_source(path).graph.initializers.values()
    files = {Path(v.const_value.path) for v in values if isinstance(v.const_value, ir.ExternalTensor)}
    return sorted(files)


def _library_files(libraries: Sequence[str]) -> list[Path]:
    paths = [Path(text) for text in libraries if not text.startswith("@")]
    return [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]


def _show(document: Document, screen: Screen) -> None:
    samples = document["samples"]
    screen.title(f"Outputs of {len(samples)} samples")
    rows = [
        (sample["name"], row["name"], row["dtype"], _shape(row), *(_number(row[key]) for key in ("min", "max", "mean")))
        for sample in samples[:_SHOWN]
        for row in each_row(sample["outputs"])
    ]
    screen.table(("sample", "output", "type", "shape", "min", "max", "mean"), rows, right=(4, 5, 6))
    if len(samples) > _SHOWN:
        screen.line(f"... and {len(samples) - _SHOWN} more samples; --json has all")
    for sample in samples:
        for text in sample["odd"]:
            screen.line(f"{sample['name']}: {text}")
    if document["folder"] is not None:
        reused = f"; {document['num_reused']} were there already" if document["num_reused"] else ""
        screen.line(f"wrote {document['num_run']} results to {document['folder']}{reused}")
    if document["num_odd"] is not None:
        bad = f"NOT VALID: outputs of {document['num_odd']} samples have NaN or infinity"
        screen.title(bad if document["num_odd"] else "valid: every element of the outputs is finite")


def _shape(row: Mapping[str, Any]) -> str:
    return "-" if row["shape"] is None else format_shape(row["shape"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
