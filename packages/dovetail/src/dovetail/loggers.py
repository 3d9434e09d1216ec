"""Where messages and errors go: the logger, the logger finder of plugin libraries, and the error recorder."""

from __future__ import annotations

import sys
import threading
import time
from typing import ClassVar

from dovetail._no_op_context import NoOpContext
from dovetail.contract_enum import ContractEnum
from dovetail.escapes import escape

__all__ = [
    "ErrorCode",
    "ErrorCodeTRT",
    "ErrorRecorder",
    "IErrorRecorder",
    "ILogger",
    "ILoggerFinder",
    "Logger",
    "Severity",
]


class Severity(ContractEnum):
    """How much a message matters; a smaller number matters more."""

    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class ErrorCode(ContractEnum):
    """What kind of error was recorded."""

    SUCCESS = 0
    UNSPECIFIED_ERROR = 1
    INTERNAL_ERROR = 2
    INVALID_ARGUMENT = 3
    INVALID_CONFIG = 4
    FAILED_ALLOCATION = 5
    FAILED_INITIALIZATION = 6
    FAILED_EXECUTION = 7
    FAILED_COMPUTATION = 8
    INVALID_STATE = 9
    UNSUPPORTED_STATE = 10


_Level = Severity
"""The same under a name that the attribute ``ILogger.Severity`` does not hide."""


ErrorCodeTRT = ErrorCode
"""The contract's name, where ``ErrorCode`` alone is another enum."""


class ILogger(NoOpContext):
    """Subclass it and override ``log`` to send messages elsewhere."""

    __slots__ = ()

    Severity: ClassVar[type[_Level]] = _Level
    INTERNAL_ERROR: ClassVar[_Level] = _Level.INTERNAL_ERROR
    ERROR: ClassVar[_Level] = _Level.ERROR
    WARNING: ClassVar[_Level] = _Level.WARNING
    INFO: ClassVar[_Level] = _Level.INFO
    VERBOSE: ClassVar[_Level] = _Level.VERBOSE

    def log(self, severity: _Level, msg: str) -> None:
        """Take one message."""
        raise NotImplementedError(f"{type(self).__name__} must implement log(severity, msg)")


class Logger(ILogger):
    """Prints messages of at least ``min_severity`` to the standard error stream."""

    def __init__(self, min_severity: _Level = Severity.WARNING) -> None:
        super().__init__()
        self.min_severity = min_severity

    def log(self, severity: _Level, msg: str) -> None:
        """Print one line with the time and the first letter of the severity."""
        if severity <= self.min_severity:
            stamp = time.strftime("%m/%d/%Y-%H:%M:%S")
            print(f"[{stamp}] [dovetail] [{_Level(severity).name[0]}] {escape(msg)}", file=sys.stderr)


class ILoggerFinder:
    """Handed to a plugin library so that it can log; ``find_logger`` gives the logger in use."""

    def find_logger(self) -> ILogger | None:
        """The logger to use now."""
        raise NotImplementedError(f"{type(self).__name__} must implement find_logger()")


class IErrorRecorder:
    """Keeps errors so that a host can ask for them later. Implementations must be thread-safe."""

    MAX_DESC_LENGTH: ClassVar[int] = 127

    def num_errors(self) -> int:
        """How many errors are kept."""
        raise NotImplementedError

    def get_error_code(self, index: int) -> ErrorCode:
        """The code of one error."""
        raise NotImplementedError

    def get_error_desc(self, index: int) -> str:
        """The text of one error."""
        raise NotImplementedError

    def has_overflowed(self) -> bool:
        """Whether errors were dropped."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget all errors."""
        raise NotImplementedError

    def report_error(self, code: ErrorCode, desc: str) -> bool:
        """Keep one error; True when it is so severe that work should stop."""
        raise NotImplementedError


class ErrorRecorder(IErrorRecorder):
    """Keeps the last errors in memory.

    >>> recorder = ErrorRecorder(); recorder.report_error(ErrorCode.INVALID_STATE, "twice"); recorder.get_error_desc(0)
    False
    'twice'
    """

    def __init__(self, capacity: int = 128) -> None:
        self._capacity = capacity
        self._errors: list[tuple[ErrorCode, str]] = []
        self._overflowed = False
        self._lock = threading.Lock()

    def num_errors(self) -> int:
        """How many errors are kept."""
        return len(self._errors)

    def get_error_code(self, index: int) -> ErrorCode:
        """The code of one error."""
        return self._errors[index][0]

    def get_error_desc(self, index: int) -> str:
        """The text of one error."""
        return self._errors[index][1]

    def has_overflowed(self) -> bool:
        """Whether errors were dropped."""
        return self._overflowed

    def clear(self) -> None:
        """Forget all errors."""
        with self._lock:
            self._errors.clear()
            self._overflowed = False

    def report_error(self, code: ErrorCode, desc: str) -> bool:
        """Keep one error, dropping the oldest when full."""
        with self._lock:
            if len(self._errors) == self._capacity:
                self._errors.pop(0)
                self._overflowed = True
            self._errors.append((ErrorCode(code), desc))
        return False
