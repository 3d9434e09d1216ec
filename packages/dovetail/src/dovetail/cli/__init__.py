"""The command line: ``dovetail build | run | bench | compare | reduce | inspect | check | plan | ...``.

Nothing but the standard library is imported before a command runs, so that ``-h`` is quick. Each command is a module
that declares its arguments in ``declare`` and does its work in ``run``, which returns an ``Answer``; what it raises
becomes one message and an exit code (docs/cli.md) in ``dovetail.cli.failures``. Other packages add commands by entry
points (``dovetail.cli.catalogue``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dovetail.cli.answers import show_answer
from dovetail.cli.failures import report_failure
from dovetail.cli.parser import find_command, make_parser
from dovetail.cli.streams import accept_any_text, plain_warnings

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code comes back, and nothing is raised.

    Args:
        argv: The words after the program's name; those of the process by default.
    """
    accept_any_text()
    as_json = False
    try:
        try:
            words = sys.argv[1:] if argv is None else list(argv)
            args = make_parser(find_command(words) or "").parse_args(words)
        except SystemExit as end:  # -h and --version have printed what they had to
            return int(end.code or 0)
        as_json = args.json
        with plain_warnings():
            answer = args.run(args)
        show_answer(answer, as_json=as_json)
        return int(answer.exit_code)
    except BaseException as error:  # noqa: BLE001 - the last place: all become a message and a code
        return report_failure(error, as_json=as_json)
