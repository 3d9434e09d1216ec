"""``dovetail run``: run a plan or model on one sample or on many, and show or store what came out."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.feeds import open_reader, take_sample
from dovetail.cli.files import keep_apart
from dovetail.cli.options import add_model_options, add_target, finish_command, positive_float
from dovetail.cli.sample_runs import run_samples
from dovetail.cli.screen import Screen
from dovetail.cli.settings import add_build_settings
from dovetail.cli.shapes import parse_shapes
from dovetail.cli.targets import StderrLogger, open_engine
from dovetail.cli.values import describe_value, show_odd, show_values
from dovetail.errors import UsageError
from dovetail.files import write_file

if TYPE_CHECKING:
    from dovetail.inputs.reader import InputReader
    from dovetail.loggers import ILogger
    from dovetail.runtime.engine import Engine
    from dovetail.runtime.limits import RunLimits

__all__ = ["EXIT_ODD", "declare", "run"]

EXIT_ODD: Final = 4
"""A gate that was not passed: outputs are not finite."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    add_target(parser)
    add_model_options(parser)
    add_build_settings(parser)
    parser.add_argument(
        "--save-outputs",
        metavar="DIR|FILE.npz",
        help="write each output to a .npy file in this folder, or all to one .npz file; of several samples one .npz "
        "each to the folder",
    )
    parser.add_argument("--save-inputs", metavar="FILE.npz", help="write what the model was run on to one file")
    parser.add_argument("--rerun", action="store_true", help="run samples again whose results are in the folder")
    parser.add_argument("--validate", action="store_true", help="fail (code 4) when an output has NaN or infinity")
    parser.add_argument("--time-limit", type=positive_float, metavar="S", help="end the run after so many seconds")
    parser.add_argument(
        "--memory-limit", type=positive_float, metavar="MB", help="end the run when its values take so many megabytes"
    )


def run(args: argparse.Namespace) -> Reply:
    """Run once, or once for each sample."""
    from dovetail.inputs.specs import specs_of_manifest

    keep_apart({"--save-inputs": args.save_inputs, "--save-outputs": args.save_outputs}, [args.target, *args.inputs])
    shapes = parse_shapes(args.shapes)
    logger = StderrLogger()
    with open_engine(args, shapes, logger) as engine:
        reader = open_reader(specs_of_manifest(engine.manifest), args, shapes, logger)
        engine.run_limits = _read_limits(args)
        _check_options(args, reader)
        if not reader.is_single:
            return run_samples(engine, reader, args, logger)
        return _run_once(engine, reader, args, logger)


def _check_options(args: argparse.Namespace, reader: InputReader) -> None:
    """Refuse options that would have no effect."""
    is_folder = args.save_outputs is not None and not args.save_outputs.endswith(".npz")
    if args.rerun and (reader.is_single or not is_folder):
        expected = "several samples, and a folder for their results (--save-outputs DIR)"
        raise UsageError("there are no results to run again", where="--rerun", expected=expected)
    if not reader.is_single and args.save_outputs is not None and not is_folder:
        raise UsageError("several samples go to a folder", where="--save-outputs", got=args.save_outputs)
    if not reader.is_single and args.save_inputs is not None:
        raise UsageError("inputs are stored of one sample", where="--save-inputs", got="several samples")


def _run_once(engine: Engine, reader: InputReader, args: argparse.Namespace, logger: ILogger) -> Reply:
    from dovetail.inputs.array_files import pack_arrays
    from dovetail.tools.engine_runs import EngineRunner
    from dovetail.tools.results.odd_elements import find_odd_elements

    inputs, unset = take_sample(reader, reader.first(), logger, strict=args.strict)
    stored = pack_arrays(inputs) if args.save_inputs is not None else b""
    outputs = EngineRunner(engine).run(inputs)
    if args.save_inputs is not None:
        write_file(Path(args.save_inputs), stored, option="--save-inputs")
    files = _save(outputs, args.save_outputs) if args.save_outputs is not None else {}
    odd = find_odd_elements(outputs) if args.validate else []
    document = {
        "engine": engine.name,
        "inputs": [describe_value(name, array) for name, array in inputs.items()],
        "outputs": [_with_file(describe_value(name, value), files) for name, value in outputs.items()],
        "unset": [dim.to_dict() for dim in unset],
        "files": [*([args.save_inputs] if stored else []), *dict.fromkeys(files.values())],
        "odd": [{**each.to_dict(), "text": each.describe()} for each in odd] if args.validate else None,
    }
    return Reply(document=document, show=_show, exit_code=EXIT_ODD if odd else 0)


def _read_limits(args: argparse.Namespace) -> RunLimits | None:
    from dovetail.runtime.limits import RunLimits

    if args.time_limit is None and args.memory_limit is None:
        return None
    memory_bytes = None if args.memory_limit is None else max(1, int(args.memory_limit * 1e6))
    return RunLimits(time_s=args.time_limit, memory_bytes=memory_bytes)


def _save(outputs: Mapping[str, Any], target: str) -> dict[str, str]:
    """Write the outputs; the file of each array comes back."""
    from dovetail.tools.results.saved_outputs import flatten_outputs, pack_array, pack_outputs

    if target.endswith(".npz"):
        write_file(Path(target), pack_outputs(outputs), option="--save-outputs")
        return {name: target for name, _ in flatten_outputs(outputs)}
    files: dict[str, str] = {}
    for name, array in flatten_outputs(outputs):
        path = Path(target) / f"{_file_name(name, files)}.npy"
        write_file(path, pack_array(array), option="--save-outputs")
        files[name] = str(path)
    return files


def _file_name(name: str, taken: Mapping[str, str]) -> str:
    """A name that stays in the folder: names of tensors come from the model and may be anything."""
    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".")[:100] or "output"
    stems = {Path(path).stem for path in taken.values()}
    return stem if stem not in stems else f"{stem}.{len(taken)}"


def _with_file(row: dict[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    for item in row.get("items", ()):
        _with_file(item, files)
    if row["name"] in files:
        row["file"] = files[row["name"]]
    halves = [files[name] for name in (f"{row['name']}.keys", f"{row['name']}.values") if name in files]
    if row.get("items") and halves:
        row["files"] = halves
    return row


def _show(document: Document, screen: Screen) -> None:
    for side in ("inputs", "outputs"):
        screen.title(side.capitalize())
        show_values(document[side], screen)
    if document["odd"] is None:
        show_odd(document, screen)
    else:
        _show_validation(document["odd"], screen)
    for path in document["files"]:
        screen.line(f"wrote {path}")


def _show_validation(odd: list[Mapping[str, Any]], screen: Screen) -> None:
    for each in odd:
        screen.line(each["text"])
    screen.title("NOT VALID: outputs have NaN or infinity" if odd else "valid: every element of the outputs is finite")
