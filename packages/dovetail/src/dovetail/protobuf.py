"""The wire format of protobuf: the fields of a message where they lie, and fields as bytes.

It serves where the onnx package cannot: a plan runs without it, and its parser copies every byte. What a message means
is for the caller to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Field", "MalformedMessageError", "read_fields", "write_bytes", "write_header", "write_number"]

_NUMBER, _LENGTH_DELIMITED = 0, 2
_FIXED_BYTES: Final = {1: 8, 5: 4}
_MAX_TAG: Final = 2**32
"""Readers in C++ take the lower 32 bits of a tag; what a larger one means depends on who reads it."""


class MalformedMessageError(Exception):
    """The bytes are not in the wire format, or in a part of it that no reader accepts any more."""


class Field(NamedTuple):
    """One field of a message, by places in the bytes that were read."""

    number: int
    start: int
    """Where its tag starts."""
    content: int
    """Where its content starts."""
    end: int
    has_length: bool
    """Whether its content is bytes, text or a message, and not a number."""


def read_fields(data: memoryview, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """The fields of the message in a part of the bytes.

    >>> [(field.number, field.has_length) for field in read_fields(memoryview(write_bytes(7, b"xy")))]
    [(7, True)]

    Raises:
        MalformedMessageError: They are none.
    """
    end = len(data) if end is None else end
    while start < end:
        tag, content = _read_varint(data, start, end)
        number, kind = tag >> 3, tag & 7
        if kind == _LENGTH_DELIMITED:
            length, content = _read_varint(data, content, end)
            after = content + length
        elif kind == _NUMBER:
            _, after = _read_varint(data, content, end)
        else:
            after = content + _FIXED_BYTES.get(kind, end)
        if not 8 <= tag < _MAX_TAG or after > end:
            raise MalformedMessageError
        yield Field(number, start, content, after, kind == _LENGTH_DELIMITED)
        start = after


def _read_varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            break
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise MalformedMessageError


def write_bytes(number: int, content: bytes) -> bytes:
    """A field with bytes, text or a message."""
    return write_header(number, len(content)) + content


def write_header(number: int, length: int) -> bytes:
    """What stands before the content of a field of that many bytes."""
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(length)


def write_number(number: int, value: int) -> bytes:
    """A field with a number."""
    return _varint(number << 3 | _NUMBER) + _varint(value)


def _varint(value: int) -> bytes:
    return _SHORT[value] if value < 128 else bytes(_groups(value))


_SHORT: Final = tuple(bytes((value,)) for value in range(128))
"""Nearly every number that is written; a model has thousands."""


def _groups(value: int) -> Iterator[int]:
    while value > 127:
        yield value & 127 | 128
        value >>= 7
    yield value
