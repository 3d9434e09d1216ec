"""Result files: ``_row``, the number of the row in its file, what is kept of the row, and the outputs."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.files import replacing
from dovetail_serve.batch.tables.parquet import import_pyarrow

__all__ = ["ROW", "RowResult", "write_results"]

Array = npt.NDArray[Any]

ROW: Final = "_row"


@dataclass(frozen=True)
class RowResult:
    """The outputs of one row."""

    index: int
    outputs: Mapping[str, Array]
    kept: Mapping[str, Any]


def write_results(path: Path, results: Sequence[RowResult], kind: str) -> int:
    """Write the results of one shard, in order, whole or not at all; the size of the file comes back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, alone=True) as file:  # what a worker that died left behind is swept
        _WRITERS[kind](file, results)
        file.flush()
        return file.seek(0, 2)


def _write_npz(file: BinaryIO, results: Sequence[RowResult]) -> None:
    arrays: dict[str, Array] = {ROW: np.array([result.index for result in results], np.int64)}
    for name in results[0].kept:
        arrays[name] = np.array([result.kept[name] for result in results])
    for name in results[0].outputs:
        arrays |= _stack(name, [result.outputs[name] for result in results])
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                storable = array.astype("U") if array.dtype.kind == "O" else array
                np.lib.format.write_array(member, storable, allow_pickle=False)


def _stack(name: str, values: Sequence[Array]) -> dict[str, Array]:
    """One array where all rows have one shape; else their elements one after the other, and the shapes."""
    if len({value.shape for value in values}) == 1:
        return {name: np.stack(values)}
    shapes = np.array([value.shape for value in values], np.int64)
    return {f"{name}.elements": np.concatenate([value.ravel() for value in values]), f"{name}.shapes": shapes}


def _write_lines(file: BinaryIO, results: Sequence[RowResult]) -> None:
    encoder = msgspec.json.Encoder()
    for result in results:
        outputs = {name: _as_json(value) for name, value in result.outputs.items()}
        file.write(encoder.encode({ROW: result.index, **result.kept, **outputs}) + b"\n")


def _as_json(array: Array) -> Any:
    """Nested lists; numbers that JSON lacks are texts, as inputs have them."""
    plain = _plain(array)
    if plain.dtype.kind == "c":
        return np.stack([plain.real, plain.imag], axis=-1).tolist()
    if plain.dtype.kind == "f" and not np.isfinite(plain).all():
        return _name_special(plain.tolist())
    return plain.tolist()


def _plain(array: Array) -> Array:
    """An array of a type that other libraries know: bfloat16 and types of eight bits and less become wider."""
    if array.dtype.kind not in "V" and array.dtype.isbuiltin == 1:
        return array
    is_integer = np.can_cast(array.dtype, np.int8, "same_kind") and "int" in array.dtype.name
    return array.astype(np.int8 if is_integer else np.float32)


def _name_special(value: Any) -> Any:
    if isinstance(value, list):
        return [_name_special(item) for item in value]
    return value if math.isfinite(value) else str(value)


def _write_parquet(file: BinaryIO, results: Sequence[RowResult]) -> None:
    pyarrow = import_pyarrow("--format parquet")
    columns: dict[str, Any] = {ROW: pyarrow.array([result.index for result in results], pyarrow.int64())}
    for name in results[0].kept:
        columns[name] = pyarrow.array([result.kept[name] for result in results])
    for name in results[0].outputs:
        columns[name] = _nest(pyarrow, [_plain(result.outputs[name]) for result in results])
    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def _nest(pyarrow: Any, values: Sequence[Array]) -> Any:
    """A column of lists as deep as the rank, of one type whatever the shapes, so that all files go together."""
    column = pyarrow.array(np.concatenate([value.ravel() for value in values]))
    for axis in reversed(range(values[0].ndim)):
        lengths = np.concatenate([np.full(math.prod(value.shape[:axis]), value.shape[axis]) for value in values])
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        column = pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets, pyarrow.int64()), column)
    return column


_WRITERS: Final[dict[str, Callable[[BinaryIO, Sequence[RowResult]], None]]] = {
    "npz": _write_npz,
    "jsonl": _write_lines,
    "parquet": _write_parquet,
}
