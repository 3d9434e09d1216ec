"""Writing the files that a command was asked for."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from dovetail.errors import ResourceError, UsageError

__all__ = ["write_file"]

_OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def write_file(path: Path, content: bytes, *, option: str) -> None:
    """Write a file, and the folders it lies in.

    Raises:
        UsageError: The path that the option names cannot be written to.
        ResourceError: The disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        kind = ResourceError if getattr(error, "errno", None) in _OUT_OF_SPACE else UsageError
        raise kind(f"'{path}' cannot be written: {reason}", where=option, fix="choose another place") from error
