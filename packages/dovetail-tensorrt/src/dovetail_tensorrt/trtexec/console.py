"""What ``trtexec`` prints: lines with a time and a severity, blocks of options, and the first and last line."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TextIO

import dovetail
from dovetail.escapes import escape
from dovetail.loggers import Severity

__all__ = ["Console"]

_LETTERS = {
    Severity.INTERNAL_ERROR: "F",
    Severity.ERROR: "E",
    Severity.WARNING: "W",
    Severity.INFO: "I",
    Severity.VERBOSE: "V",
}


class Console(dovetail.ILogger):
    """Prints to a stream, and is the logger of builds and engines."""

    def __init__(self, stream: TextIO, command: str, *, is_verbose: bool) -> None:
        super().__init__()
        self._stream, self._command = stream, command
        self._least = Severity.VERBOSE if is_verbose else Severity.INFO

    def log(self, severity: Severity, msg: str) -> None:
        """Print a message, each line with the time."""
        if severity > self._least:
            return
        stamp = time.strftime("%m/%d/%Y-%H:%M:%S")
        for line in escape(msg).splitlines() or [""]:
            self._stream.write(f"[{stamp}] [{_LETTERS[Severity(severity)]}] {line}\n")
        self._stream.flush()

    def say(self, lines: str | Iterable[str]) -> None:
        """Print what somebody asked for."""
        for line in [lines] if isinstance(lines, str) else lines:
            self.log(Severity.INFO, line)

    def warn(self, line: str) -> None:
        """Print a warning."""
        self.log(Severity.WARNING, line)

    def title(self, text: str) -> None:
        """Begin a block."""
        self.say(f"=== {text} ===")

    def mark(self, verdict: str) -> None:
        """Print the first or last line, which scripts look for."""
        program = f"TensorRT.trtexec [Dovetail v{dovetail.__version__}]"
        self._stream.write(f"&&&& {verdict} {program} # {escape(self._command)}\n")
        self._stream.flush()
