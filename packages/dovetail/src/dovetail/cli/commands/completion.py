"""``dovetail completion``: what completes commands, options and files in a shell."""

from __future__ import annotations

import argparse
from typing import Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import finish_command
from dovetail.cli.screen import Screen

__all__ = ["SHELLS", "declare", "run"]

SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = ("PLAN", "MODEL", "FILE", "LIB", "TARGET", "INPUT", "OTHER")
_FOLDERS: Final = ("DIR",)
_INSTALL: Final = {
    "bash": 'eval "$(dovetail completion bash)"  # in ~/.bashrc',
    "zsh": "dovetail completion zsh > ~/.zfunc/_dovetail  # with fpath+=~/.zfunc before compinit in ~/.zshrc",
    "fish": "dovetail completion fish > ~/.config/fish/completions/dovetail.fish",
}


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    lines = [f"  {shell:<5} {_INSTALL[shell]}" for shell in SHELLS]
    parser.epilog = "\n".join(["to use it:", *lines])
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def run(args: argparse.Namespace) -> Reply:
    """Make the script from the arguments that every command declares."""
    import shtab

    from dovetail.cli.parser import make_parser

    parser = make_parser()
    _mark_paths(parser, shtab.FILE, shtab.DIRECTORY)
    script = shtab.complete(parser, args.shell)
    return Reply(document={"shell": args.shell, "script": script}, show=_show)


def _mark_paths(parser: argparse.ArgumentParser, file: Any, folder: Any) -> None:
    """Say which arguments are files and folders, as their names in the help do."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _mark_paths(inner, file, folder)
        elif isinstance(action.metavar, str) and action.choices is None:
            if action.metavar.startswith(_FOLDERS):
                action.complete = folder  # type: ignore[attr-defined]
            elif any(word in action.metavar for word in _FILES):
                action.complete = file  # type: ignore[attr-defined]


def _show(document: Document, screen: Screen) -> None:
    screen.raw(document["script"])
