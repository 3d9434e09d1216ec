"""An inference request over gRPC as arrays."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from dovetail_serve.errors import RequestError, ServeError, TooLargeError
from dovetail_serve.grpc.messages import INFERENCE
from dovetail_serve.grpc.wire import split_field
from dovetail_serve.options import Limits
from dovetail_serve.protocol.parameters import Scalar, check_tensor_parameters, read_whole_number
from dovetail_serve.protocol.requests import InferRequest
from dovetail_serve.protocol.service import Service
from dovetail_serve.tensors.datatypes import BYTES, Datatype, datatype_from_name
from dovetail_serve.tensors.raw import array_from_raw, array_from_strings
from dovetail_serve.tensors.shapes import count_elements

__all__ = ["parse", "read_infer_request", "read_or_note"]

_REQUEST: Final = INFERENCE["ModelInferRequest"]
_RAW_FIELD: Final = 7


def parse(message: Any, data: bytes) -> Any:
    """Fill a message from its bytes."""
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise RequestError("the request is no message of the protocol") from None
    return message


def read_infer_request(data: bytes, limits: Limits, remaining_s: float | None = None) -> InferRequest:
    """The request that the message holds, which may wait no longer than ``remaining_s``."""
    head, raw = split_field(data, _RAW_FIELD, "the request")
    message = parse(_REQUEST(), head)
    outputs = message.outputs
    if len(message.inputs) > limits.tensors or len(outputs) > limits.tensors:
        raise TooLargeError("the request has too many tensors", expected=f"at most {limits.tensors}")
    parameters = _read_parameters(message.parameters, "the request") if message.parameters else {}
    for each in outputs:
        if each.parameters:
            _read_parameters(each.parameters, f"output '{each.name}'")
    return InferRequest(
        model=message.model_name,
        inputs=_read_inputs(message.inputs, raw, limits),
        version=message.model_version,
        outputs=[each.name for each in outputs] if outputs else None,
        id=message.id,
        priority=read_whole_number(parameters, "priority") if parameters else 0,
        timeout_us=_least_timeout(read_whole_number(parameters, "timeout") if parameters else 0, remaining_s),
        parameters=parameters,
    )


def read_or_note(data: bytes, service: Service, limits: Limits, remaining_s: float | None = None) -> InferRequest:
    """The request that the message holds; the service is told of one that cannot be read."""
    try:
        return read_infer_request(data, limits, remaining_s)
    except ServeError as error:
        service.note_unread("", "", error)
        raise


def _least_timeout(timeout_us: int, remaining_s: float | None) -> int:
    if remaining_s is None:
        return timeout_us
    remaining_us = max(1, int(remaining_s * 1e6))
    return min(timeout_us, remaining_us) if timeout_us else remaining_us


def _read_parameters(entries: Any, where: str) -> dict[str, Scalar]:
    parameters = {name: _read_parameter(value) for name, value in entries.items()}
    check_tensor_parameters(parameters, where)
    return parameters


def _read_parameter(value: Any) -> Scalar:
    chosen = value.WhichOneof("choice")
    read: Scalar = getattr(value, chosen) if chosen else ""
    return read


def _read_inputs(entries: Any, raw: list[memoryview], limits: Limits) -> dict[str, Any]:
    if raw and len(raw) != len(entries):
        what = "raw_input_contents must have one value for each input"
        raise RequestError(what, expected=len(entries), got=len(raw))
    arrays: dict[str, Any] = {}
    for index, entry in enumerate(entries):
        name = entry.name
        where = f"input '{name}'"
        if name in arrays:
            raise RequestError("the input is given twice", where=where)
        if entry.parameters:
            _read_parameters(entry.parameters, where)
        arrays[name] = _read_array(entry, raw[index] if raw else None, limits, where)
    return arrays


def _read_array(entry: Any, raw: memoryview | None, limits: Limits, where: str) -> Any:
    datatype = datatype_from_name(entry.datatype, where)
    shape = list(entry.shape)
    count = count_elements(shape, datatype, limits.tensor_bytes, where)
    if raw is None:
        return _array_from_contents(entry.contents, shape, count, datatype, where)
    if entry.HasField("contents"):
        raise RequestError("the input has contents as well as raw contents", where=where)
    return array_from_raw(raw, shape, count, datatype, where)


def _array_from_contents(contents: Any, shape: list[int], count: int, datatype: Datatype, where: str) -> Any:
    if not datatype.contents:
        raise RequestError(f"{datatype.name} has no typed contents", where=where, fix="send raw_input_contents")
    values = getattr(contents, datatype.contents)
    given = sum(len(items) for field, items in contents.ListFields())
    if len(values) != count or given != count:
        expected = f"{count} in {datatype.contents} for {shape}"
        raise RequestError(
            "the tensor has another number of values than its shape needs", where=where, expected=expected, got=given
        )
    if datatype is BYTES:
        return array_from_strings(list(values), shape)
    try:
        return np.fromiter(values, datatype.dtype, count).reshape(shape)
    except OverflowError:
        raise RequestError("a value does not fit the datatype", where=where, expected=datatype.name) from None
