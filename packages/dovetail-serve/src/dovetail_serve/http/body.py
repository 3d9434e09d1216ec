"""The body of a request: read within the limit of size and time, and decompressed within the limit."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from typing import Final

from dovetail_serve.errors import RequestError, TooLargeError
from dovetail_serve.http.exchange import Exchange

__all__ = ["decompress", "read_body", "read_number"]

_WINDOWS: Final = {b"gzip": 31, b"deflate": 15}
"""The format that zlib expects; ``deflate`` is the format of zlib, as browsers and clients have it."""


async def read_body(headers: Mapping[bytes, bytes], exchange: Exchange, most_bytes: int) -> bytes:
    """The whole body as the client means it, of at most ``most_bytes``."""
    if b"content-length" in headers and read_number(headers, b"content-length") > most_bytes:
        raise _too_large(most_bytes)
    data = await _read_parts(exchange, most_bytes)
    if b"content-encoding" not in headers:
        return data
    encoding = headers[b"content-encoding"].strip().lower()
    if encoding == b"identity":
        return data
    if encoding not in _WINDOWS:
        raise RequestError(
            "the Content-Encoding is not known", expected="gzip, deflate, identity", got=_shown(encoding)
        )
    # A small body may grow to the limit, which would hold up every other request.
    return await asyncio.to_thread(decompress, data, encoding, most_bytes)


async def _read_parts(exchange: Exchange, most_bytes: int) -> bytes:
    data, is_last = await exchange.read_part()
    if is_last:
        return data
    parts = bytearray(data)
    while not is_last:
        data, is_last = await exchange.read_part()
        parts += data
        if len(parts) > most_bytes:
            raise _too_large(most_bytes)
    return bytes(parts)


def read_number(headers: Mapping[bytes, bytes], name: bytes) -> int:
    """The number of a header; 0 where it is not there."""
    text = headers.get(name, b"0")
    if not text.isdigit() or len(text) > 18:
        raise RequestError("the header is no number", where=name.decode(), got=_shown(text))
    return int(text)


def decompress(data: bytes, encoding: bytes, most_bytes: int) -> bytes:
    """What ``data`` was before it was compressed, if that is at most ``most_bytes``.

    >>> decompress(zlib.compress(b"abc"), b"deflate", 3)
    b'abc'
    """
    stream = zlib.decompressobj(_WINDOWS[encoding])
    try:
        found = stream.decompress(data, most_bytes + 1)
    except zlib.error:
        raise RequestError("the body is not compressed as its Content-Encoding says", got=_shown(encoding)) from None
    if len(found) > most_bytes:
        raise _too_large(most_bytes)
    if not stream.eof or stream.unused_data:
        raise RequestError("the compressed body does not end where its stream does", got=_shown(encoding))
    return found


def _too_large(most_bytes: int) -> TooLargeError:
    fix = "send less at once, or start the server with a larger limit"
    return TooLargeError("the body is larger than the server takes", expected=f"at most {most_bytes} bytes", fix=fix)


def _shown(text: bytes) -> str:
    return text[:40].decode("latin-1")
