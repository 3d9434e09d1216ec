"""``dovetail provider list``: which back ends are here, where they come from, and what they run on.

``dovetail provider check`` is in ``provider_check``.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dovetail.cli.answers import Document, Reply
from dovetail.cli.commands.provider_check import check, declare_check
from dovetail.cli.options import add_load, add_subcommand, open_subcommands
from dovetail.cli.screen import Screen
from dovetail.errors import ProviderError

if TYPE_CHECKING:
    from dovetail.provider.loader import ProviderListing

__all__ = ["declare", "describe_providers", "run"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = open_subcommands(parser)
    add_load(add_subcommand(verbs, "list", "list the back ends, where they come from, and their devices", run))
    declare_check(add_subcommand(verbs, "check", "drive a back end through the whole contract, by rules", check))


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
