"""An inference request over HTTP: a JSON document, and the bytes of tensors after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dovetail_serve.errors import RequestError, TooLargeError
from dovetail_serve.http.body import read_number
from dovetail_serve.options import Limits
from dovetail_serve.protocol.parameters import Scalar, check_tensor_parameters, read_whole_number
from dovetail_serve.protocol.requests import InferRequest
from dovetail_serve.tensors.datatypes import datatype_from_name
from dovetail_serve.tensors.raw import array_from_raw
from dovetail_serve.tensors.shapes import count_elements
from dovetail_serve.tensors.values import array_from_json, array_from_values

__all__ = ["HEADER_LENGTH", "ReadRequest", "read_infer_request"]

HEADER_LENGTH: Final = b"inference-header-content-length"
_NO_DATA: Final = msgspec.Raw()


class InputEntry(msgspec.Struct):
    """An input as the document describes it."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Scalar] = {}
    data: msgspec.Raw = _NO_DATA
    """Not decoded before its size has been compared with the shape."""


class OutputEntry(msgspec.Struct):
    """An output that the client asks for."""

    name: str
    parameters: dict[str, Scalar] = {}


class InferDocument(msgspec.Struct):
    """The document of a request."""

    inputs: list[InputEntry]
    id: str = ""
    parameters: dict[str, Scalar] = {}
    outputs: list[OutputEntry] | None = None


class ReadRequest(NamedTuple):
    """A request, and which outputs the client wants as raw bytes."""

    request: InferRequest
    binary: Mapping[str, bool]
    is_binary: bool
    """For outputs that ``binary`` does not name."""


_DECODER: Final = msgspec.json.Decoder(InferDocument)


def read_infer_request(
    headers: Mapping[bytes, bytes], body: bytes, model: str, version: str, limits: Limits
) -> ReadRequest:
    """The request that the body holds."""
    size = _document_size(headers, body, limits)
    document = _decode(body if size == len(body) else memoryview(body)[:size])
    if len(document.inputs) > limits.tensors or len(document.outputs or ()) > limits.tensors:
        raise TooLargeError("the request has too many tensors", expected=f"at most {limits.tensors}")
    parameters = document.parameters
    if parameters:
        check_tensor_parameters(parameters, "the request")
    request = InferRequest(
        model=model,
        inputs=_read_inputs(document.inputs, memoryview(body)[size:], limits),
        version=version,
        outputs=[each.name for each in document.outputs] if document.outputs else None,
        id=document.id,
        priority=read_whole_number(parameters, "priority") if parameters else 0,
        timeout_us=read_whole_number(parameters, "timeout") if parameters else 0,
        parameters=parameters,
    )
    binary = {each.name: _is_binary(each, parameters) for each in document.outputs or ()}
    return ReadRequest(request, binary, parameters.get("binary_data_output") is True)


def _document_size(headers: Mapping[bytes, bytes], body: bytes, limits: Limits) -> int:
    if HEADER_LENGTH not in headers:
        return len(body)
    size = read_number(headers, HEADER_LENGTH)
    if size > len(body):
        where = "Inference-Header-Content-Length"
        raise RequestError("the header is longer than the body", where=where, expected=f"at most {len(body)}", got=size)
    if size > limits.header_bytes and size < len(body):
        raise TooLargeError("the document before the tensors is too large", expected=f"at most {limits.header_bytes}")
    return size


def _decode(text: bytes | memoryview) -> InferDocument:
    try:
        return _DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise RequestError("the request does not fit the protocol", got=str(error)[:400]) from None
    except RecursionError:
        raise RequestError("the request is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if b"NaN" in bytes(text) or b"Inf" in bytes(text):
            return _decode_with_nan(bytes(text))
        raise RequestError("the request is no JSON", got=str(error)[:100]) from None


def _decode_with_nan(text: bytes) -> InferDocument:
    """Decode what other servers and clients write for NaN and the infinities, which strict JSON lacks."""
    try:
        found = json.loads(text)
        inputs = found.get("inputs") if isinstance(found, dict) else None
        entries = [each for each in inputs if isinstance(each, dict)] if isinstance(inputs, list) else []
        values = [each.pop("data", _NO_DATA) for each in entries]
        document = msgspec.convert(found, InferDocument)
    except (ValueError, RecursionError):
        raise RequestError("the request does not fit the protocol, or is no JSON") from None
    for entry, value in zip(document.inputs, values, strict=True):
        entry.data = value
    return document


def _read_inputs(entries: list[InputEntry], rest: memoryview, limits: Limits) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    position = 0
    for entry in entries:
        where = f"input '{entry.name}'"
        if entry.name in arrays:
            raise RequestError("the input is given twice", where=where)
        size = _binary_size(entry, where)
        if size is not None and size > len(rest) - position:
            got = f"{len(rest) - position} bytes after the document"
            raise RequestError("the tensor ends after the body", where=where, expected=f"{size} bytes", got=got)
        arrays[entry.name] = _read_array(entry, rest[position : position + (size or 0)], limits, where)
        position += size or 0
    if position != len(rest):
        raise RequestError("the body goes on after the last tensor", expected=position, got=f"{len(rest)} bytes")
    return arrays


def _binary_size(entry: InputEntry, where: str) -> int | None:
    if not entry.parameters:
        return None
    check_tensor_parameters(entry.parameters, where)
    if "binary_data_size" not in entry.parameters:
        return None
    return read_whole_number(entry.parameters, "binary_data_size")


def _read_array(entry: InputEntry, raw: memoryview, limits: Limits, where: str) -> Any:
    datatype = datatype_from_name(entry.datatype, where)
    count = count_elements(entry.shape, datatype, limits.tensor_bytes, where)
    data: object = entry.data
    is_raw = "binary_data_size" in entry.parameters
    if is_raw != (data is _NO_DATA):
        raise RequestError("the input must have 'data' or 'binary_data_size', and not both", where=where)
    if is_raw:
        return array_from_raw(raw, entry.shape, count, datatype, where)
    if isinstance(data, msgspec.Raw):
        return array_from_json(data, entry.shape, count, datatype, where)
    return array_from_values(data, entry.shape, count, datatype, where)


def _is_binary(entry: OutputEntry, parameters: Mapping[str, Scalar]) -> bool:
    check_tensor_parameters(entry.parameters, f"output '{entry.name}'")
    default = parameters.get("binary_data_output", False)
    return entry.parameters.get("binary_data", default) is True
