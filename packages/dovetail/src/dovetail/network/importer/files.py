"""The one way a path that came from a file is opened: below a folder, through no link, and only a regular file.

A model names the files that hold its weights. Whoever wrote the model must not be able to make us read anything else,
so each part of such a path is opened relative to the folder before it, links are refused wherever they point, and a
file with a second name (a hard link) is refused because the other name may lie outside.

Large ranges are mapped and not read, so that weights take no memory of their own. A mapped file that somebody shortens
ends the process when the missing part is used: keep a model's folder to yourself while you build from it.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import ModelError

__all__ = ["check_range", "map_file", "open_under", "read_range"]

_HAS_DIR_FD: Final = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_COMMON: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER: Final = _COMMON | getattr(os, "O_DIRECTORY", 0)
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
# A pipe would block the open until somebody writes; with O_NONBLOCK it opens at once and is then refused.
_FILE: Final = _COMMON | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def open_under(root: str | os.PathLike[str], relative: str) -> Iterator[BinaryIO]:
    """Open a regular file below a folder for reading, or raise ``ModelError``.

    Args:
        root: The folder; the caller chose it, so it may be a link itself.
        relative: A path as a file names it: with slashes, not absolute, without ``..``.
    """
    where = f"external data {_quote(relative)}"
    parts = _split_relative(relative)
    try:
        number = _open_at(os.fspath(root), parts) if _HAS_DIR_FD else _open_by_path(os.fspath(root), parts)
    except OSError as error:
        raise _describe(error, where) from error
    try:
        _check_regular(os.fstat(number), where)
    except ModelError:
        os.close(number)
        raise
    with os.fdopen(number, "rb", buffering=0) as file:
        yield file


def _split_relative(relative: str) -> list[str]:
    """The parts of a relative path; everything that could leave the folder by its spelling is refused.

    >>> _split_relative("weights/./layer0.bin")
    ['weights', 'layer0.bin']
    """
    where = f"external data {_quote(relative)}"
    windows = PureWindowsPath(relative)
    if not relative or "\0" in relative:
        raise ModelError("the location is not a file name", where=where)
    if relative.startswith("/") or windows.drive or windows.root:
        raise ModelError("the location is absolute", where=where, expected="a path relative to the model's folder")
    # Backslashes separate on Windows only, but a model must mean the same everywhere, so '..' counts with either.
    if ".." in relative.replace("\\", "/").split("/"):
        raise ModelError("the location has '..' in it", where=where, expected="a path below the model's folder")
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    if not parts:
        raise ModelError("the location names no file", where=where)
    return parts


def _open_at(root: str, parts: list[str]) -> int:
    """Open one part after the other, each relative to the folder before it and never through a link."""
    folder = os.open(root or ".", _FOLDER)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER | _NO_FOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)


def _open_by_path(root: str, parts: list[str]) -> int:
    """The same where folders cannot be opened (Windows): look at each part first, then check what was opened."""
    path = Path(root or ".")
    seen = path.stat()
    for part in parts:
        if ":" in part and os.name == "nt":
            raise OSError("a stream of a file is not a file")
        path = path / part
        seen = path.lstat()
        if stat.S_ISLNK(seen.st_mode) or getattr(seen, "st_reparse_tag", False):
            raise _LinkError
    number = os.open(path, _FILE)
    if not os.path.samestat(seen, os.fstat(number)):
        os.close(number)
        raise OSError("the file was exchanged while it was opened")
    return number


class _LinkError(OSError):
    """A part of the path is a link; systems with ``O_NOFOLLOW`` say so themselves, with one of two codes."""

    def __str__(self) -> str:
        return "a link"


def _check_regular(status: os.stat_result, where: str) -> None:
    """Refuse folders, pipes, devices and files that have a second name."""
    if not stat.S_ISREG(status.st_mode):
        raise ModelError("the location is not a regular file", where=where, got=stat.filemode(status.st_mode))
    if status.st_nlink > 1:
        raise ModelError(
            "the file has more than one name (hard link), so it may belong to another folder",
            where=where,
            expected="one name",
            got=status.st_nlink,
            fix="replace it by a copy",
        )


def _describe(error: OSError, where: str) -> ModelError:
    links = (errno.ELOOP, errno.EMLINK)
    if isinstance(error, _LinkError) or error.errno in links or error.errno == errno.ENOTDIR:
        return ModelError(
            "a part of the location is a link or not a folder", where=where, fix="put the file itself into the folder"
        )
    if error.errno == errno.ENOENT:
        return ModelError("the file does not exist", where=where, fix="keep the file beside the model, as it was saved")
    return ModelError(f"the file cannot be opened: {error.strerror or error}", where=where)


def check_range(size: int, offset: int, length: int, *, where: str) -> None:
    """Refuse a range that does not lie inside a file of this size."""
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(
            "the range lies outside the file",
            where=where,
            expected=f"a range inside {size} bytes",
            got=f"offset {offset}, length {length}",
        )


def map_file(file: BinaryIO, *, where: str) -> npt.NDArray[np.uint8]:
    """All bytes of an open file, mapped and read only; the map lives as long as the array, the file need not."""
    before = os.fstat(file.fileno())
    if not before.st_size:
        return np.empty(0, np.uint8)
    try:
        mapped = mmap.mmap(file.fileno(), before.st_size, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelError(f"the file cannot be mapped: {error}", where=where) from error
    after = os.fstat(file.fileno())
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise ModelError("the file changed while it was read", where=where)
    return np.frombuffer(mapped, np.uint8)


def read_range(file: BinaryIO, offset: int, length: int, *, where: str) -> npt.NDArray[np.uint8]:
    """A part of a file as bytes; nothing is allocated before the range is known to lie inside the file."""
    before = os.fstat(file.fileno())
    check_range(before.st_size, offset, length, where=where)
    data = np.empty(length, np.uint8)
    view, done = data.data, 0
    file.seek(offset)
    while done < length:
        count = file.readinto(view[done:])  # type: ignore[attr-defined]  # an unbuffered file has it
        if not count:
            break
        done += count
    after = os.fstat(file.fileno())
    if done < length or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise ModelError("the file changed while it was read", where=where)
    return data


def _quote(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
