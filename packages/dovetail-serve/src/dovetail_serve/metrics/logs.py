"""Logs: one line for each thing that happened, as text or as JSON, without any value that clients sent.

Everything goes to loggers below ``dovetail_serve``, so a program that has a server in it treats them as any others.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from dovetail.escapes import escape_line
from dovetail_serve.errors import RunError, ServeError
from dovetail_serve.protocol.requests import InferRequest, InferResponse

__all__ = ["FailureLog", "JsonLines", "RequestLog", "TextLines", "set_up_logs"]

_FIELDS: Final = "dovetail_fields"
"""The attribute of a record that holds what else is known, by name."""
_REQUESTS: Final = logging.getLogger("dovetail_serve.requests")
_QUIET_S: Final = 1.0
"""How long after a failure of one model and kind the next one is only counted."""
_LONGEST: Final = 200
_US: Final = 1000


def set_up_logs(*, as_json: bool, level: int, stream: TextIO | None = None) -> logging.Handler:
    """Send the logs of the server, and of what it runs on, to a stream; by default the standard error stream."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    for name in ("dovetail_serve", "dovetail.serve", "uvicorn.error", "grpc"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level if name.startswith("dovetail") else logging.WARNING)
    return handler


class JsonLines(logging.Formatter):
    """Each record is one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback is a field of it."""
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


class TextLines(logging.Formatter):
    """Each record is one line for people: when, how bad, what, and what else is known."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback follows it."""
        fields = getattr(record, _FIELDS, {})
        known = "".join(f" {name}={escape_line(str(value))}" for name, value in fields.items() if value != "")
        text = f"{_time(record)} {record.levelname.lower()}: {escape_line(record.getMessage())}{known}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _write(level: int, message: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
    _REQUESTS.log(level, message, extra={_FIELDS: fields}, exc_info=error)


class RequestLog:
    """A line for each request, of those that failed too."""

    def observe(self, request: InferRequest, start_ns: int, end: InferResponse | BaseException) -> None:
        """Write the line."""
        if not _REQUESTS.isEnabledFor(logging.INFO):
            return
        fields: dict[str, Any] = {**_name(request), "status": _status(end)}
        if isinstance(end, InferResponse):
            fields |= {"version": end.version, "queue_us": end.queue_ns // _US, "compute_us": end.compute_ns // _US}
        fields["total_us"] = (time.time_ns() - start_ns) // _US
        _write(logging.INFO, "request", fields)


class FailureLog:
    """A line for requests that fail; of failures that follow at once the next line says how many there were."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], float] = {}
        self._unsaid: dict[tuple[str, str], int] = {}

    def write(self, model: str, request: InferRequest, error: ServeError) -> None:
        """Write or count one."""
        key, now = (model, type(error).__name__), time.monotonic()
        if now - self._last.get(key, -_QUIET_S) < _QUIET_S:
            self._unsaid[key] = self._unsaid.get(key, 0) + 1
            return
        self._last[key] = now
        fields = {**_name(request), "status": error.http_status, "kind": key[1]}
        if more := self._unsaid.pop(key, 0):
            fields["more_before"] = more
        is_ours = isinstance(error, RunError)
        level = logging.ERROR if is_ours else logging.WARNING
        _write(level, f"request failed: {error}", fields, error.__cause__ if is_ours else None)


def _name(request: InferRequest) -> dict[str, Any]:
    return {"id": request.id[:_LONGEST], "model": request.model[:_LONGEST], "version": request.version[:_LONGEST]}


def _status(end: InferResponse | BaseException) -> int:
    """The status of HTTP; 499 for a client that did not wait."""
    if isinstance(end, InferResponse):
        return 200
    if isinstance(end, ServeError):
        return end.http_status
    return 500 if isinstance(end, Exception) else 499
