"""Inputs in files: one array in a ``.npy``, or everything that a run needs in one ``.npz``.

In a ``.npz`` an array is stored under the name of its input, the elements of a sequence as ``name[0]``, ``name[1]``,
..., and a map as two arrays, ``name.keys`` and ``name.values``. Types that NumPy has no name for, such as bfloat16, are
bytes there and get their type back from the model. No file is trusted: objects, which would be pickled code, are
refused.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.decoding import judging
from dovetail.errors import InputError, UsageError
from dovetail.files import open_regular
from dovetail.inputs.specs import InputSpec

__all__ = ["load_arrays", "name_type", "pack_arrays", "read_array", "read_arrays"]

Array = npt.NDArray[Any]

_ITEM: Final = re.compile(r"(.*)\[(\d{1,6})\]", re.DOTALL)
_HALF: Final = re.compile(r"(.*)\.(keys|values)", re.DOTALL)
_MOST_BYTES: Final = 256 << 20
_MOST_TIMES: Final = 200
"""Arrays up to the first, or up to so many times what is stored, are read from a compressed file."""
_ARCHIVE: Final = b"PK"
_ARRAY: Final = b"\x93NUMPY"
_OBJECTS: Final = ("Object arrays cannot be loaded", "Python objects in dtype")
"""What NumPy's reader says of arrays of objects."""


def read_array(path: Path, spec: InputSpec) -> Array:
    """One array from a file; what it claims is checked against the size of the file before memory is taken.

    Raises:
        InputError: The file cannot be read, or holds something else.
    """
    where = f"'{path}', for input '{spec.name}'"
    with _reading(where, "a .npy file", "numpy.save(file, array)"):
        with open_regular(path, follow=True) as file:  # a pipe would keep NumPy waiting
            is_archive = file.read(len(_ARCHIVE)) == _ARCHIVE
        if is_archive:
            raise InputError(
                "this holds several arrays", where=where, expected=".npy, one array a file", got=".npz, without a name"
            )
        return name_type(np.array(np.load(path, mmap_mode="r", allow_pickle=False)), spec)


def _explain_broken(reason: str, where: str, kind: str, call: str) -> InputError:
    """Why a file cannot be used: it holds objects, which only pickle could read, or it is something else."""
    if any(text in reason for text in _OBJECTS):
        what = "this is an array of Python objects, which are code and are not read"
        fix = "give it the type of the input before it is saved: array.astype('float32'), for texts array.astype(str)"
        return InputError(what, where=where, fix=fix)
    return InputError(f"this is not {kind}", where=where, fix=f"write it with {call}")


def read_arrays(path: Path, specs: Sequence[InputSpec]) -> dict[str, Any]:
    """The values of inputs from a ``.npz`` file; inputs that it lacks are missing in the result.

    Raises:
        UsageError: The file has an array that is no input.
        InputError: The file cannot be read.
    """
    known = {spec.name: spec for spec in specs}
    arrays = load_arrays(path)
    values: dict[str, Any] = _take_maps(path, arrays, known)
    for key, array in arrays.items():
        match = _ITEM.fullmatch(key) if key not in known else None
        name = key if match is None else match[1]
        if name not in known:
            raise UsageError(
                f"array {key!r} is no input", where=f"'{path}'", expected=", ".join(known) or "no inputs at all"
            )
        typed = name_type(array, known[name])
        values[name] = typed if match is None else [*values.get(name, ()), typed]
    return values


def _take_maps(path: Path, arrays: dict[str, Array], known: Mapping[str, InputSpec]) -> dict[str, Any]:
    """The maps of a file, whose arrays are taken out."""
    halves: dict[str, dict[str, Array]] = {}
    for key in list(arrays):
        match = _HALF.fullmatch(key) if key not in known else None
        if match is not None and match[1] in known and "map(" in known[match[1]].type:
            halves.setdefault(match[1], {})[match[2]] = arrays.pop(key)
    return {name: _join_halves(path, name, found) for name, found in halves.items()}


def _join_halves(path: Path, name: str, halves: Mapping[str, Array]) -> dict[Any, Any]:
    shapes = [halves[half].shape if half in halves else None for half in ("keys", "values")]
    if None in shapes or shapes[0] != shapes[1] or len(shapes[0] or ()) != 1:
        raise InputError(
            f"this holds no map for input '{name}'",
            where=f"'{path}'",
            expected=f"two vectors of one length, {name}.keys and {name}.values",
            got=", ".join(f"{half} {array.shape}" for half, array in halves.items()),
        )
    return dict(zip(halves["keys"].tolist(), halves["values"].tolist(), strict=True))


def load_arrays(path: Path) -> dict[str, Array]:
    """Every array of a ``.npz`` file by name.

    Raises:
        InputError: The file cannot be read, or becomes far larger than it is.
    """
    where = f"'{path}'"
    with _reading(where, "a .npz file", "numpy.savez(file, name=array)"), open_regular(path, follow=True) as file:
        start = file.read(len(_ARRAY))
        if start == _ARRAY:
            raise InputError("this is one array without a name", where=where, expected=".npz", got=".npy")
        if not start.startswith(_ARCHIVE):
            raise ValueError("no archive")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            _check_size(archive.zip, where)
            return {key: archive[key] for key in archive}


def _check_size(archive: zipfile.ZipFile, where: str) -> None:
    """Refuse a small file that says it becomes a large one, before anything is taken for it."""
    members = archive.infolist()
    size, stored = sum(each.file_size for each in members), sum(each.compress_size for each in members)
    if size > _MOST_BYTES and size > _MOST_TIMES * max(stored, 1):
        raise InputError(
            "its arrays are far larger than the file",
            where=where,
            expected=f"at most {_MOST_TIMES} times as large",
            got=f"{size} bytes in {stored}",
            fix="store them as they are: numpy.savez, not numpy.savez_compressed",
        )


@contextmanager
def _reading(where: str, kind: str, call: str) -> Iterator[None]:
    """Name what is wrong with a file; NumPy's reader raises many things on bytes that only look like arrays."""
    with judging(lambda reason: _explain_broken(reason, where, kind, call)):
        try:
            yield
        except OSError as error:
            raise InputError(f"the file cannot be read: {error.strerror or error}", where=where) from error


def name_type(array: Array, spec: InputSpec) -> Array:
    """An array of a file with the type of its tensor, where NumPy has no name for that, or stores texts."""
    dtype = np.dtype(spec.dtype)
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    return array.astype(object) if dtype.kind == "O" and array.dtype.kind == "U" else array


def pack_arrays(values: Mapping[str, Any]) -> bytes:
    """The contents of a ``.npz`` file that ``read_arrays`` gives back; optionals that are empty are left out."""
    arrays: dict[str, Array] = {}
    for name, value in values.items():
        if isinstance(value, list | tuple):
            arrays |= {f"{name}[{index}]": _storable(item) for index, item in enumerate(value)}
        elif isinstance(value, Mapping):
            arrays |= {f"{name}.keys": np.array(list(value)), f"{name}.values": np.array(list(value.values()))}
        elif value is not None:
            arrays[name] = _storable(value)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return buffer.getvalue()


def _storable(array: Array) -> Array:
    return array.astype("U") if array.dtype.kind == "O" else np.asarray(array)
