"""Comments that silence findings on their line: ``# dovetail: ignore[L01]``, in C++ ``// dovetail: ignore``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["ALL", "find_silenced"]

ALL: Final = frozenset({"*"})
_COMMENT: Final = re.compile(r"(?:#|//)\s*dovetail:\s*ignore(?:\[([\w\s,]*)\])?")


def find_silenced(source: str) -> Mapping[int, frozenset[str]]:
    r"""The rules that are silenced on each line; ``*`` for all of them.

    >>> find_silenced("a\nb  # dovetail: ignore[L01, L02]\n")[2] == {"L01", "L02"}
    True
    """
    found = {}
    for number, line in enumerate(source.splitlines(), start=1):
        match = _COMMENT.search(line)
        if match:
            ids = frozenset(part.strip().upper() for part in (match.group(1) or "").split(",") if part.strip())
            found[number] = ids or ALL
    return found
