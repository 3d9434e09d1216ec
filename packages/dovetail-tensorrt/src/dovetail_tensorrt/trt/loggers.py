"""The logger that scripts make: messages go to the standard output, in the form that scripts look for."""

from __future__ import annotations

import sys
import time
from typing import Any

import dovetail
from dovetail import StrictAttributes

__all__ = ["Logger"]

_Severity = dovetail.ILogger.Severity


class Logger(dovetail.ILogger, StrictAttributes):
    """Prints messages of at least ``min_severity``.

    Args:
        min_severity: The least that is printed.
    """

    __slots__ = ("min_severity",)

    def __init__(self, min_severity: Any = _Severity.WARNING) -> None:
        super().__init__()
        self.min_severity = _Severity(min_severity)

    def log(self, severity: Any, msg: str) -> None:
        """Print one line with the time and the first letter of the severity."""
        level = _Severity(severity)
        if level <= self.min_severity:
            stamp = time.strftime("%m/%d/%Y-%H:%M:%S")
            sys.stdout.write(f"[{stamp}] [TRT] [{level.name[0]}] {msg}\n")
            sys.stdout.flush()
