"""Rows in parquet files: a column for each input, whose cells are numbers, texts or lists of these.

A tensor may be a nested list, or a flat one of as many elements as the row of the input has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.decoding import judging
from dovetail.errors import DovetailError, InputError, ResourceError
from dovetail.expr import constant_of
from dovetail.inputs.specs import InputSpec
from dovetail_serve.batch.options import BatchOptions
from dovetail_serve.batch.rows import Array, Row, RowForm, require_fit
from dovetail_serve.batch.shards import Shard
from dovetail_serve.batch.tables.base import RowRange, split_rows

__all__ = ["ParquetTable", "import_pyarrow"]


def import_pyarrow(where: str) -> Any:
    """The package that reads and writes parquet.

    Raises:
        ResourceError: It is not installed.
    """
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        what = "parquet needs the package 'pyarrow', which is not installed"
        raise ResourceError(what, where=where, fix="pip install 'dovetail-serve[parquet]'") from error
    return pyarrow


class ParquetTable:
    """Rows of one file, which is read one row group at a time."""

    def split(self, path: Path, form: RowForm, options: BatchOptions) -> Sequence[RowRange]:
        """The shards of a file, from its footer."""
        file = _open(path)
        columns = file.schema_arrow.names
        for name in (*(spec.name for spec in form.inputs), *options.keep):
            if name not in columns:
                got = ", ".join(columns)[:200]
                raise InputError(f"there is no column '{name}'", where=f"'{path}'", got=got or "no columns")
        return split_rows(file.metadata.num_rows, options.shard_rows)

    def read(self, root: Path, shard: Shard, form: RowForm, options: BatchOptions) -> Iterator[Row]:
        """The rows of a shard."""
        file = _open(root / shard.files[0])
        index, end = 0, shard.first_row + shard.num_rows
        for group in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            first, last = max(shard.first_row, index), min(end, index + size)
            if first < last:
                with judging(lambda reason: _broken(root / shard.files[0], reason)):
                    columns = [*(spec.name for spec in form.inputs), *options.keep]
                    table = file.read_row_group(group, columns=columns).slice(first - index, last - first)
                yield from _read_rows(table, first, form, options, shard.files[0])
            index += size


def _open(path: Path) -> Any:
    pyarrow = import_pyarrow(f"'{path}'")
    with judging(lambda reason: _broken(path, reason)):
        return pyarrow.parquet.ParquetFile(path)


def _broken(path: Path, reason: str) -> InputError:
    return InputError(f"this is no parquet file that can be read: {reason}", where=f"'{path}'")


def _read_rows(table: Any, first: int, form: RowForm, options: BatchOptions, file: str) -> Iterator[Row]:
    columns = {name: table.column(name) for name in table.column_names}
    for place in range(table.num_rows):
        where = f"'{file}', row {first + place}"
        try:
            values = {
                spec.name: _read_cell(columns[spec.name][place], spec, f"{where}, input '{spec.name}'")
                for spec in form.inputs
            }
            yield Row(first + place, values, {name: columns[name][place].as_py() for name in options.keep})
        except DovetailError as error:
            yield Row(first + place, {}, {}, str(error))


def _read_cell(cell: Any, spec: InputSpec, where: str) -> Array:
    if not cell.is_valid:
        raise InputError("there is no value", where=where, got="null")
    with judging(lambda reason: InputError(f"the value cannot be used: {reason}", where=where)):
        array = _as_array(cell, spec)
    sizes = [None] if spec.dims is None else [constant_of(dim) for dim in spec.dims]
    fixed = [size for size in sizes if size is not None]
    if array.ndim == 1 and len(fixed) == len(sizes) != 1 and array.size == math.prod(fixed):
        array = array.reshape(fixed)
    return require_fit(array, spec, where)


def _as_array(cell: Any, spec: InputSpec) -> Array:
    """The array of a cell, in the type that the file has."""
    if hasattr(cell, "value") and not hasattr(cell, "values"):  # of an extension type, such as a tensor
        cell = cell.value
    if hasattr(cell, "values"):
        flat, shape = _flatten(cell.values)
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(shape)
    return np.array(cell.as_py(), object if spec.dtype == "object" else cell.type.to_pandas_dtype())


def _flatten(values: Any) -> tuple[Any, list[int]]:
    """The elements of nested lists and their shape; lists of different lengths are no array."""
    shape = [len(values)]
    while hasattr(values, "value_lengths"):
        lengths = set(values.value_lengths().to_pylist())
        if len(lengths) > 1 or None in lengths:
            raise ValueError("its lists have different lengths")
        shape.append(lengths.pop() if lengths else 0)
        values = values.flatten()
    if values.null_count:
        raise ValueError("it has nulls")
    return values, shape
