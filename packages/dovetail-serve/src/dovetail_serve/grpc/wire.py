"""The encoding of protocol buffers, as far as the bytes of tensors need it.

The raw contents of a request become views of its bytes, and those of a response are copied once. Only the rest, which
is small, goes through message classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dovetail_serve.errors import RequestError, TooLargeError

__all__ = ["join_field", "split_field"]

_MOST_FIELDS: Final = 4096
"""Of a request; one of tiny fields by the million would take many times its size."""
_FIXED_BYTES: Final = {1: 8, 5: 4}
"""The size of a value by its wire type."""


def split_field(data: bytes, number: int, what: str) -> tuple[bytes, list[memoryview]]:
    r"""A message without the field ``number``, and the values of that field, which must be bytes.

    >>> rest, found = split_field(b"\x0a\x01m\x3a\x02xy", 7, "the request")
    >>> rest, [bytes(each) for each in found]
    (b'\n\x01m', [b'xy'])
    """
    spans = _find_field(data, number << 3 | 2, what)
    if not spans:
        return data, []
    view = memoryview(data)
    rest = []
    end = 0
    for field, _, stop in spans:
        rest.append(view[end:field])
        end = stop
    rest.append(view[end:])
    return b"".join(rest), [view[start:stop] for _, start, stop in spans]


def _find_field(data: bytes, tag: int, what: str) -> list[tuple[int, int, int]]:
    """Where the fields of a tag begin, where their values do, and where they end."""
    spans: list[tuple[int, int, int]] = []
    position = 0
    for _ in range(_MOST_FIELDS):
        if position >= len(data):
            return spans
        field = position
        key, position = _read_number(data, position, what)
        start, position = _skip(data, key & 7, position, what)
        if key == tag:
            spans.append((field, start, position))
    if position < len(data):
        raise TooLargeError(f"{what} has too many fields", expected=f"at most {_MOST_FIELDS}")
    return spans


def _skip(data: bytes, kind: int, position: int, what: str) -> tuple[int, int]:
    """Where the value of a field begins and where the next field does."""
    start = position
    if kind == 2:
        size, start = _read_number(data, position, what)
        position = start + size
    elif kind == 0:
        _, position = _read_number(data, position, what)
    elif kind in _FIXED_BYTES:
        position += _FIXED_BYTES[kind]
    else:
        raise _damaged(what)
    if position > len(data):
        raise _damaged(what)
    return start, position


def _read_number(data: bytes, position: int, what: str) -> tuple[int, int]:
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _damaged(what)


def _damaged(what: str) -> RequestError:
    return RequestError(f"{what} is no message of the protocol")


def join_field(head: bytes, number: int, values: Iterable[bytes | memoryview]) -> bytes:
    r"""A message with ``values`` added as the field ``number``.

    >>> join_field(b"", 6, [b"xy"])
    b'2\x02xy'
    """
    parts: list[bytes | memoryview] = [head]
    tag = bytes((number << 3 | 2,))
    for value in values:
        parts += (tag, _write_number(len(value)), value)
    return b"".join(parts)


def _write_number(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
