"""The process that compiles: requests come in on standard input and answers go out on standard output.

Each message is its length in four bytes and msgpack. Nothing else may write to standard output, so what libraries print
goes to standard error.
"""

from __future__ import annotations

import os
import sys
from typing import IO, Final

import msgspec

from dovetail_cuda.compile.request import CompiledCode, KernelRequest
from dovetail_cuda.compile.triton_compiler import compile_kernel

__all__ = ["Answer", "CompileFailure", "main", "read_message", "write_message"]

_LENGTH_BYTES: Final = 4


class CompileFailure(msgspec.Struct, frozen=True, tag="failure"):
    """Why a kernel could not be compiled."""

    reason: str


class CompileSuccess(msgspec.Struct, frozen=True, tag="success"):
    """What came of a kernel."""

    code: CompiledCode


Answer = CompileFailure | CompileSuccess


def read_message(stream: IO[bytes]) -> bytes | None:
    """The next message; None at the end."""
    head = stream.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    return stream.read(int.from_bytes(head, "little"))


def write_message(stream: IO[bytes], message: bytes) -> None:
    """Send a message."""
    stream.write(len(message).to_bytes(_LENGTH_BYTES, "little") + message)
    stream.flush()


def _answer(message: bytes) -> Answer:
    request = msgspec.msgpack.decode(message, type=KernelRequest)
    try:
        return CompileSuccess(compile_kernel(request))
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is told to whoever asked
        return CompileFailure(_describe(error))


def _describe(error: BaseException) -> str:
    """What was raised, and what it was raised for: a kernel's own line says little of what is wrong in a call."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = f"{type(error).__name__}: {error}"
    return text if cause is error else f"{text}\n{type(cause).__name__}: {cause}"


def main() -> None:
    """Compile until the other side ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while (message := read_message(sys.stdin.buffer)) is not None:
        write_message(answers, msgspec.msgpack.encode(_answer(message)))


if __name__ == "__main__":
    main()
