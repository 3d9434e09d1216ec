"""``dovetail migrate``: V2 plugins of a Python file rewritten to V3."""

from __future__ import annotations

import argparse
import difflib
import io
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import finish_command
from dovetail.cli.screen import Screen
from dovetail.cli.targets import require_file
from dovetail.errors import InputError, ResourceError
from dovetail.files import read_bytes, write_file

__all__ = ["declare", "run"]

_MAX_SOURCE_BYTES: Final = 64 << 20


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", metavar="FILE", help="a Python file with V2 plugins and their creators")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where the new file goes (default: beside the old one, NAME_v3.py)"
    )
    parser.add_argument("--diff", action="store_true", help="show what would change, and write nothing")
    finish_command(parser, run)


def run(args: argparse.Namespace) -> Reply:
    """Migrate one file; what could not be decided is in the answer."""
    migrate_source = _load_migration()
    path = require_file(args.source)
    old = _read(path)
    done = migrate_source(old, where=args.source)
    target = Path(args.output) if args.output else path.with_name(f"{path.stem}_v3.py")
    if not args.diff:
        write_file(target, done.code.encode(), option="-o")
    document = {
        "source": str(path),
        "output": None if args.diff else str(target),
        "plugins": list(done.plugins),
        "creators": list(done.creators),
        "notes": [asdict(note) for note in done.notes],
        "diff": _compare(old, done.code, str(path), str(target)),
    }
    return Reply(document=document, show=_show_diff if args.diff else _show)


def _load_migration() -> Any:
    try:
        from dovetail_tensorrt.migrate.module import migrate_source
    except ModuleNotFoundError as error:
        if error.name != "libcst":
            raise
        raise ResourceError(
            "this needs the package 'libcst', which is not installed", fix="pip install 'dovetail-tensorrt[migrate]'"
        ) from None
    return migrate_source


def _read(path: Path) -> str:
    try:
        return io.TextIOWrapper(io.BytesIO(read_bytes(path, _MAX_SOURCE_BYTES, follow=True)), "utf-8").read()
    except UnicodeDecodeError:
        raise InputError("the file is no UTF-8 text", where=f"'{path}'", expected="Python source") from None


def _compare(old: str, new: str, old_name: str, new_name: str) -> str:
    return "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), old_name, new_name))


def _show(document: Document, screen: Screen) -> None:
    classes = ", ".join([*document["plugins"], *document["creators"]])
    screen.line(f"wrote {document['output']}: {classes}")
    _show_notes(document, screen)
    screen.line(f"next: dovetail check {document['output']}")


def _show_diff(document: Document, screen: Screen) -> None:
    for line in document["diff"].splitlines():
        screen.line(line)
    _show_notes(document, screen)


def _show_notes(document: Document, screen: Screen) -> None:
    if document["notes"]:
        screen.title("left to you")
    for note in document["notes"]:
        screen.line(f"{document['source']}:{note['line']}: {note['what']}")
        screen.line(f"  {note['why']}")
