"""``dovetail provider list``: which back ends are here, where they come from, and what they run on.

``dovetail provider check``: does a back end keep the provider contract?
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import add_load, add_subcommand, open_subcommands
from dovetail.cli.screen import Screen
from dovetail.cli.settings import require_providers
from dovetail.errors import ProviderError, UsageError

if TYPE_CHECKING:
    from dovetail.provider.loader import ProviderListing

__all__ = ["declare", "describe_providers", "run"]

_MARKS: Final = {"passed": "pass", "failed": "FAIL", "not_offered": "-", "not_judged": "?"}


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = open_subcommands(parser)
    add_load(add_subcommand(verbs, "list", "list the back ends, where they come from, and their devices", run))
    _declare_check(add_subcommand(verbs, "check", "drive a back end through the whole contract, by rules", _check))


def run(args: argparse.Namespace) -> Reply:
    """List providers; one that does not load is listed with the reason."""
    return Reply(document={"providers": describe_providers(load=args.load)}, show=_show)


def describe_providers(*, load: bool = False) -> list[dict[str, Any]]:
    """Every provider with its devices, or why it cannot be used.

    Args:
        load: Import those of other packages too; otherwise they are listed by what their packages say.
    """
    from dovetail.provider.loader import list_providers

    return [_describe(listing, load) for listing in list_providers()]


def _describe(listing: ProviderListing, load: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": listing.name, "origin": listing.origin, "devices": [], "imported": False}
    if listing.problem is not None:
        return facts | {"available": False, "reason": listing.problem}
    if listing.origin != "built in" and not listing.is_imported and not load:
        return facts | {"available": None, "reason": "not imported"}
    return facts | _describe_loaded(listing.name)


def _describe_loaded(name: str) -> dict[str, Any]:
    from dovetail.provider.loader import get_factory, get_provider

    try:
        factory = get_factory(name)
        devices = [_describe_device(device) for device in factory.devices()]
        kernels = len(get_provider(name).kernels) if devices else 0
    except (ProviderError, ImportError) as error:
        return {"available": False, "reason": str(error).partition("\n")[0]}
    return {
        "available": bool(devices),
        "imported": True,
        "reason": None if devices else "no device",
        "version": factory.version,
        "api_version": factory.api_version,
        "kernels": kernels,
        "devices": devices,
    }


def _describe_device(device: Any) -> dict[str, Any]:
    return {
        "name": device.name,
        "kind": device.kind,
        "ordinal": device.ordinal,
        "fingerprint": device.fingerprint,
    }


def _show(document: Document, screen: Screen) -> None:
    rows = []
    for provider in document["providers"]:
        devices = ", ".join(f"{d['kind']} {d['ordinal']}: {d['name']}" for d in provider["devices"])
        rows.append(
            (
                provider["name"],
                provider["origin"],
                provider.get("version", "-"),
                provider.get("kernels", "-"),
                devices or _reason(provider),
            )
        )
    screen.table(("provider", "from", "version", "kernels", "devices"), rows, right=(3,), prose=(4,))
    if any(provider["available"] is None for provider in document["providers"]):
        screen.line("--load imports what is not imported yet, and so runs its code")


def _reason(provider: Document) -> str:
    return provider["reason"] if provider["available"] is None else f"cannot be used: {provider['reason']}"


# check


def _declare_check(parser: argparse.ArgumentParser) -> None:
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


def _check(args: argparse.Namespace) -> Reply:
    """Check, and fail when a rule is broken."""
    options = dict(_split(text) for text in args.option)
    require_providers([args.name], where="provider check")

    from dovetail.testing.provider_kit import check_provider

    report = check_provider(args.name, options=options, rules=args.rules or None, tolerance=args.tolerance)
    return Reply(document=report.to_dict(), show=_show_check, exit_code=0 if report.ok else ProviderError.exit_code)


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError("an option cannot be read", where=f"--option {text!r}", expected="name=value")
    return name, value


def _show_check(document: Document, screen: Screen) -> None:
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
