"""An inference request over HTTP: a JSON document, and the bytes of tensors after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dovetail_serve.errors import RequestError, TooLargeError
from dovetail_serve.http.body import read_number
from dovetail_serve.http.document import DescribedInput, DocumentReader
from dovetail_serve.options import Limits
from dovetail_serve.protocol.requests import InferRequest
from dovetail_serve.tensors.raw import array_from_raw
from dovetail_serve.tensors.values import array_from_json, array_from_values

__all__ = ["ReadRequest", "RequestReader"]

_HEADER_LENGTH: Final = b"inference-header-content-length"


class ReadRequest(NamedTuple):
    """A request, and which outputs the client wants as raw bytes."""

    request: InferRequest
    binary: Mapping[str, bool]
    is_binary: bool
    """For outputs that ``binary`` does not name."""


class RequestReader:
    """Reads bodies of requests, within limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._documents = DocumentReader(limits)

    def read(self, headers: Mapping[bytes, bytes], body: bytes, model: str, version: str) -> ReadRequest:
        """The request that a body holds."""
        size = self._find_end(headers, body)
        has_tensors = size < len(body)
        found = self._documents.read(body[:size], has_tensors=has_tensors)
        request = InferRequest(
            model,
            _read_inputs(found.inputs, memoryview(body)[size:]),
            version,
            found.outputs,
            found.id,
            found.priority,
            found.timeout_us,
            found.parameters,
        )
        return ReadRequest(request, found.binary, found.is_binary)

    def _find_end(self, headers: Mapping[bytes, bytes], body: bytes) -> int:
        """Where the document ends."""
        if _HEADER_LENGTH not in headers:
            return len(body)
        size, most = read_number(headers, _HEADER_LENGTH), self._limits.header_bytes
        if size > len(body):
            where, expected = "Inference-Header-Content-Length", f"at most {len(body)}"
            raise RequestError("the header is longer than the body", where=where, expected=expected, got=size)
        if most < size < len(body):
            raise TooLargeError("the document before the tensors is too large", expected=f"at most {most}")
        return size


def _read_inputs(inputs: Sequence[DescribedInput], rest: memoryview) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    position = 0
    for each in inputs:
        if each.raw_bytes is None:
            arrays[each.name] = _read_values(each)
            continue
        end = position + each.raw_bytes
        if end > len(rest):
            expected, got = f"{each.raw_bytes} bytes", f"{len(rest) - position} bytes after the document"
            raise RequestError("the tensor ends after the body", where=each.where, expected=expected, got=got)
        raw = rest[position:end]
        arrays[each.name] = array_from_raw(raw, each.shape, each.num_elements, each.datatype, each.where)
        position = end
    if position != len(rest):
        raise RequestError("the body goes on after the last tensor", expected=position, got=f"{len(rest)} bytes")
    return arrays


def _read_values(described: DescribedInput) -> Any:
    data, how = described.data, (described.shape, described.num_elements, described.datatype, described.where)
    return array_from_json(data, *how) if isinstance(data, msgspec.Raw) else array_from_values(data, *how)
