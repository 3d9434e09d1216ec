"""Reading what strangers wrote: whatever a decoder raises becomes one error that names the file and what is wrong.

Decoders and the code behind them fail in many ways on bytes that only look right: deep nesting, numbers of a thousand
digits, halves of characters, sizes without end. A caller who reads a bad file must hear that it is bad, and neither see
another exception nor be told of a bug in Dovetail.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec

from dovetail.errors import DovetailError, InternalError, ResourceError
from dovetail.escapes import escape_line

__all__ = ["NESTED", "decode", "first_line", "judging", "walk_json"]

NESTED: Final = "it is nested too deep"

T = TypeVar("T")
Fail = Callable[[str], DovetailError]
"""Makes the error from a reason in words."""


def decode(decoder: msgspec.json.Decoder[T], text: bytes | msgspec.Raw, fail: Fail) -> T:
    """What a text holds, or the error that says why it cannot be read."""
    try:  # not a context manager: a plan has thousands of entries
        return decoder.decode(text)
    except Exception as error:
        raise _name(error, fail) from error


def walk_json(text: bytes, visit: Callable[[list[tuple[str, Any]]], object], fail: Fail) -> None:
    """Show every object of a JSON text to a function, with keys that occur twice; what it raises passes."""
    with judging(fail):
        # Numbers are not looked at: Python refuses to read those of thousands of digits.
        json.loads(text, object_pairs_hook=visit, parse_int=str, parse_float=str)


@contextmanager
def judging(fail: Fail) -> Iterator[None]:
    """Turn what a block raises on bad content into an error of Dovetail; those of Dovetail pass, except bugs.

    Args:
        fail: Makes the error; the exception becomes its cause.
    """
    try:
        yield
    except Exception as error:
        named = _name(error, fail)
        if named is error:
            raise
        raise named from error


def _name(error: Exception, fail: Fail) -> DovetailError:
    """The error of Dovetail for an exception."""
    if isinstance(error, DovetailError):
        return fail(error.what) if isinstance(error, InternalError) else error
    if isinstance(error, MemoryError):
        return ResourceError("memory ran out", fix="use smaller sizes, or a machine with more memory")
    if isinstance(error, RecursionError):
        return fail(NESTED)
    if isinstance(error, msgspec.MsgspecError):
        return fail(first_line(error))
    return fail(f"{type(error).__name__}: {first_line(error)}")


def first_line(error: BaseException) -> str:
    """What an exception says, in one short line."""
    lines = str(error).splitlines()
    return escape_line(lines[0][:200]) if lines else type(error).__name__
