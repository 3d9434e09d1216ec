"""``dovetail check``: does a plugin keep the contract?"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import finish_command, positive_float, seed
from dovetail.cli.screen import Screen
from dovetail.cli.settings import require_providers
from dovetail.cli.shapes import parse_cases
from dovetail.errors import PluginError, UsageError

if TYPE_CHECKING:
    from dovetail.tools.plugin_device import PluginDevice

__all__ = ["declare", "parse_fields", "run"]

_MARKS: Final = {"passed": "pass", "failed": "FAIL", "not_applicable": "-"}


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET[:CREATOR]",
        help="a file, folder or module, and which creator or plugin class in it",
    )
    parser.add_argument("--explain", metavar="RULE", help="print the page of a rule, such as R39, and check nothing")
    parser.add_argument(
        "--fields", nargs="+", action="extend", default=[], metavar="K=V", help="values of the creator's fields"
    )
    parser.add_argument(
        "--shapes",
        nargs="+",
        action="extend",
        default=[],
        metavar="SHAPE[,...]",
        help="input shapes in order, one case each: 2x3x8x8,2x8; min:opt:max makes three cases",
    )
    parser.add_argument(
        "--types", nargs="+", action="extend", default=[], metavar="TYPE", help="input types: FLOAT HALF"
    )
    parser.add_argument(
        "--shape-inputs", nargs="+", action="extend", default=[], metavar="VALUES", help="values of shape inputs: 2x2"
    )
    parser.add_argument(
        "--provider",
        metavar="ID",
        help="check on a device of this back end, such as cuda or cuda:1, if the plugin's preferred_memory asks for it",
    )
    parser.add_argument("--strict", action="store_true", help="judge by the strict set too")
    parser.add_argument(
        "--seed", type=seed, default=0, metavar="N", help="decides the numbers in the inputs (default 0)"
    )
    parser.add_argument(
        "--timeout",
        type=positive_float,
        default=10.0,
        metavar="S",
        help="how long one callback may take (default 10 seconds)",
    )
    parser.add_argument(
        "--in-process", action="store_true", help="check in this process, for a debugger; a crash ends it"
    )


def run(args: argparse.Namespace) -> Reply:
    """Check, and fail when a rule is broken."""
    if args.explain:
        return _explain(args.explain)
    if args.target is None:
        raise UsageError("there is nothing to check", expected="a file, folder or module", fix="or give --explain RULE")
    fields = parse_fields(args.fields)
    cases = parse_cases(args.shapes)
    values = parse_cases(args.shape_inputs, option="--shape-inputs")

    from dovetail.plugin.check import check_path

    device = _find_device(args.provider)
    report = check_path(
        args.target,
        fields=fields or None,
        shapes=cases or None,
        types=args.types or None,
        shape_inputs=[shape for case in values for shape in case] or None,
        strict=args.strict,
        seed=args.seed,
        isolate=not args.in_process,
        timeout_s=args.timeout,
        device=device,
    )
    return Reply(document=report.to_dict(), show=_show, exit_code=0 if report.ok else PluginError.exit_code)


def _find_device(provider_id: str | None) -> PluginDevice | None:
    if provider_id is None:
        return None
    require_providers([provider_id], where="--provider")

    from dovetail.tools.plugin_device import PluginDevice

    return PluginDevice(provider_id)


def _explain(rule_id: str) -> Reply:
    from dovetail.plugin.check import explain_rule

    return Reply(document={"rule": rule_id.upper(), "page": explain_rule(rule_id)}, show=_show_page)


def _show_page(document: Document, screen: Screen) -> None:
    for line in document["page"].splitlines():
        screen.line(line)


def parse_fields(texts: Iterable[str]) -> dict[str, str]:
    """Field values by name.

    >>> parse_fields(["axis=1", "mode=a=b"])
    {'axis': '1', 'mode': 'a=b'}
    """
    fields: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError("a field cannot be read", where=f"--fields {text!r}", expected="name=value")
        if name in fields:
            raise UsageError(f"field '{name}' is given twice", where="--fields")
        fields[name] = value
    return fields


def _show(document: Document, screen: Screen) -> None:
    screen.line(f"checking {document['subject']}")
    for note in document["notes"]:
        screen.line(f"note: {note}")
    screen.table(("", "rule", "what", "finding"), [_row(rule) for rule in document["rules"]], prose=(2, 3))
    failed = [rule for rule in document["rules"] if rule["status"] == "failed"]
    for rule in failed:
        screen.title(f"{rule['id']} {rule['title']}")
        screen.line(f"  {rule['message']}")
        screen.line(f"  fix: {rule['fix']}")
        screen.line(f"  see: dovetail check --explain {rule['id']}")
    counts = document["counts"]
    screen.title(f"{counts['passed']} passed, {counts['failed']} failed, {counts['not_applicable']} not applicable")


def _row(rule: Document) -> tuple[str, ...]:
    finding = "see below" if rule["status"] == "failed" else rule["message"]
    return (_MARKS[rule["status"]], rule["id"], rule["title"], finding)
