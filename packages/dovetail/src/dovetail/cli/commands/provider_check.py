"""``dovetail provider check``: does a back end keep the provider contract?"""

from __future__ import annotations

import argparse
from typing import Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.screen import Screen
from dovetail.cli.settings import require_providers
from dovetail.errors import ProviderError, UsageError

__all__ = ["check", "declare_check"]

_MARKS: Final = {"passed": "pass", "failed": "FAIL", "not_offered": "-", "not_judged": "?"}


def declare_check(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", metavar="NAME", help="the back end; it is imported, which runs its code")
    parser.add_argument(
        "--option", nargs="+", action="extend", default=[], metavar="K=V", help="options to make the back end with"
    )
    parser.add_argument(
        "--rules", nargs="+", action="extend", default=[], metavar="ID", help="judge by these rules only: P01 P20"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-3,
        metavar="T",
        help="how far results may be from those of cpu (default 1e-3)",
    )


def check(args: argparse.Namespace) -> Reply:
    """Check, and fail when a rule is broken."""
    options = dict(_split(text) for text in args.option)
    require_providers([args.name], where="provider check")

    from dovetail.testing.provider_kit import check_provider

    report = check_provider(args.name, options=options, rules=args.rules or None, tolerance=args.tolerance)
    return Reply(document=report.to_dict(), show=_show, exit_code=0 if report.ok else ProviderError.exit_code)


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError("an option cannot be read", where=f"--option {text!r}", expected="name=value")
    return name, value


def _show(document: Document, screen: Screen) -> None:
    screen.line(f"checking {document['subject']}")
    screen.table(("", "rule", "what", "finding"), [_row(rule) for rule in document["rules"]], prose=(2, 3))
    for rule in document["rules"]:
        if rule["status"] == "failed":
            screen.title(f"{rule['id']} {rule['title']}")
            screen.line(f"  {rule['message']}")
            screen.line(f"  why: {rule['why']}")
            screen.line(f"  fix: {rule['fix']}")
    screen.title(", ".join(f"{count} {status.replace('_', ' ')}" for status, count in document["counts"].items()))


def _row(rule: Document) -> tuple[str, ...]:
    words = {"failed": "see below", "not_offered": f"not offered: {rule['message']}"}
    finding = str(words.get(rule["status"], rule["message"]))
    return (_MARKS[rule["status"]], rule["id"], rule["title"], finding)
