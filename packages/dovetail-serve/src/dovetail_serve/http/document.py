"""The JSON document of an inference request over HTTP: decoded, checked, and kept where it comes again and again.

Clients that send tensors as raw bytes send the same document with each of them, as long as shapes stay the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dovetail_serve.errors import RequestError, TooLargeError
from dovetail_serve.options import Limits
from dovetail_serve.protocol.parameters import Scalar, check_tensor_parameters, read_whole_number
from dovetail_serve.tensors.datatypes import Datatype, datatype_from_name
from dovetail_serve.tensors.shapes import count_elements

__all__ = ["NO_DATA", "DescribedInput", "DescribedRequest", "DocumentReader"]

NO_DATA: Final = msgspec.Raw()
_MOST_KEPT: Final = 256
_LARGEST_KEPT: Final = 1 << 10


class InputEntry(msgspec.Struct):
    """An input as the document describes it."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Scalar] = {}
    data: msgspec.Raw = NO_DATA
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


_DECODER: Final = msgspec.json.Decoder(InferDocument)


class DescribedInput(NamedTuple):
    """An input whose description was found to be right."""

    name: str
    where: str
    """What it is called in messages."""
    shape: Sequence[int]
    num_elements: int
    datatype: Datatype
    raw_bytes: int | None
    """How many bytes it has after the document; None for values in the document."""
    data: object
    """The text of the values, or the values, or ``NO_DATA``."""


class DescribedRequest(NamedTuple):
    """A request as its document describes it."""

    inputs: Sequence[DescribedInput]
    outputs: Sequence[str] | None
    id: str
    priority: int
    timeout_us: int
    parameters: Mapping[str, Scalar]
    binary: Mapping[str, bool]
    """Which outputs the client wants as raw bytes."""
    is_binary: bool
    """For outputs that ``binary`` does not name."""


class DocumentReader:
    """Reads documents within limits; short ones without values are read once."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: dict[bytes, DescribedRequest] = {}

    def read(self, text: bytes, *, has_tensors: bool) -> DescribedRequest:
        """What a document says.

        Args:
            text: The document.
            has_tensors: Whether bytes of tensors come after it.
        """
        if not has_tensors or len(text) > _LARGEST_KEPT:
            return _describe(_decode(text), self._limits)
        found = self._kept.get(text)
        if found is None:
            found = _describe(_decode(text), self._limits)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[text] = found
        return found


def _describe(document: InferDocument, limits: Limits) -> DescribedRequest:
    outputs = document.outputs or ()
    if len(document.inputs) > limits.tensors or len(outputs) > limits.tensors:
        raise TooLargeError("the request has too many tensors", expected=f"at most {limits.tensors}")
    parameters = document.parameters
    check_tensor_parameters(parameters, "the request")
    return DescribedRequest(
        inputs=_describe_inputs(document.inputs, limits),
        outputs=[each.name for each in outputs] or None,
        id=document.id,
        priority=read_whole_number(parameters, "priority"),
        timeout_us=read_whole_number(parameters, "timeout"),
        parameters=parameters,
        binary={each.name: _is_binary(each, parameters) for each in outputs},
        is_binary=_wants_binary(parameters),
    )


def _describe_inputs(entries: Sequence[InputEntry], limits: Limits) -> Sequence[DescribedInput]:
    found: dict[str, DescribedInput] = {}
    for entry in entries:
        where = f"input '{entry.name}'"
        if entry.name in found:
            raise RequestError("the input is given twice", where=where)
        found[entry.name] = _describe_input(entry, limits, where)
    return list(found.values())


def _describe_input(entry: InputEntry, limits: Limits, where: str) -> DescribedInput:
    check_tensor_parameters(entry.parameters, where)
    is_raw = "binary_data_size" in entry.parameters
    size = read_whole_number(entry.parameters, "binary_data_size") if is_raw else None
    datatype = datatype_from_name(entry.datatype, where)
    count = count_elements(entry.shape, datatype, limits.tensor_bytes, where)
    if is_raw != (entry.data is NO_DATA):
        raise RequestError("the input must have 'data' or 'binary_data_size', and not both", where=where)
    return DescribedInput(entry.name, where, entry.shape, count, datatype, size, entry.data)


def _is_binary(entry: OutputEntry, parameters: Mapping[str, Scalar]) -> bool:
    where = f"output '{entry.name}'"
    check_tensor_parameters(entry.parameters, where)
    return _read_flag(entry.parameters, "binary_data", where, default=_wants_binary(parameters))


def _wants_binary(parameters: Mapping[str, Scalar]) -> bool:
    return _read_flag(parameters, "binary_data_output", "the request", default=False)


def _read_flag(parameters: Mapping[str, Scalar], name: str, where: str, *, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        where = f"{where}, parameter '{name}'"
        raise RequestError("the parameter is wrong", where=where, expected="true or false", got=value)
    return value


def _decode(text: bytes) -> InferDocument:
    try:
        return _DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise RequestError("the request does not fit the protocol", got=str(error)[:400]) from None
    except RecursionError:
        raise RequestError("the request is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if b"NaN" in text or b"Inf" in text:
            return _decode_with_nan(text)
        raise RequestError("the request is no JSON", got=str(error)[:100]) from None


def _decode_with_nan(text: bytes) -> InferDocument:
    """Decode what other servers and clients write for NaN and the infinities, which strict JSON lacks."""
    try:
        found: Any = json.loads(text)
        inputs = found.get("inputs") if isinstance(found, dict) else None
        entries = [each for each in inputs if isinstance(each, dict)] if isinstance(inputs, list) else []
        values = [each.pop("data", NO_DATA) for each in entries]
        document = msgspec.convert(found, InferDocument)
    except (ValueError, RecursionError):
        raise RequestError("the request does not fit the protocol, or is no JSON") from None
    for entry, value in zip(document.inputs, values, strict=True):
        entry.data = value
    return document
