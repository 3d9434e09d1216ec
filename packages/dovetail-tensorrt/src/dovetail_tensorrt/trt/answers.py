"""How failures are told here: a message in the logger and the error recorder, and None or False as the answer."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

import dovetail
from dovetail import StrictAttributes
from dovetail_tensorrt.trt.removed import RemovedNames

__all__ = [
    "DeprecatedContext",
    "DeviceObject",
    "LoggedObject",
    "Reporter",
    "call_user",
    "guard_logger",
    "print_exception",
]

T = TypeVar("T")
F = TypeVar("F")

_CODES: Final[tuple[tuple[type[dovetail.DovetailError], dovetail.ErrorCodeTRT], ...]] = (
    (dovetail.UsageError, dovetail.ErrorCodeTRT.INVALID_ARGUMENT),
    (dovetail.InputError, dovetail.ErrorCodeTRT.INVALID_ARGUMENT),
    (dovetail.ResourceError, dovetail.ErrorCodeTRT.FAILED_ALLOCATION),
    (dovetail.PlanError, dovetail.ErrorCodeTRT.FAILED_INITIALIZATION),
    (dovetail.ModelError, dovetail.ErrorCodeTRT.INVALID_CONFIG),
    (dovetail.BuildCancelledError, dovetail.ErrorCodeTRT.INVALID_STATE),
    (dovetail.BuildError, dovetail.ErrorCodeTRT.UNSUPPORTED_STATE),
)
"""The code that a kind of error has in messages; every other is INTERNAL_ERROR."""


class DeprecatedContext(RemovedNames):
    """``with`` over objects that need none: it warns and has no effect."""

    __slots__ = ()

    def __enter__(self) -> Self:
        text = f"{type(self).__name__} is no context manager any more: it is freed when unused"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing: see ``__enter__``."""


class Reporter:
    """Tells of errors where the objects of one builder, runtime or refitter tell theirs.

    Args:
        logger: Where messages go.
    """

    def __init__(self, logger: dovetail.ILogger | None) -> None:
        self.logger: dovetail.ILogger = guard_logger(logger) if logger is not None else dovetail.Logger()
        self.recorder: dovetail.IErrorRecorder | None = None

    def attempt(self, call: str, action: Callable[[], T], failure: F) -> T | F:
        """What the action gives, or the answer that stands for its failure, which is told."""
        try:
            return action()
        except dovetail.DovetailError as error:
            self.report(call, error)
            return failure

    def report(self, call: str, error: dovetail.DovetailError) -> None:
        """Log and record one error; an exception of a callback behind it is printed."""
        code = next((code for kind, code in _CODES if isinstance(error, kind)), dovetail.ErrorCodeTRT.INTERNAL_ERROR)
        cause = error.__cause__
        if isinstance(error, dovetail.PluginError) and cause is not None:
            print_exception(_method_of(error), cause)
        text = f"{call}: Error Code {int(code)}: {code.name.replace('_', ' ').title()} ({error})"
        self.logger.log(dovetail.ILogger.ERROR, text)
        recorder = self.recorder
        if recorder is not None:
            call_user("report_error", lambda: recorder.report_error(code, str(error)[: recorder.MAX_DESC_LENGTH]), None)

    def warn(self, text: str) -> None:
        """Log a warning."""
        self.logger.log(dovetail.ILogger.WARNING, text)

    def refuse(self, call: str, text: str) -> None:
        """Log what a call cannot do."""
        self.report(call, dovetail.UsageError(text))


def _method_of(error: dovetail.PluginError) -> str:
    """The method that raised: errors of plugins begin with its name."""
    first = error.what.partition(" ")[0]
    return first if first.isidentifier() else "a plugin"


def print_exception(method: str, error: BaseException) -> None:
    """Print an exception of a callback to the standard error stream, as the contract has it."""
    sys.stderr.write(f"[ERROR] Exception thrown from {method}() {type(error).__name__}: {error}\n")
    sys.stderr.write("".join(traceback.format_exception(error)))


def call_user(method: str, action: Callable[[], T], failure: F) -> T | F:
    """What a callback gives; when it raises, the exception is printed and the answer stands for failure."""
    try:
        return action()
    except Exception as error:  # noqa: BLE001 - it is user code, which may raise anything
        print_exception(method, error)
        return failure


class _GuardedLogger(dovetail.ILogger):
    def __init__(self, logger: dovetail.ILogger) -> None:
        super().__init__()
        self._logger = logger

    def log(self, severity: Any, msg: str) -> None:
        call_user("log", lambda: self._logger.log(severity, msg), None)


def guard_logger(logger: dovetail.ILogger) -> dovetail.ILogger:
    """A logger whose exceptions are printed and not raised."""
    if not isinstance(logger, dovetail.ILogger):
        raise TypeError(f"logger must be an ILogger, not {type(logger).__name__}")
    return _GuardedLogger(logger)


class LoggedObject(StrictAttributes):
    """An object with a logger and an error recorder.

    Args:
        logger: Where messages go.
    """

    __slots__ = ("_given_logger", "_reporter")

    def __init__(self, logger: dovetail.ILogger) -> None:
        self._given_logger = logger
        self._reporter = Reporter(logger)

    def __del__(self) -> None:
        """Nothing: the contract has the name."""

    @property
    def logger(self) -> dovetail.ILogger:
        """Where messages go."""
        return self._given_logger

    @property
    def error_recorder(self) -> dovetail.IErrorRecorder | None:
        """Where errors are recorded too."""
        return self._reporter.recorder

    @error_recorder.setter
    def error_recorder(self, recorder: dovetail.IErrorRecorder | None) -> None:
        self._reporter.recorder = recorder


class DeviceObject(LoggedObject, DeprecatedContext):
    """What builders and runtimes have in common."""

    __slots__ = ()

    @property
    def num_DLA_cores(self) -> int:  # noqa: N802 - the contract's name
        """0: there is no DLA."""
        return 0
