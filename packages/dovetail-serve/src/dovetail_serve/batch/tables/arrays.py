"""Rows in ``.npy`` and ``.npz``: the first dimension of every array counts rows."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from dovetail.decoding import judging
from dovetail.errors import DovetailError, InputError
from dovetail.files import open_regular
from dovetail.inputs.array_files import load_arrays, name_type
from dovetail_serve.batch.options import BatchOptions
from dovetail_serve.batch.rows import Row, RowForm, require_dims, require_fit, require_type
from dovetail_serve.batch.shards import Shard
from dovetail_serve.batch.tables.base import RowRange, split_rows

__all__ = ["ArrayTable"]

Array = npt.NDArray[Any]


class ArrayTable:
    """Keeps the last file open, because its shards follow each other."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._arrays: Mapping[str, Array] = {}

    def split(self, path: Path, form: RowForm, options: BatchOptions) -> Sequence[RowRange]:
        """The shards of a file; headers are read and no data."""
        headers = _read_headers(path, form)
        counts = {name: shape[0] for name, (shape, _) in headers.items() if shape}
        if len(counts) != len(headers) or len(set(counts.values())) > 1:
            got = ", ".join(f"{name} {shape}" for name, (shape, _) in headers.items())
            expected = "arrays of which the first dimension counts the same rows"
            raise InputError("the arrays do not have the same rows", where=f"'{path}'", expected=expected, got=got)
        for spec in form.inputs:
            shape, dtype = headers[spec.name]
            where = f"'{path}', input '{spec.name}'"
            require_dims(shape[1:], spec, where)
            require_type(name_type(np.empty((0,), dtype), spec), spec, where)
        return split_rows(next(iter(counts.values()), 0), options.shard_rows)

    def read(self, root: Path, shard: Shard, form: RowForm, options: BatchOptions) -> Iterator[Row]:
        """The rows of a shard."""
        path = root / shard.files[0]
        arrays = self._open(path, form)
        for index in range(shard.first_row, shard.first_row + shard.num_rows):
            try:
                yield Row(index, _take_row(arrays, index, form, shard.files[0]), {})
            except DovetailError as error:
                yield Row(index, {}, {}, str(error))

    def _open(self, path: Path, form: RowForm) -> Mapping[str, Array]:
        if self._path != path:
            self._arrays = {}  # before the next is taken
            arrays = _map_array(path, form) if path.suffix.lower() == ".npy" else load_arrays(path)
            self._arrays = {spec.name: name_type(arrays[spec.name], spec) for spec in form.inputs}
            self._path = path
        return self._arrays


def _take_row(arrays: Mapping[str, Array], index: int, form: RowForm, file: str) -> dict[str, Array]:
    return {
        spec.name: require_fit(arrays[spec.name][index, ...], spec, f"'{file}', row {index}, input '{spec.name}'")
        for spec in form.inputs
    }


def _map_array(path: Path, form: RowForm) -> dict[str, Array]:
    with judging(lambda reason: _broken(path)):
        return {form.inputs[0].name: _load_mapped(path)}


def _load_mapped(path: Path) -> Array:
    """Map the array of a ``.npy`` file. A pipe would keep NumPy waiting, so it is refused first."""
    with open_regular(path, follow=True):
        mapped: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _read_headers(path: Path, form: RowForm) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    names = [spec.name for spec in form.inputs]
    with judging(lambda reason: _broken(path)):
        try:
            if path.suffix.lower() == ".npy":
                return _read_single(path, names)
            with open_regular(path, follow=True) as file, zipfile.ZipFile(file) as archive:
                members = set(archive.namelist())
                for name in names:
                    if f"{name}.npy" not in members:
                        got = ", ".join(sorted(each.removesuffix(".npy") for each in members)[:8])
                        raise InputError(f"there is no array '{name}'", where=f"'{path}'", got=got or "no arrays")
                return {name: _read_member(archive, name) for name in names}
        except OSError as error:
            raise InputError(f"the file cannot be read: {error.strerror or error}", where=f"'{path}'") from error


def _read_single(path: Path, names: Sequence[str]) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    if len(names) != 1:
        expected = f".npz with the arrays {', '.join(names)}"
        raise InputError("this is one array, and the model has several inputs", where=f"'{path}'", expected=expected)
    array = _load_mapped(path)
    return {names[0]: (array.shape, array.dtype)}


def _read_member(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with archive.open(f"{name}.npy") as file:
        return _read_header(file)  # type: ignore[arg-type]  # a member reads like a file


def _read_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("Python objects in dtype")
    return shape, dtype


def _broken(path: Path) -> InputError:
    kind = path.suffix.lower()
    call = "numpy.save(file, array)" if kind == ".npy" else "numpy.savez(file, name=array)"
    return InputError(f"this is not a {kind} file of numbers or texts", where=f"'{path}'", fix=f"write it with {call}")
