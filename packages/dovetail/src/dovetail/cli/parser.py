"""The parser of all commands; its errors are usage errors like any other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from dovetail._version import __version__
from dovetail.cli.catalogue import COMMANDS, list_offered, load_declare, summarize
from dovetail.cli.options import describe
from dovetail.cli.streams import writing_output
from dovetail.errors import PluginError, UsageError
from dovetail.near_names import suggest

__all__ = ["find_command", "make_parser"]

_EPILOG = """\
exit codes:
  0 ok   1 usage   2 model, input or plugin rejected   3 unsupported, or the build failed
  4 a difference, or the timing cache   5 plan   6 memory, disk, device or package missing   70 internal error
"""


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process, and knows what a misspelt word may have been."""

    def error(self, message: str) -> NoReturn:
        fix = self._help
        if message.startswith("the following arguments are required") and "COMMAND" not in message:
            fix += "; an option that takes several values takes all that follow it, so name the file first"
        raise UsageError(message, fix=fix)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is left over; the parser of the command that was given it knows its options."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            raise self._refuse(rest)
        return found, rest

    def _refuse(self, rest: Sequence[str]) -> UsageError:
        option = next((word.partition("=")[0] for word in rest if word.startswith("-")), None)
        if option is None:
            return UsageError(f"there is a word too many: {rest[0]!r}", fix=self._help)
        known = [text for action in self._actions for text in action.option_strings]
        return UsageError(f"there is no option '{option}'", where=self.prog, fix=self._advise(option, known))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        is_command = isinstance(action, argparse._SubParsersAction)
        what = f"there is no command {value!r}" if is_command else f"{value!r} is none of the choices"
        where = self.prog if is_command else "/".join(action.option_strings) or str(action.metavar)
        raise UsageError(what, where=where, expected=", ".join(known), fix=self._advise(str(value), known))

    def _advise(self, word: str, known: Sequence[str]) -> str:
        near = suggest(word, known)
        return f"{near} {self._help}" if near else self._help

    @property
    def _help(self) -> str:
        return f"see '{self.prog} -h'"

    def _print_message(self, message: str, file: Any = None) -> None:
        with writing_output() as stream:
            stream.write(message)


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
    return COMMANDS | {offer.name: summarize(offer) for offer in offers}


def _miss_function(args: argparse.Namespace) -> NoReturn:
    raise PluginError(
        "the command declares its arguments and not what runs it",
        fix="end its 'declare' with dovetail.cli.options.finish_command(parser, run)",
    )
