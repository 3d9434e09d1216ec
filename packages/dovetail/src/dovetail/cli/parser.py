"""The parser of all commands; its errors are usage errors like any other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from dovetail._version import __version__
from dovetail.cli.catalogue import COMMANDS, list_offered, load_declare
from dovetail.cli.options import describe
from dovetail.errors import PluginError, UsageError

__all__ = ["find_command", "make_parser"]

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
        command: The only one whose arguments will be needed, so that no other module is imported; empty when only the
            list of commands will be; None for all of Dovetail's own.
    """
    parser = _Parser(
        prog="dovetail",
        description="An inference engine made of plug-ins: build a plan from a model, run it, look into it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dovetail {__version__}")
    parser.set_defaults(json=False, run=_miss_function)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands")
    needed = COMMANDS if command is None else [command] if command else []
    declares = {name: load_declare(name) for name in needed}
    for name, summary in _summaries(command).items():
        subparser = commands.add_parser(name, help=summary, description=describe(summary), allow_abbrev=False)
        if declare := declares.get(name):
            declare(subparser)
    return parser


def _summaries(command: str | None) -> dict[str, str]:
    """What each command is for; packages are searched for more when it is none of Dovetail's that is wanted."""
    if command in COMMANDS:
        return COMMANDS
    offers = [found.offer for found in list_offered() if found.problem is None]
    return COMMANDS | {offer.name: f"a command of {offer.origin}" for offer in offers}


def _miss_function(args: argparse.Namespace) -> NoReturn:
    raise PluginError(
        "the command declares its arguments and not what runs it",
        fix="end its 'declare' with dovetail.cli.options.finish_command(parser, run)",
    )
