"""``dovetail trtexec``: a command that takes the flags of ``trtexec``, and prints what its readers look for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

__all__ = ["declare"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Take all words as they are: the flags are those of another program, with their own spelling and errors."""

    def keep_words(words: Sequence[str] | None = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:
        found = argparse.Namespace() if namespace is None else namespace
        found.words, found.run = list(words or ()), _run
        return found, []

    parser.parse_known_args = keep_words  # type: ignore[assignment, method-assign]


def _run(args: argparse.Namespace) -> Any:
    """Run, with everything printed as it happens; the answer has the exit code alone."""
    from dovetail.cli.answers import Reply
    from dovetail.cli.streams import writing_output
    from dovetail_tensorrt.trtexec.command import run_trtexec

    with writing_output() as stream:
        exit_code = run_trtexec(args.words, stream)
    return Reply(document={}, show=lambda document, screen: None, exit_code=exit_code)
