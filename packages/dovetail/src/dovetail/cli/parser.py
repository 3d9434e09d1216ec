"""The parser of all commands; its errors are usage errors like any other."""

from __future__ import annotations

import argparse
from typing import NoReturn

from dovetail._version import __version__
from dovetail.cli import bench, build, check, env, inspect, plan, plugin, provider, run
from dovetail.errors import UsageError

__all__ = ["make_parser"]

_EPILOG = """\
exit codes:
  0 ok   1 usage   2 model, input or plugin rejected   3 unsupported, or the build failed
  4 timing cache or accuracy gate   5 plan   6 memory, disk, device or package missing   70 internal error
"""


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        fix = f"see '{self.prog} -h'"
        if message.startswith("the following arguments are required"):
            fix += "; an option that takes several values takes all that follow it, so name the file first"
        raise UsageError(message, fix=fix)


def make_parser() -> argparse.ArgumentParser:
    """The parser; what it returns has ``run``, the command, and ``json``."""
    parser = _Parser(
        prog="dovetail",
        description="An inference engine made of plug-ins: build a plan from a model, run it, look into it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dovetail {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands")
    for command in (build, run, bench, inspect, check, plan, provider, plugin, env):
        command.add_parser(commands)
    return parser
