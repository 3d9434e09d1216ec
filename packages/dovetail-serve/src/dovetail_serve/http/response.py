"""Responses over HTTP: JSON documents, the bytes of tensors after them, and errors."""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dovetail_serve.errors import ServeError
from dovetail_serve.http.request import ReadRequest
from dovetail_serve.protocol.requests import InferResponse
from dovetail_serve.tensors.datatypes import name_from_dtype
from dovetail_serve.tensors.raw import raw_from_array
from dovetail_serve.tensors.values import is_finite, values_from_array

__all__ = ["encode_infer_response", "send_error", "send_json", "send_response"]

Header = tuple[bytes, bytes]

_JSON: Final = (b"content-type", b"application/json")
_BINARY: Final = (b"content-type", b"application/octet-stream")
_SMALLEST_COMPRESSED: Final = 512
"""Below this a compressed response is hardly shorter."""
_LARGEST_ON_LOOP: Final = 16 << 10
"""What takes longer to compress would hold up other requests."""

_LOG: Final = logging.getLogger("dovetail_serve.http")
_encode: Final = msgspec.json.Encoder().encode


def encode_infer_response(response: InferResponse, read: ReadRequest) -> tuple[bytes, list[Header]]:
    """The body of a response and the headers that describe it."""
    outputs = []
    parts: list[bytes | memoryview] = [b""]
    has_only_finite = True
    for name, array in response.outputs.items():
        where = f"output '{name}'"
        entry: dict[str, Any] = {
            "name": name,
            "datatype": name_from_dtype(array.dtype, where),
            "shape": array.shape,
        }
        if read.binary.get(name, read.is_binary):
            raw = raw_from_array(array)
            entry["parameters"] = {"binary_data_size": len(raw)}
            parts.append(raw)
        else:
            entry["data"] = values_from_array(array, where)
            has_only_finite = has_only_finite and is_finite(array)
        outputs.append(entry)
    document: dict[str, Any] = {"model_name": response.model, "model_version": response.version, "outputs": outputs}
    if response.id:
        document["id"] = response.id
    # msgspec writes null for what is not finite.
    head = _encode(document) if has_only_finite else json.dumps(document, separators=(",", ":")).encode()
    if len(parts) == 1:
        return head, [_JSON]
    parts[0] = head
    return b"".join(parts), [_BINARY, (b"inference-header-content-length", b"%d" % len(head))]


async def send_response(send: Any, body: bytes, headers: list[Header], accept: bytes = b"", status: int = 200) -> None:
    """Send a response, compressed where the client accepts it."""
    if accept and len(body) >= _SMALLEST_COMPRESSED:
        encoding = _choose_encoding(accept)
        if encoding:
            large = len(body) > _LARGEST_ON_LOOP
            body = await asyncio.to_thread(_compress, body, encoding) if large else _compress(body, encoding)
            headers = [*headers, (b"content-encoding", encoding), (b"vary", b"accept-encoding")]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _choose_encoding(accept: bytes) -> bytes:
    """The first of gzip and deflate that the header has with a weight above 0."""
    weights = dict(_split_weight(each) for each in accept.lower().split(b",")[:16])
    return next((each for each in (b"gzip", b"deflate") if weights.get(each)), b"")


def _split_weight(text: bytes) -> tuple[bytes, bool]:
    name, _, weight = text.partition(b";")
    return name.strip(), weight.strip().replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")


def _compress(body: bytes, encoding: bytes) -> bytes:
    stream = zlib.compressobj(1, wbits=31 if encoding == b"gzip" else 15)
    return stream.compress(body) + stream.flush()


async def send_json(send: Any, document: object, status: int = 200) -> None:
    """Send a document, never compressed: clients that accept it for tensors do not always undo it for documents."""
    await send_response(send, _encode(document), [_JSON], status=status)


async def send_error(send: Any, error: Exception, extra: Mapping[bytes, bytes] | None = None) -> None:
    """Send what went wrong; of what is no ``ServeError`` the client learns nothing, and the log all."""
    headers = [_JSON, *(extra or {}).items()]
    if isinstance(error, ServeError):
        status, text = error.http_status, str(error)
    else:
        _LOG.error("A request failed within the server", exc_info=error)
        status, text = 500, "the server failed; its log says why"
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % retry_after_s))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send_response(send, _encode({"error": text}), headers, status=status)
