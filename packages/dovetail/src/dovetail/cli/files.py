"""Writing the files that a command was asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from dovetail.errors import ResourceError, UsageError
from dovetail.files import is_out_of_space, replacing

__all__ = ["keep_apart", "write_file"]


def write_file(path: Path, content: bytes, *, option: str) -> None:
    """Write a file, whole or not at all, and the folders it lies in.

    An empty file is filled where it is: who made it, as a temporary file is made, may have it open to read it then.

    Raises:
        UsageError: The path that the option names cannot be written to.
        ResourceError: The disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and (not path.is_file() or not path.stat().st_size):  # or a pipe or device that the user named
            path.write_bytes(content)
        else:
            with replacing(Path(os.path.realpath(path))) as file:
                file.write(content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        kind = ResourceError if isinstance(error, OSError) and is_out_of_space(error) else UsageError
        raise kind(f"'{path}' cannot be written: {reason}", where=option, fix="choose another place") from error


def keep_apart(outputs: Mapping[str, str | None], inputs: Iterable[str]) -> None:
    """Refuse to write over what a command reads, and to write two things to one place.

    Args:
        outputs: For each option the path that is to be written, if any.
        inputs: Paths that are read; a text ``NAME:PATH`` names one too.

    Raises:
        UsageError: An option names a file that is read, or that another option names.
    """
    read = {_identify(path): path for text in inputs for path in (text, text.rpartition(":")[2]) if path}
    written: dict[str, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        place = _identify(path)
        if place in read:
            raise UsageError(
                f"'{path}' would be written over, and it is read", where=option, fix="choose another place"
            )
        takes_both = Path(place).exists() and not Path(place).is_file()  # a pipe or a device
        if place in written and not takes_both:
            raise UsageError(f"'{path}' is named by {written[place]} too", where=option, fix="choose another place")
        written[place] = option


def _identify(path: str) -> str:
    """What tells a place, whatever way leads to it."""
    try:
        return os.path.realpath(path)
    except ValueError:  # no file has such a name, which is told where it is opened
        return path
