"""The one way files are opened and replaced: regular files only, through no link unless asked, and never waiting.

What is not a regular file is an ``OSError`` like any other, so callers need one ``except`` for everything that can go
wrong with a file. A pipe is refused and not waited for, a device is neither read nor replaced, and a link in the place
of a file that we keep ourselves (a cache, a journal) is left alone: somebody else put it there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from dovetail.errors import ResourceError, UsageError

__all__ = [
    "NotRegularError",
    "append_bytes",
    "is_out_of_space",
    "open_for_update",
    "open_regular",
    "read_bytes",
    "replacing",
    "write_file",
]

_COMMON: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""Without O_NONBLOCK, opening a pipe would wait for whoever is at its other end before it can be refused."""
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_LINKS: Final = (errno.ELOOP, errno.EMLINK)
_OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PART_BYTES: Final = 1 << 20
_STRAY_SECONDS: Final = 3600
"""After so long without a write, a temporary file belongs to nobody."""


class NotRegularError(OSError):
    """What a path names is a folder, a link, a pipe or a device."""


def is_out_of_space(error: OSError) -> bool:
    """Whether a write failed because there is no room for it."""
    return error.errno in _OUT_OF_SPACE


def open_regular(path: str | os.PathLike[str], *, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        path: The file.
        follow: Whether the last part may be a link, as it may where a user names the file.

    Raises:
        NotRegularError: It is something else.
        OSError: It cannot be opened.
    """
    return os.fdopen(_open(path, os.O_RDONLY, follow=follow), "rb")


def open_for_update(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading and writing, and create it if there is none; links are not followed.

    Raises:
        NotRegularError: It is something else.
        OSError: It cannot be opened.
    """
    return os.fdopen(_open(path, os.O_RDWR | os.O_CREAT, follow=False), "r+b")


def read_bytes(path: str | os.PathLike[str], limit_bytes: int, *, follow: bool = False) -> bytes:
    """The content of a regular file, one byte over the limit at most; memory is taken for what is there."""
    parts: list[bytes] = []
    left = limit_bytes + 1
    with open_regular(path, follow=follow) as file:
        while left and (part := file.read(min(left, _PART_BYTES))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def append_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Add to the end of a regular file, which is made where there is none."""
    number = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, follow=False)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(number, view) :]
    finally:
        os.close(number)


@contextlib.contextmanager
def replacing(path: Path, *, alone: bool = False) -> Iterator[BinaryIO]:
    """Give a new file that takes the place of a path when the block ends, and vanishes when the block raises.

    Whoever has the old file open keeps it, and nobody ever sees half of the new one. What a process that died left
    behind is swept.

    Args:
        path: A regular file, or nothing yet; a link is not followed.
        alone: Whether nobody else writes the file now, so that every temporary file of it is a stray one.
    """
    _require_replaceable(path)
    _sweep(path, 0 if alone else _STRAY_SECONDS)
    temporary = path.with_name(f"{_temporary_prefix(path)}{os.urandom(8).hex()}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def write_file(path: Path, content: bytes, *, option: str) -> None:
    """Write a file that a user named, whole or not at all, and the folders it lies in.

    An empty file is filled where it is: who made it, as a temporary file is made, may have it open to read it then.

    Args:
        path: The file.
        content: What is written.
        option: What named the path, for messages.

    Raises:
        UsageError: The path cannot be written to.
        ResourceError: The disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and (not path.is_file() or not path.stat().st_size):  # or a pipe or device that the user named
            path.write_bytes(content)
        else:
            with replacing(Path(os.path.realpath(path))) as file:
                file.write(content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        kind = ResourceError if isinstance(error, OSError) and is_out_of_space(error) else UsageError
        raise kind(f"'{path}' cannot be written: {reason}", where=option, fix="choose another place") from error


def _temporary_prefix(path: Path) -> str:
    """What the temporary files of a path start with; short, as the name itself may be as long as names can be."""
    return f".dovetail-{zlib.crc32(os.fsencode(path.name)):08x}-"


def _sweep(path: Path, age_seconds: float) -> None:
    """Remove temporary files that nobody has written to for so long; one that cannot be removed stays."""
    prefix, now = _temporary_prefix(path), time.time()
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            if not entry.name.startswith(prefix) or not entry.name.endswith(".tmp"):
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and now - status.st_mtime >= age_seconds:
                    Path(entry.path).unlink()


def _open(path: str | os.PathLike[str], flags: int, *, follow: bool) -> int:
    try:
        if not follow and not _NO_FOLLOW and Path(path).is_symlink():
            raise OSError(errno.ELOOP, "link", os.fspath(path))
        number = os.open(path, flags | _COMMON | (0 if follow else _NO_FOLLOW), 0o666)
    except ValueError:
        raise NotRegularError(errno.EINVAL, "the path has a NUL character", ascii(path)) from None
    except OSError as error:
        raise _explain(error, path, follow=follow) from error
    try:
        _require_regular(os.fstat(number).st_mode, path)
    except OSError:
        os.close(number)
        raise
    return number


def _explain(error: OSError, path: str | os.PathLike[str], *, follow: bool) -> OSError:
    if not follow and error.errno in _LINKS and Path(path).is_symlink():
        return NotRegularError(error.errno, "it is a link", os.fspath(path))
    if error.errno in (errno.ENXIO, errno.EISDIR):  # a pipe that nobody reads, a folder
        return NotRegularError(error.errno, "it is not a regular file", os.fspath(path))
    return error


def _require_replaceable(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise NotRegularError(errno.ELOOP, "it is a link", str(path))
    _require_regular(mode, path)


def _require_regular(mode: int, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegularError(errno.EINVAL, "it is not a regular file", os.fspath(path))


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder survive a power cut; Windows has no such call, and some file systems neither."""
    if sys.platform == "win32":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(number)
    finally:
        os.close(number)
