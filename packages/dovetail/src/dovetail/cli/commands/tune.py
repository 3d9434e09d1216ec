"""``dovetail tune``: a plan built for a device that was not there, tuned where the device is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import finish_command
from dovetail.cli.progress import make_monitor
from dovetail.cli.screen import Screen, format_bytes
from dovetail.cli.settings import add_provider_options, apply_provider_options
from dovetail.cli.targets import StderrLogger, require_file
from dovetail.cli.tuning import add_tuning_options, apply_tuning_options, show_chosen, show_tuning, tuning_rows

if TYPE_CHECKING:
    from dovetail.build.config import BuilderConfig
    from dovetail.build.plan_tuning import TunedPlan
    from dovetail.loggers import ILogger

__all__ = ["declare", "run"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.add_argument("plan", metavar="PLAN", help="a plan that was built with --carry-candidates")
    parser.add_argument("-o", "--output", metavar="PLAN", help="where to write the tuned plan (default: in its place)")
    add_tuning_options(parser)
    add_provider_options(parser)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--verbose", action="store_true", help="show everything that was tried")
    amount.add_argument("--quiet", action="store_true", help="show no progress and no summary")


def run(args: argparse.Namespace) -> Reply:
    """Time the candidates and write the plan with what was chosen; one that is tuned already stays as it is."""
    plan = require_file(args.plan, expected="a plan")
    target = plan if args.output is None else Path(args.output)
    apply_provider_options(args.provider_option)
    logger = StderrLogger()
    tuned = _tune(plan, target, _make_config(args), logger)
    document = {
        "plan": str(target),
        "size_bytes": target.stat().st_size,
        "num_partitions": tuned.num_partitions,
        "layers": tuning_rows(tuned.manifest.tuning),
        "warnings": logger.warnings,
    }
    return Reply(document=document, show=_show_nothing if args.quiet else _show_verbose if args.verbose else _show)


def _tune(plan: Path, target: Path, config: BuilderConfig, logger: ILogger) -> TunedPlan:
    from dovetail.build.plan_tuning import tune_plan

    return tune_plan(plan, target, config, logger)


def _make_config(args: argparse.Namespace) -> BuilderConfig:
    from dovetail.build.config import BuilderConfig

    config = BuilderConfig()
    apply_tuning_options(args, config)
    config.progress_monitor = make_monitor(quiet=args.quiet, verbose=args.verbose)
    return config


def _show_nothing(document: Document, screen: Screen) -> None:
    """What ``--quiet`` shows."""


def _show(document: Document, screen: Screen) -> None:
    count = document["num_partitions"]
    what = f"{count} partition(s) tuned" if count else "there is nothing to tune, so it stays as it is"
    screen.line(f"{document['plan']}: {format_bytes(document['size_bytes'])}, {what}")
    show_chosen(document["layers"], screen)


def _show_verbose(document: Document, screen: Screen) -> None:
    _show(document, screen)
    show_tuning(document["layers"], screen)
