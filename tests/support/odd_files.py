"""What may lie in the place of a file, and calls to the system that fail when it is their turn."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["ODD_KINDS", "SYSTEM_ERRORS", "FailingCalls", "make_odd_file"]

ODD_KINDS = ("link", "dangling", "pipe", "device", "folder")
SYSTEM_ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR)


def make_odd_file(place: Path, kind: str, target: Path) -> None:
    """Put a link, a pipe, a device or a folder there; the test is skipped where that is not allowed."""
    if kind == "link":
        place.symlink_to(target)
    elif kind == "dangling":
        place.symlink_to(target.with_name("nowhere"))
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        try:
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero: reading it never ends
        except PermissionError:
            pytest.skip("only the superuser makes devices")


class FailingCalls:
    """Counts calls of the system below a folder, and has the n-th fail."""

    NAMES = ("open", "write", "fsync", "fstat", "lstat", "replace", "rename", "unlink", "scandir", "stat", "close")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.count = 0

    @contextmanager
    def fail(self, turn: int, number: int) -> Iterator[None]:
        """Have one call fail with this error number."""
        self.count = 0
        with self._patch.context() as patch:
            for name in self.NAMES:
                patch.setattr(os, name, self._wrap(getattr(os, name), name, turn, number))
            patch.setattr(io, "open", self._wrap(io.open, "open", turn, number))
            yield

    def _wrap(self, call: Callable[..., Any], name: str, turn: int, number: int) -> Callable[..., Any]:
        def wrapped(*args: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == turn:
                if name == "close":
                    call(*args, **named)
                raise OSError(number, os.strerror(number))
            return call(*args, **named)

        return wrapped
