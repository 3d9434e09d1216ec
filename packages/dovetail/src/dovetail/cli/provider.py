"""``dovetail provider list``: which back ends are here, and what they run on."""

from __future__ import annotations

import argparse
from typing import Any

from dovetail.cli.answers import Answer, Document
from dovetail.cli.options import add_subcommand
from dovetail.cli.screen import Screen
from dovetail.errors import ProviderError

__all__ = ["declare", "describe_providers", "run"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    add_subcommand(parser, "list", "list the back ends and their devices", run)


def run(args: argparse.Namespace) -> Answer:
    """List providers; one that does not load is listed with the reason."""
    return Answer(document={"providers": describe_providers()}, show=_show)


def describe_providers() -> list[dict[str, Any]]:
    """Every provider that can be asked for, with its devices, or why it cannot be used."""
    from dovetail.provider.loader import provider_names

    return [_describe(name) for name in provider_names()]


def _describe(name: str) -> dict[str, Any]:
    from dovetail.provider.loader import get_factory, get_provider

    try:
        factory = get_factory(name)
        devices = [_describe_device(device) for device in factory.devices()]
        kernels = len(get_provider(name).kernels) if devices else 0
    except (ProviderError, ImportError) as error:
        return {"name": name, "available": False, "reason": str(error).partition("\n")[0], "devices": []}
    return {
        "name": name,
        "available": bool(devices),
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
                provider.get("version", "-"),
                provider.get("kernels", "-"),
                devices or provider["reason"],
            )
        )
    screen.table(("provider", "version", "kernels", "devices"), rows, right=(2,))
