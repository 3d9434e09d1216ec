"""BYTES tensors as raw bytes: each string after its length in four bytes, little-endian."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

import numpy.typing as npt

from dovetail_serve.errors import RequestError

__all__ = ["bytes_from_string", "raw_from_strings", "strings_from_raw"]

_LENGTH: Final = struct.Struct("<I")


def strings_from_raw(raw: memoryview, count: int, where: str) -> list[bytes]:
    r"""The strings that ``raw`` holds, exactly ``count`` of them.

    >>> strings_from_raw(memoryview(b"\x02\x00\x00\x00hi\x00\x00\x00\x00"), 2, "input 'x'")
    [b'hi', b'']
    """
    found: list[bytes] = []
    position = 0
    while position < len(raw):
        start = position + 4
        if start > len(raw) or len(found) == count:
            raise _wrong_strings(len(raw), count, where)
        position = start + _LENGTH.unpack_from(raw, start - 4)[0]
        if position > len(raw):
            raise _wrong_strings(len(raw), count, where)
        found.append(bytes(raw[start:position]))
    if len(found) != count:
        raise _wrong_strings(len(raw), count, where)
    return found


def _wrong_strings(size: int, count: int, where: str) -> RequestError:
    return RequestError(
        "the bytes of the tensor do not hold the strings of its shape",
        where=where,
        expected=f"{count} strings, each after its length in 4 bytes",
        got=f"{size} bytes",
    )


def raw_from_strings(strings: npt.NDArray[Any]) -> bytes:
    r"""The raw bytes of a BYTES tensor.

    >>> import numpy as np
    >>> raw_from_strings(np.array(["hi"], object))
    b'\x02\x00\x00\x00hi'
    """
    return b"".join(_with_lengths(strings.ravel().tolist()))


def _with_lengths(strings: Iterable[bytes | str]) -> Iterable[bytes]:
    for string in strings:
        data = bytes_from_string(string)
        yield _LENGTH.pack(len(data))
        yield data


def bytes_from_string(string: bytes | str) -> bytes:
    """The bytes of one element, which engines give as ``bytes`` or ``str``."""
    return string if isinstance(string, bytes) else string.encode("utf-8", "surrogateescape")
