"""``dovetail report``: the picture of an engine, or of the difference of two, as one page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.commands import bench
from dovetail.cli.files import keep_apart
from dovetail.cli.options import add_model_options, add_trust, finish_command, positive_float
from dovetail.cli.screen import Screen, format_bytes
from dovetail.cli.settings import add_provider_options
from dovetail.cli.targets import require_file
from dovetail.errors import DovetailError, UsageError
from dovetail.files import write_file

__all__ = ["declare", "run"]

_DURATION_S: Final = 1.0


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.add_argument("plans", nargs="+", metavar="PLAN", help="a plan, or two to compare")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to write the page (default: the plan's name, .html)"
    )
    times = parser.add_mutually_exclusive_group()
    times.add_argument(
        "--profile", action="store_true", help="run the plans here and time each layer, and the peaks of their devices"
    )
    times.add_argument(
        "--times",
        action="append",
        default=[],
        metavar="FILE",
        help="what 'dovetail bench PLAN --profile --json' wrote; one for each plan",
    )
    parser.add_argument(
        "--duration",
        type=positive_float,
        metavar="S",
        help=f"with --profile, measure this long (default {_DURATION_S:g})",
    )
    add_trust(parser)
    add_model_options(parser)
    add_provider_options(parser)


def run(args: argparse.Namespace) -> Reply:
    """Describe the plans and write the page."""
    from dovetail.report.document import describe_engine
    from dovetail.report.page import make_page

    plans = _check_plans(args)
    keep_apart({"-o": args.output}, [*args.plans, *args.times, *args.inputs])
    _refuse_idle(args)
    times = [_measure(plan, args) for plan in plans] if args.profile else _read_times(plans, args.times)
    engines = [describe_engine(plan, found) for plan, found in zip(plans, times, strict=True)]
    target = Path(args.output) if args.output is not None else Path(plans[0].name).with_suffix(".html")
    page = make_page(engines).encode()
    write_file(target, page, option="-o")
    document = {"page": str(target), "size_bytes": len(page), "engines": engines}
    return Reply(document=document, show=_show)


def _check_plans(args: argparse.Namespace) -> list[Path]:
    if len(args.plans) > 2:
        raise UsageError(
            "a report compares two plans at most", where="PLAN", expected="one or two", got=len(args.plans)
        )
    return [require_file(text, expected="a plan") for text in args.plans]


def _refuse_idle(args: argparse.Namespace) -> None:
    """What a run needs means nothing without one."""
    options = ("duration", "shapes", "inputs", "image", "provider_option", "plugins", "host_code")
    idle = next((name for name in options if getattr(args, name)), None)
    if idle is not None and not args.profile:
        option = f"--{idle.replace('_', '-')}"
        raise UsageError("this has no effect: nothing is run", where=option, fix="add --profile, or leave it out")


def _read_times(plans: Sequence[Path], paths: Sequence[str]) -> list[dict[str, Any] | None]:
    from dovetail.report.times import load_bench

    if paths and len(paths) != len(plans):
        raise UsageError(
            "there is one file of times for each plan", where="--times", expected=len(plans), got=len(paths)
        )
    read = [load_bench(require_file(path, expected="a JSON file"), where=f"--times '{path}'") for path in paths]
    return [*read] or [None] * len(plans)


def _measure(plan: Path, args: argparse.Namespace) -> dict[str, Any]:
    """What a benchmark of the plan says, with the peaks of its providers."""
    parser = argparse.ArgumentParser()
    bench.declare(parser)
    given = parser.parse_args([str(plan), "--profile", f"--duration={args.duration or _DURATION_S}"])
    for name in ("plugins", "host_code", "no_device_code", "shapes", "inputs", "image", "seed", "provider_option"):
        setattr(given, name, getattr(args, name))
    answer = dict(bench.run(given).document)
    return {**answer, "peaks": _measure_peaks(answer["providers"])}


def _measure_peaks(providers: Sequence[str]) -> dict[str, dict[str, float]]:
    """What providers can do; those that cannot run the measurement have none, and the roofline says so."""
    try:
        from dovetail.tools.peaks import measure_peaks
    except ImportError:  # a plan runs without what builds one
        return {}
    peaks: dict[str, dict[str, float]] = {}
    for provider in providers:
        try:
            peaks[provider] = measure_peaks(provider)
        except DovetailError:
            continue
    return peaks


def _show(document: Document, screen: Screen) -> None:
    for engine in document["engines"]:
        layers = len(engine["programs"][0]["nodes"])
        timed = "timed" if engine["bench"] is not None else "not timed: --profile runs it and times each layer"
        screen.line(f"{engine['name']}: {engine['file']}, {layers} layer(s), {timed}")
    screen.line(f"wrote {document['page']} ({format_bytes(document['size_bytes'])}); open it in a browser")
