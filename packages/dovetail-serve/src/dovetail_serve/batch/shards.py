"""A shard: rows of one file, or images of one folder, that are run and written together; and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RowFailure", "Shard", "ShardRecord"]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Rows that have one result file."""

    name: str
    """The result file in the target folder, without its suffix."""
    files: tuple[str, ...]
    """Relative to the source: one table, or images, each of which is a row."""
    identity: str
    """Changes when a file changes."""
    first_row: int
    num_rows: int
    offset: int = 0
    """Where the first row starts in a file of lines."""


@dataclass(frozen=True, kw_only=True)
class RowFailure:
    """A row without a result."""

    file: str
    row: int
    error: str


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """What came of a shard, as the journal has it."""

    name: str
    identity: str
    num_rows: int
    output: str | None
    """The result file in the target folder; None where every row failed."""
    output_bytes: int = 0
    failures: tuple[RowFailure, ...] = ()
    seconds: float = 0.0
