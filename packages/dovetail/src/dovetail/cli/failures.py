"""From exception to exit code: every way a command can fail becomes one message on the standard error stream."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from dovetail._extras import describe_missing
from dovetail.cli.answers import dump_document
from dovetail.cli.streams import messages, writing_output
from dovetail.errors import DovetailError, InputError, InternalError, ResourceError
from dovetail.escapes import escape

__all__ = ["EXIT_INTERRUPTED", "EXIT_PIPE", "TRACEBACK_VARIABLE", "advise", "report_failure"]

EXIT_INTERRUPTED: Final = 130
EXIT_PIPE: Final = 141
TRACEBACK_VARIABLE: Final = "DOVETAIL_TRACEBACK"

_ADVICE: Final = (
    (re.compile(r"register the creator first: .*load_library\(path\)"), "name its library with --plugins"),
    (re.compile(r"load it with host_code=True \(.*\)"), "add --host-code"),
    (re.compile(r"load it with device_code=True \(.*?\)"), "leave out --no-device-code"),
    (re.compile(r"load it with dovetail\.load\(path\)"), "run it with 'dovetail run'"),
    (re.compile(r"build it with dovetail\.compile\(path\)"), "build it with 'dovetail build'"),
    (re.compile(r'against="cpu"'), "--against cpu"),
    (re.compile(r"call profile\.set_shape\('(.*)', min, opt, max\)"), r"add \1:min:opt:max to the profile"),
)
"""What a fix says to a programmer, and what it is on the command line."""


def report_failure(error: BaseException, *, as_json: bool) -> int:
    """Tell the user what went wrong; the exit code comes back."""
    stream = messages()
    if os.environ.get(TRACEBACK_VARIABLE):
        import traceback

        traceback.print_exception(error, file=stream)
    if isinstance(error, BrokenPipeError):
        return EXIT_PIPE
    if isinstance(error, KeyboardInterrupt):
        print("interrupted", file=stream)
        return EXIT_INTERRUPTED
    failure = _as_dovetail_error(error)
    is_read = not as_json or _write_document(failure)
    print(f"error: {escape(advise(str(failure)))}", file=stream)
    return failure.exit_code if is_read else EXIT_PIPE


def _write_document(failure: DovetailError) -> bool:
    """Write the failure as JSON; whether anybody still reads. An output that cannot be written hides no failure."""
    try:
        with writing_output() as output:
            print(dump_document(_describe(failure)), file=output)
    except BrokenPipeError:
        return False
    except ResourceError:
        return True
    return True


def _as_dovetail_error(error: BaseException) -> DovetailError:
    if isinstance(error, DovetailError):
        return error
    if isinstance(error, ModuleNotFoundError) and (missing := describe_missing(error)) is not None:
        return missing
    if isinstance(error, MemoryError):
        return ResourceError("memory ran out", fix="use smaller shapes, or a machine with more memory")
    if isinstance(error, OSError) and error.filename is not None:
        return InputError(f"{error.strerror or type(error).__name__}", where=str(error.filename))
    text = str(error).partition("\n")[0][:200]
    return InternalError(
        f"internal error: {type(error).__name__}: {text}; please report (set {TRACEBACK_VARIABLE}=1 to see where)"
    )


def advise(text: str) -> str:
    """A message with what it says to a programmer put as it is on the command line."""
    for pattern, replacement in _ADVICE:
        text = pattern.sub(replacement, text)
    return text


def _describe(error: DovetailError) -> dict[str, Any]:
    facts = {name: getattr(error, name) for name in ("what", "where", "expected", "got", "fix")}
    return {
        "error": {
            "kind": type(error).__name__,
            "message": advise(str(error)),
            **{name: None if fact is None else advise(str(fact)) for name, fact in facts.items()},
        },
        "exit_code": error.exit_code,
    }
