"""The folder where a server keeps its copies of plans. What a server that was killed has left, the next one removes."""

from __future__ import annotations

import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import BinaryIO, Final

from dovetail.files import open_regular

__all__ = ["ScratchFolder"]

_PREFIX: Final = "dovetail-serve-"
_LOCK: Final = "lock"


class ScratchFolder:
    """A folder of its own, with a lock that ends with the process."""

    def __init__(self) -> None:
        self.path: Final = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._end = weakref.finalize(self, _remove, self.path, _hold(self.path))
        _sweep(self.path.parent, owner=self.path.stat().st_uid)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        self._end()


def _hold(folder: Path) -> BinaryIO:
    """The lock of a folder; it has its name once it is locked, so nobody takes a new folder for one that was left."""
    new = folder / f"{_LOCK}.new"
    file = new.open("xb")
    if _try_lock(file):
        new.rename(folder / _LOCK)
    return file


def _remove(folder: Path, lock: BinaryIO) -> None:
    lock.close()
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path, owner: int) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        if _is_abandoned(folder, owner):
            shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path, owner: int) -> bool:
    """Whether a folder is of this user, and no process holds its lock any more."""
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
            return False
        with open_regular(folder / _LOCK) as file:
            return _try_lock(file)
    except OSError:
        return False


def _try_lock(file: BinaryIO) -> bool:
    """Lock a file, and tell whether that was possible; systems without such locks sweep nothing."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
