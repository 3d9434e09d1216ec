"""Which format a file has, by its name."""

from __future__ import annotations

from typing import Final

from dovetail.inputs.images import IMAGE_SUFFIXES
from dovetail_serve.batch.tables.arrays import ArrayTable
from dovetail_serve.batch.tables.base import RowTable
from dovetail_serve.batch.tables.lines import LineTable
from dovetail_serve.batch.tables.parquet import ParquetTable
from dovetail_serve.batch.tables.pictures import PictureTable

__all__ = ["KINDS", "make_tables", "output_format", "table_kind"]

KINDS: Final = {
    ".npy": "arrays",
    ".npz": "arrays",
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".parquet": "parquet",
} | dict.fromkeys(IMAGE_SUFFIXES, "pictures")
"""Suffix -> format."""
_OUTPUTS: Final = {"arrays": "npz", "pictures": "npz", "lines": "jsonl", "parquet": "parquet"}


def table_kind(name: str) -> str | None:
    """The format of a file; None for one that has no rows.

    >>> table_kind("a/b.NPY"), table_kind("README.md")
    ('arrays', None)
    """
    return KINDS.get(f".{name.rpartition('.')[2].lower()}")


def output_format(name: str) -> str:
    """The format that results of a file have, unless another is asked for."""
    return _OUTPUTS[KINDS[f".{name.rpartition('.')[2].lower()}"]]


def make_tables() -> dict[str, RowTable]:
    """A reader for each format."""
    return {"arrays": ArrayTable(), "lines": LineTable(), "parquet": ParquetTable(), "pictures": PictureTable()}
