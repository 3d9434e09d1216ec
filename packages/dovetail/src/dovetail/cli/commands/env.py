"""``dovetail env``: what is installed and what it runs on, to paste into a report."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Final

from dovetail._extras import PACKAGES, install_line
from dovetail._version import __version__
from dovetail.cli.answers import Document, Reply
from dovetail.cli.catalogue import list_offered
from dovetail.cli.commands.provider import describe_providers
from dovetail.cli.options import finish_command
from dovetail.cli.screen import Screen, format_bytes

__all__ = ["declare", "run"]

_VARIABLES: Final = ("DOVETAIL_", "NO_COLOR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)


def run(args: argparse.Namespace) -> Reply:
    """Look around; nothing is sent anywhere."""
    packages = {extra: {name: _version(name) for name in names} for extra, names in PACKAGES.items()}
    document = {
        "dovetail": __version__,
        "python": _python(),
        "platform": _platform(),
        "cpus": _cpus(),
        "memory_bytes": _memory_bytes(),
        "packages": {name: version for group in packages.values() for name, version in group.items()},
        "missing_extras": {
            extra: [name for name, version in group.items() if version is None]
            for extra, group in packages.items()
            if None in group.values()
        },
        "providers": _providers(),
        "commands": [
            {"name": offer.name, "origin": offer.origin, "reason": problem} for offer, problem in list_offered()
        ],
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES)},
    }
    return Reply(document=document, show=_show)


def _providers() -> list[dict[str, Any]]:
    """The providers; where a package that they need is missing, that is said elsewhere in the answer."""
    try:
        return describe_providers()
    except ModuleNotFoundError:
        return []


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _python() -> str:
    import platform

    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return f"{platform.python_implementation()} {platform.python_version()}{'' if gil else ', free-threaded'}"


def _platform() -> str:
    import platform

    return platform.platform()


def _cpus() -> dict[str, int | None]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"total": os.cpu_count(), "usable": usable}


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this system
        return None


def _show(document: Document, screen: Screen) -> None:
    cpus, memory = document["cpus"], document["memory_bytes"]
    screen.facts(
        [
            ("dovetail", document["dovetail"]),
            ("python", document["python"]),
            ("platform", document["platform"]),
            ("cpus", f"{cpus['usable']} of {cpus['total']}"),
            ("memory", "unknown" if memory is None else format_bytes(memory)),
            *((name, version or "not installed") for name, version in document["packages"].items()),
            *(("provider", _provider_text(provider)) for provider in document["providers"]),
            *(("command", _command_text(command)) for command in document["commands"]),
            *((name, value) for name, value in document["environment"].items()),
        ]
    )
    for extra, names in document["missing_extras"].items():
        screen.line(f"missing: {', '.join(names)} ({install_line(extra)})")


def _command_text(command: dict[str, Any]) -> str:
    reason = "" if command["reason"] is None else f": not available, {command['reason']}"
    return f"{command['name']} ({command['origin']}){reason}"


def _provider_text(provider: dict[str, Any]) -> str:
    if not provider["available"]:
        return f"{provider['name']} ({provider['origin']}): not available, {provider['reason']}"
    devices = ", ".join(f"{device['name']} [{device['fingerprint']}]" for device in provider["devices"])
    return f"{provider['name']} {provider['version']}: {devices}"
