"""What every format of rows does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from dovetail_serve.batch.options import BatchOptions
from dovetail_serve.batch.rows import Row, RowForm
from dovetail_serve.batch.shards import Shard

__all__ = ["RowRange", "RowTable", "split_rows"]


class RowRange(NamedTuple):
    """Rows of a file that become one shard."""

    first_row: int
    num_rows: int
    offset: int = 0


class RowTable(Protocol):
    """A format: rows of one file, or of several files that are a row each."""

    def split(self, path: Path, form: RowForm, options: BatchOptions) -> Sequence[RowRange]:
        """The shards of a file.

        Raises:
            InputError: The file as a whole does not fit the model.
        """

    def read(self, root: Path, shard: Shard, form: RowForm, options: BatchOptions) -> Iterator[Row]:
        """The rows of a shard, in order; one that cannot be read has an error.

        Raises:
            InputError: The file as a whole cannot be read.
        """


def split_rows(num_rows: int, most: int) -> list[RowRange]:
    """Ranges of at most so many rows.

    >>> [tuple(each) for each in split_rows(5, 2)]
    [(0, 2, 0), (2, 2, 0), (4, 1, 0)]
    """
    return [RowRange(first, min(most, num_rows - first)) for first in range(0, num_rows, most)]
