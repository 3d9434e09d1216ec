"""What the migration could not decide: where, what and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst

__all__ = ["FindLine", "MigrationNote", "Notebook"]

FindLine = Callable[[cst.CSTNode], int]
"""The line of the source on which a node starts."""


@dataclass(frozen=True, order=True)
class MigrationNote:
    """One thing that is left to the author."""

    line: int
    what: str
    why: str


class Notebook:
    """Collects notes; nodes are those of the source as it was read."""

    def __init__(self, find_line: FindLine) -> None:
        self._find_line = find_line
        self._notes: set[MigrationNote] = set()

    def add(self, node: cst.CSTNode, what: str, why: str) -> None:
        """Note something about a node."""
        self._notes.add(MigrationNote(self._find_line(node), what, why))

    def sorted(self) -> list[MigrationNote]:
        """All notes, by line."""
        return sorted(self._notes)
