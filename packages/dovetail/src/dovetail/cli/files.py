"""Writing the files that a command was asked for."""

from __future__ import annotations

import os
from pathlib import Path

from dovetail.errors import ResourceError, UsageError
from dovetail.files import is_out_of_space, replacing

__all__ = ["write_file"]


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
