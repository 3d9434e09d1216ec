"""``dovetail lint``: known issues and costs in plugin sources."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import finish_command
from dovetail.cli.screen import Screen
from dovetail.errors import PluginError, UsageError

__all__ = ["declare", "run"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", nargs="*", metavar="PATH", help="Python and C++ sources, or folders with some")
    parser.add_argument(
        "--ignore", nargs="+", action="extend", default=[], metavar="RULE", help="rules to leave out: L08 L11"
    )
    parser.add_argument("--list", action="store_true", help="list the rules, and judge nothing")
    finish_command(parser, run)


def run(args: argparse.Namespace) -> Reply:
    """Judge sources; the code is 2 when a rule objects."""
    from dovetail_tensorrt import lint

    if args.list:
        return Reply(document={"rules": [asdict(rule) for _, rule in sorted(lint.RULES.items())]}, show=_show_rules)
    if not args.paths:
        raise UsageError("there is nothing to judge", expected="files or folders", fix="or give --list")
    result = lint.lint_paths(args.paths, ignore=args.ignore)
    rules = {rule.id: asdict(rule) for rule in result.rules}
    document = {
        "findings": [asdict(finding) | {"fix": rules[finding.rule]["fix"]} for finding in result.findings],
        "rules": rules,
        "files": list(result.files),
        "unread": list(result.unread),
    }
    return Reply(document=document, show=_show, exit_code=PluginError.exit_code if result.findings else 0)


def _show(document: Document, screen: Screen) -> None:
    for finding in document["findings"]:
        title = document["rules"][finding["rule"]]["title"]
        screen.line(f"{finding['path']}:{finding['line']}: {finding['rule']} {title}: {finding['what']}")
    for rule in document["rules"].values():
        screen.title(f"{rule['id']} {rule['title']}")
        screen.line(f"  why: {rule['why']}")
        screen.line(f"  fix: {rule['fix']}")
    for problem in document["unread"]:
        screen.line(f"not judged: {problem}")
    count = len(document["findings"])
    screen.title(f"{count or 'no'} finding(s) in {len(document['files'])} file(s)")


def _show_rules(document: Document, screen: Screen) -> None:
    rows = [(rule["id"], rule["title"], rule["fix"]) for rule in document["rules"]]
    screen.table(("rule", "what", "fix"), rows, prose=(1, 2))
