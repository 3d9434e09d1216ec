"""Batches of inputs from a folder: each ``.npz`` or ``.npy`` file in it is one, in the order of their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dovetail.errors import InputError, UsageError
from dovetail.tools.array_files import read_array, read_arrays
from dovetail.tools.feeds import InputSpec

__all__ = ["FolderBatches"]

_KINDS: Final = (".npz", ".npy")


class FolderBatches(Sequence[Mapping[str, Any]]):
    """The files of a folder, each read when its turn comes.

    Args:
        folder: Where the files are; others than ``.npz`` and ``.npy`` are an error.
        specs: The inputs of the network.

    Raises:
        UsageError: There is no such folder, it has no batch, or a ``.npy`` file cannot be told for which input it is.
    """

    def __init__(self, folder: Path, specs: Sequence[InputSpec]) -> None:
        self._specs = specs
        self._files = _list_files(folder)
        lone = next((path for path in self._files if path.suffix == ".npy"), None)
        if lone is not None and len(specs) != 1:
            raise UsageError(
                "one array cannot be for several inputs",
                where=str(lone),
                expected=f".npz files with arrays named {', '.join(spec.name for spec in specs)}",
                fix="write each batch with numpy.savez(file, name=array, ...)",
            )

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: Any) -> Any:
        return self._read(self._files[index])

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return map(self._read, self._files)

    def _read(self, path: Path) -> Mapping[str, Any]:
        if path.suffix == ".npy":
            return {self._specs[0].name: read_array(path, self._specs[0])}
        found = read_arrays(path, self._specs)
        missing = [spec.name for spec in self._specs if spec.name not in found]
        if missing:
            raise InputError(f"there is no array for input '{missing[0]}'", where=str(path))
        return found


def _list_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError("there is no such folder", where=str(folder), expected="a folder of .npz or .npy files")
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    other = next((path for path in files if path.suffix not in _KINDS), None)
    if other is not None:
        raise UsageError("this is no batch", where=str(other), expected=".npz or .npy", fix="move it elsewhere")
    if not files:
        raise UsageError("the folder has no batch", where=str(folder), expected=".npz or .npy files")
    return files
