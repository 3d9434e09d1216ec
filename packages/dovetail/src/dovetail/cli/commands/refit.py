"""``dovetail refit``: a plan with other weights, without building it again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.files import keep_apart
from dovetail.cli.options import add_trust, finish_command
from dovetail.cli.screen import Screen, format_bytes
from dovetail.cli.settings import add_provider_options, apply_provider_options
from dovetail.cli.targets import StderrLogger, is_plan, load_engine, require_file
from dovetail.errors import UsageError
from dovetail.loggers import Severity

__all__ = ["declare", "run"]

_SHOWN: Final = 10


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.add_argument("plan", metavar="PLAN", help="a plan that was built with --refit or --strip-weights")
    parser.add_argument(
        "--weights",
        required=True,
        metavar="FILE",
        help="the new weights by name: an ONNX model, a .npz or a .safetensors file",
    )
    parser.add_argument("-o", "--output", metavar="PLAN", help="where to write the new plan (default: in its place)")
    parser.add_argument("--strict", action="store_true", help="an error where there would otherwise be a warning")
    add_trust(parser)
    add_provider_options(parser)


def run(args: argparse.Namespace) -> Reply:
    """Replace the weights whose names agree, and write the plan."""
    from dovetail.tools.refit.refit_plan import refit_engine
    from dovetail.tools.refit.weight_files import read_weights

    plan = require_file(args.plan, expected="a plan")
    if not is_plan(plan):
        fix = "build it with 'dovetail build --refit'"
        raise UsageError("this is no plan", where=f"'{args.plan}'", expected="a plan", fix=fix)
    keep_apart({"-o": args.output}, [args.weights])
    target = plan if args.output is None else Path(args.output)
    apply_provider_options(args.provider_option)
    logger = StderrLogger()
    weights = read_weights(require_file(args.weights, expected="a file of weights"))
    with load_engine(plan, args, logger) as engine:
        result = refit_engine(engine, weights, where=f"'{args.weights}'")
        document: dict[str, Any] = {
            "plan": str(target),
            "replaced": list(result.replaced),
            "kept": list(result.kept),
            "excluded": dict(result.excluded),
            "unknown": list(result.unknown),
        }
        _tell(document, logger, strict=args.strict)
        engine.save(target)
    document |= {"size_bytes": target.stat().st_size, "warnings": logger.warnings}
    return Reply(document=document, show=_show)


def _tell(document: Document, logger: StderrLogger, *, strict: bool) -> None:
    """Tell of weights that stay as they were although somebody may think otherwise."""
    texts = [f"weight '{name}' is not replaced: {reason}" for name, reason in document["excluded"].items()]
    if document["kept"]:
        names = ", ".join(document["kept"][:_SHOWN])
        texts.append(f"{len(document['kept'])} weight(s) of the plan are not in the file and stay as they are: {names}")
    for text in texts:
        if strict:
            raise UsageError(text, where="--weights")
        logger.log(Severity.WARNING, text)


def _show(document: Document, screen: Screen) -> None:
    unknown = f"; {len(document['unknown'])} tensor(s) of the file are no weights of it" if document["unknown"] else ""
    size = format_bytes(document["size_bytes"])
    screen.line(f"{document['plan']}: {size}, {len(document['replaced'])} weight(s) replaced{unknown}")
