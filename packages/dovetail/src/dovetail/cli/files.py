"""Keeping the files that a command writes apart from those it reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from dovetail.errors import UsageError

__all__ = ["keep_apart"]


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
