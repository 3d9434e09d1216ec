"""``dovetail plan check``: is a plan as good here as where it was made?"""

from __future__ import annotations

import argparse

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import add_subcommand, open_subcommands
from dovetail.cli.screen import Screen
from dovetail.errors import PlanError

__all__ = ["declare", "run"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verb = add_subcommand(
        open_subcommands(parser), "check", "say whether a plan is optimal or usable here, or must be built again", run
    )
    verb.add_argument("plan", metavar="PLAN", help="the plan file")


def run(args: argparse.Namespace) -> Reply:
    """Judge a plan; only one that must be built again is a failure."""
    from dovetail.plan.compatibility import check_plan

    report = check_plan(args.plan)
    document = {"plan": args.plan, "verdict": report.verdict, "reasons": report.reasons, "notes": report.notes}
    return Reply(document=document, show=_show, exit_code=PlanError.exit_code if report.verdict == "rebuild" else 0)


def _show(document: Document, screen: Screen) -> None:
    screen.line(document["verdict"])
    for reason in document["reasons"]:
        screen.line(f"  because: {reason}")
    for note in document["notes"]:
        screen.line(f"  note: {note}")
