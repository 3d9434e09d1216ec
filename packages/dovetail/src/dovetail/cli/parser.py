"""The parser of all commands; its errors are usage errors like any other."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Final, NoReturn

from dovetail._version import __version__
from dovetail.cli.options import describe
from dovetail.errors import UsageError

__all__ = ["COMMANDS", "find_command", "make_parser"]

COMMANDS: Final = {
    "build": "build a plan from an ONNX model, tuned by measuring",
    "run": "run a plan or a model once and show its outputs",
    "bench": "time a plan or a model",
    "compare": "compare the outputs of a model with those of a reference",
    "reduce": "shrink a model that fails to the smallest that still fails",
    "inspect": "show what a plan holds, without running any code of it",
    "replace": "replace a part of an ONNX model by one node, for a plugin to take",
    "check": "take a plugin through its whole life and judge it by every rule",
    "plan": "judge plan files",
    "provider": "look at back ends",
    "plugin": "look at custom layers",
    "parity": "compare what two back ends cover: operators, versions and types",
    "env": "describe this installation, ready to paste into a report",
}
"""Each command and what it is for; the module of the same name declares its arguments and runs it."""

_EPILOG = """\
exit codes:
  0 ok   1 usage   2 model, input or plugin rejected   3 unsupported, or the build failed
  4 a difference, or the timing cache   5 plan   6 memory, disk, device or package missing   70 internal error
"""


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        fix = f"see '{self.prog} -h'"
        if message.startswith("the following arguments are required") and "COMMAND" not in message:
            fix += "; an option that takes several values takes all that follow it, so name the file first"
        raise UsageError(message, fix=fix)


def find_command(words: Sequence[str]) -> str | None:
    """The command that a command line names: its first word that is no option, as none before it takes a value."""
    return next((word for word in words if not word.startswith("-")), None)


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser; what it returns has ``run``, the command, and ``json``.

    Args:
        command: The only one whose arguments will be needed, so that no other module is imported; None for all.
    """
    parser = _Parser(
        prog="dovetail",
        description="An inference engine made of plug-ins: build a plan from a model, run it, look into it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dovetail {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands")
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(name, help=summary, description=describe(summary), allow_abbrev=False)
        if command in (None, name):
            importlib.import_module(f"dovetail.cli.{name}").declare(subparser)
    return parser
