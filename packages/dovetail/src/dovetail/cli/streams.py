"""The standard streams as commands use them: what cannot be written is said once, and never ends in a traceback.

An output that is closed or full is a failure of the command. Messages are only a help: where nobody can read them the
command goes on, and its exit code says how it ended.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from dovetail.errors import ResourceError
from dovetail.escapes import escape

__all__ = ["accept_any_text", "messages", "plain_warnings", "writing_output"]


def accept_any_text() -> None:
    """Names in models need not fit the encoding of the terminal; what does not is shown as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def writing_output() -> Iterator[TextIO]:
    """The standard output, for a block that writes its answer to it.

    Raises:
        ResourceError: The output is closed, or what it goes to is full.
        BrokenPipeError: Whoever read it stopped.
    """
    stream: TextIO = sys.stdout if sys.stdout is not None else _ClosedStream()
    try:
        yield stream
        stream.flush()
    except OSError as error:
        _discard(stream)
        if isinstance(error, BrokenPipeError):
            raise
        fix = "make room, or send the output elsewhere"
        what = f"the output cannot be written: {error.strerror or error}"
        raise ResourceError(what, where="standard output", fix=fix) from error


def messages() -> TextIO:
    """The stream for messages and progress; what cannot be written there is dropped."""
    return cast(TextIO, _Messages(sys.stderr))


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show Python's warnings as the command line shows its own, without the place in the code."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        yield


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {escape(str(message))}", file=messages())


class _ClosedStream(io.StringIO):
    """Stands for a standard output that was closed before the program began."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class _Messages(io.TextIOBase):
    """Writes to a stream for as long as that works."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Whether somebody may be watching."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """That of the stream."""
        return io.StringIO().fileno() if self._stream is None else self._stream.fileno()

    def write(self, text: str) -> int:
        """Write, or give up for good."""
        if self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                _discard(self._stream)
                self._stream = None
        return len(text)


def _discard(stream: TextIO) -> None:
    """Send what is left of a stream nowhere: the interpreter flushes it once more when it ends, and would complain."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
