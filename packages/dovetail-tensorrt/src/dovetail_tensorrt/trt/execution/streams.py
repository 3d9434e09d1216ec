"""Plans through streams of the caller's: written in pieces, and read from wherever the caller has them."""

from __future__ import annotations

from typing import Any, Final

import dovetail
from dovetail_tensorrt.trt.answers import call_user
from dovetail_tensorrt.trt.enums import SeekPosition

__all__ = ["IStreamReader", "IStreamReaderV2", "IStreamWriter", "read_all", "write_all"]

_PIECE_BYTES: Final = 1 << 20


class IStreamWriter:
    """Takes the bytes of a plan."""

    def write(self, data: bytes) -> int:
        """Take bytes; how many were taken comes back."""
        raise NotImplementedError(f"{type(self).__name__} must implement write(data)")


class IStreamReader:
    """Gives the bytes of a plan, in order."""

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
        raise NotImplementedError(f"{type(self).__name__} must implement read(size)")


class IStreamReaderV2:
    """Gives the bytes of a plan, from any place."""

    def read(self, num_bytes: int, stream: int) -> bytes:
        """At most so many bytes; none at the end."""
        raise NotImplementedError(f"{type(self).__name__} must implement read(num_bytes, stream)")

    def seek(self, offset: int, where: SeekPosition) -> bool:
        """Go to a place; False when that is not possible."""
        raise NotImplementedError(f"{type(self).__name__} must implement seek(offset, where)")


def write_all(writer: IStreamWriter, plan: bytes) -> None:
    """Write a plan in pieces.

    Raises:
        DovetailError: The writer raised, or took less than it was given.
    """
    view = memoryview(plan)
    position = 0
    while position < len(view):
        piece = bytes(view[position : position + _PIECE_BYTES])
        taken = call_user("write", lambda piece=piece: int(writer.write(piece)), 0)  # type: ignore[misc]
        if not 0 < taken <= len(piece):
            raise dovetail.ResourceError(
                "the stream writer did not take all bytes",
                where=f"byte {position} of {len(view)}",
                expected=len(piece),
                got=taken,
                fix="return the number of bytes that write took",
            )
        position += taken


def read_all(reader: Any) -> bytes:
    """The plan that a reader of either kind has, never asked for more than there is.

    Raises:
        DovetailError: It raised, or gives no bytes.
    """
    if isinstance(reader, IStreamReaderV2):
        call_user("seek", lambda: reader.seek(0, SeekPosition.SET), failure=False)
    plan = bytearray()
    while missing := dovetail.count_missing_bytes(plan):
        end = len(plan) + missing
        while len(plan) < end:
            piece = _read_piece(reader, min(end - len(plan), _PIECE_BYTES))
            if not piece:  # the loader says what is wrong with a plan that ends early
                return bytes(plan)
            plan += piece
    return bytes(plan)


def _read_piece(reader: Any, num_bytes: int) -> bytes:
    arguments = (num_bytes, 0) if isinstance(reader, IStreamReaderV2) else (num_bytes,)
    piece = call_user("read", lambda: reader.read(*arguments), None)
    if piece is None or len(data := bytes(piece)) > num_bytes:
        raise dovetail.PlanError(
            "the stream reader did not give the bytes that were asked for",
            expected=f"at most {num_bytes} bytes",
            got="nothing" if piece is None else f"{len(data)} bytes",
            fix="return the next num_bytes bytes from read, fewer where the stream ends",
        )
    return data
