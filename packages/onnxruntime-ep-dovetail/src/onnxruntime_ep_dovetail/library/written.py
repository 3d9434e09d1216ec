"""Where a library that was written without a compiler is kept: a folder that only its user can change.

Code is loaded from that file, so nobody else may own the folder or write to it, and what lies there is compared with
what should lie there before it is used.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dovetail.errors import ResourceError
from onnxruntime_ep_dovetail.library.elf import build_library

__all__ = ["place_library"]


def place_library() -> Path:
    """Return the path of the written library, in the user's cache or else in a new folder of this process."""
    content = build_library()
    name = f"libdovetail_ep-{hashlib.sha256(content).hexdigest()[:16]}.so"
    refusals = []
    for folder in _folders():
        try:
            return _place(folder, name, content)
        except OSError as error:
            refusals.append(f"{folder}: {error}")
    raise ResourceError(
        "the library that ONNX Runtime loads cannot be written anywhere",
        got="; ".join(refusals),
        fix="name a folder of your own that allows programs with XDG_CACHE_HOME, or install with a C compiler",
    )


def _folders() -> Iterator[Path]:
    """Yield folders in order of preference; the last is new, so it cannot be another's."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - never raises
    if cache.is_absolute():
        yield cache / "dovetail"
    folder = tempfile.mkdtemp(prefix="dovetail-ep-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    yield Path(folder)


def _place(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(folder)
    path = folder / name
    if not _holds(path, content):
        _write_whole(path, content)
    # A folder may forbid programs (a noexec mount), which only loading tells.
    ctypes.CDLL(str(path))
    return path


def _check_private(folder: Path) -> None:
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise PermissionError("not a folder that only its user can change")


def _holds(path: Path, content: bytes) -> bool:
    """Whether a plain file of this user lies there with exactly this content."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        is_ours = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
        return is_ours and file.read(len(content) + 1) == content


def _write_whole(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o700)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
