"""``dovetail reduce``: the smallest model that still fails."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.commands.compare import add_reference, read_model_inputs
from dovetail.cli.options import add_model_options, add_plugins, finish_command, positive_float, positive_int
from dovetail.cli.screen import Screen
from dovetail.cli.settings import add_build_settings, apply_provider_options, read_settings
from dovetail.cli.shapes import format_shape, parse_shapes
from dovetail.cli.streams import messages
from dovetail.cli.targets import StderrLogger, make_registry, require_file
from dovetail.errors import UsageError
from dovetail.files import write_file

if TYPE_CHECKING:
    from dovetail.tools.reduce import ReducePhase
    from dovetail.tools.reduction.reduce_failing import Check, ReducedModel

__all__ = ["declare", "run"]

_SHOWN_NODES: Final = 20
_CHECK_TIMEOUT_S: Final = 300.0


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.add_argument("model", metavar="MODEL", help="the ONNX model that fails")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to write the small model (default: the model's name, .small.onnx)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--mode",
        choices=("auto", "compare", "crash"),
        default="auto",
        help="how it fails: it differs from --against, it raises an error, or (default) whichever it does",
    )
    how.add_argument(
        "--check",
        metavar="COMMAND",
        help="a command that fails instead: '{model}' in it is the model (else it comes last), '{inputs}' a .npz file",
    )
    parser.add_argument("--shell", action="store_true", help="give the command of --check to a shell")
    parser.add_argument(
        "--check-timeout",
        type=positive_float,
        metavar="S",
        help=f"seconds it may take (default {_CHECK_TIMEOUT_S:g})",
    )
    parser.add_argument(
        "--max-tests", type=positive_int, default=1000, metavar="N", help="models to try at most (default 1000)"
    )
    parser.add_argument("--max-seconds", type=positive_float, metavar="S", help="begin no further trial after this")
    add_reference(parser)
    add_model_options(parser)
    add_plugins(parser)
    add_build_settings(parser)


def run(args: argparse.Namespace) -> Reply:
    """Reduce, and write the small model with the inputs on which it fails."""
    check = _read_check(args)
    path = require_file(args.model)
    target = Path(args.output) if args.output is not None else path.with_suffix(".small.onnx")
    if target.resolve() == path.resolve():
        raise UsageError("the small model would overwrite the model", where=str(target), fix="choose another with -o")
    reduced = _reduce(args, path, check)
    inputs = _save(reduced, target)
    document = _describe(reduced, args.model, target, inputs)
    return Reply(document=document, show=_show)


def _read_check(args: argparse.Namespace) -> Check | None:
    _require_sense(args)
    if args.check is None:
        return None
    try:
        words = [args.check] if args.shell else shlex.split(args.check)
    except ValueError as error:
        raise UsageError(f"the command cannot be read: {error}", where="--check") from None
    if not words:
        raise UsageError("the command is empty", where="--check")
    from dovetail.tools.reduction.reduce_failing import Check

    return Check(command=words, uses_shell=args.shell, timeout_s=args.check_timeout or _CHECK_TIMEOUT_S)


def _require_sense(args: argparse.Namespace) -> None:
    """Refuse options that nothing would read."""
    unread = {
        "--shell": args.shell and args.check is None,
        "--check-timeout": args.check_timeout is not None and args.check is None,
        "--atol": args.atol is not None and (args.check is not None or args.mode == "crash"),
        "--rtol": args.rtol is not None and (args.check is not None or args.mode == "crash"),
    }
    for option, is_unread in unread.items():
        if is_unread:
            without = "a comparison" if option.endswith("tol") else "--check"
            raise UsageError(f"{option} means nothing without {without}", where="reduce", fix=f"leave {option} out")


def _reduce(args: argparse.Namespace, path: Path, check: Check | None) -> ReducedModel:
    shapes, settings = parse_shapes(args.shapes), read_settings(args)
    apply_provider_options(args.provider_option)

    from dovetail.build.config import BuilderConfig
    from dovetail.loggers import Severity
    from dovetail.tools.differences import Tolerance
    from dovetail.tools.reduction.reduce_failing import reduce_failing
    from dovetail.tools.sides import DovetailSide

    candidate = DovetailSide(
        config=settings.apply(BuilderConfig()),
        registry=make_registry(args.plugins),
        override=settings.override,
        logger=StderrLogger(Severity.ERROR),  # each of many trials would warn of the same things
    )
    return reduce_failing(
        path,
        mode=args.mode,
        check=check,
        against=args.against or "onnxruntime",
        candidate=candidate,
        inputs=read_model_inputs(path, args),
        shapes={name: bounds.opt for name, bounds in shapes.items()},
        seed=args.seed,
        tolerance=Tolerance(atol=args.atol, rtol=args.rtol),
        max_tests=args.max_tests,
        max_seconds=args.max_seconds or float("inf"),
        on_phase=_tell_phase,
        logger=StderrLogger(),
    )


def _tell_phase(phase: ReducePhase) -> None:
    stream = messages()
    if stream.isatty():
        print(f"{phase.name}: {phase.num_nodes} node(s) left, {phase.num_tests} trial(s)", file=stream)


def _save(reduced: ReducedModel, target: Path) -> Path | None:
    """Write model and inputs; where the inputs went comes back."""
    from dovetail.inputs.array_files import pack_arrays
    from dovetail.tools.sides import save_model

    write_file(target, b"", option="-o")  # says in our words why a place cannot be written to
    save_model(reduced.result.model, target)
    if not reduced.inputs:
        return None
    inputs = target.with_suffix(".npz")
    write_file(inputs, pack_arrays(reduced.inputs), option="-o")
    return inputs


def _describe(reduced: ReducedModel, model: str, target: Path, inputs: Path | None) -> dict[str, Any]:
    result = reduced.result
    return {
        "model": model,
        "output": str(target),
        "inputs_file": None if inputs is None else str(inputs),
        "failure": reduced.failure,
        "unset": [dim.to_dict() for dim in reduced.unset],
        "is_complete": result.is_complete,
        "num_tests": result.num_tests,
        "num_nodes_before": result.num_nodes_before,
        "num_nodes": result.num_nodes,
        "phases": [
            {"name": phase.name, "num_nodes": phase.num_nodes, "num_tests": phase.num_tests} for phase in result.phases
        ],
        "nodes": reduced.describe_nodes(),
        "inputs": [_describe_value(name, value) for name, value in reduced.inputs.items()],
        "weights": [_describe_weight(value) for value in result.model.graph.initializers.values()],
    }


def _describe_value(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, list | tuple):
        return {"name": name, "dtype": f"sequence of {len(value)}", "shape": []}
    if isinstance(value, Mapping):
        return {"name": name, "dtype": f"map of {len(value)}", "shape": []}
    return {"name": name, "dtype": value.dtype.name, "shape": list(value.shape)}


def _describe_weight(value: Any) -> dict[str, Any]:
    dtype = "" if value.dtype is None else value.dtype.name.lower()
    return {"name": value.name, "dtype": dtype, "shape": list(value.shape or ())}


def _show(document: Document, screen: Screen) -> None:
    screen.line(
        f"{document['model']}: {document['num_nodes_before']} nodes became {document['num_nodes']} "
        f"in {document['num_tests']} trials; {document['failure']}"
    )
    if not document["is_complete"]:
        screen.line("it may get smaller still: the trials or the time ran out, or it was interrupted")
    screen.title("Kept")
    rows = [
        (node["name"], _op_text(node), ", ".join(node["inputs"]), ", ".join(node["outputs"]))
        for node in _kept(document)
    ]
    screen.table(("node", "op", "inputs", "outputs"), rows)
    if document["num_nodes"] > _SHOWN_NODES:
        screen.line(f"... and {document['num_nodes'] - _SHOWN_NODES} more")
    for kind in ("inputs", "weights"):
        for tensor in document[kind]:
            screen.line(f"{kind[:-1]} '{tensor['name']}': {tensor['dtype']} {format_shape(tensor['shape'])}")
    screen.title(f"wrote {document['output']}")
    if document["inputs_file"] is not None:
        screen.line(f"wrote {document['inputs_file']}, the inputs it fails on (--inputs)")


def _kept(document: Document) -> list[Any]:
    nodes: list[Any] = document["nodes"]
    return nodes[:_SHOWN_NODES]


def _op_text(node: Document) -> str:
    return f"{node['domain']}::{node['op']}" if node["domain"] else str(node["op"])
