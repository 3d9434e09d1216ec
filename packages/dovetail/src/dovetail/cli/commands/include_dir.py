"""``dovetail include-dir``: where the C++ headers for plugin libraries are."""

from __future__ import annotations

import argparse
from pathlib import Path

import dovetail
from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import finish_command
from dovetail.cli.screen import Screen

__all__ = ["declare", "run"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)


def run(args: argparse.Namespace) -> Reply:
    """Find the folder beside the package."""
    return Reply(document={"include_dir": str(Path(dovetail.__file__).parent / "include")}, show=_show)


def _show(document: Document, screen: Screen) -> None:
    screen.line(document["include_dir"])
