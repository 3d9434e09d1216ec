"""Responses over gRPC, and the status of errors."""

from __future__ import annotations

import logging
from typing import Any, Final

import grpc
from google.protobuf.json_format import ParseDict

from dovetail_serve.errors import ServeError
from dovetail_serve.grpc.messages import INFERENCE
from dovetail_serve.grpc.wire import join_field
from dovetail_serve.protocol.requests import InferResponse
from dovetail_serve.tensors.datatypes import name_from_dtype
from dovetail_serve.tensors.raw import raw_from_array

__all__ = ["encode_document", "encode_infer_response", "encode_stream_error", "encode_stream_response", "status_of"]

_RESPONSE: Final = INFERENCE["ModelInferResponse"]
_STREAM_RESPONSE: Final = INFERENCE["ModelStreamInferResponse"]
_RAW_FIELD: Final = 6
_STREAM_FIELD: Final = 2

_LOG: Final = logging.getLogger("dovetail_serve.grpc")


def encode_infer_response(response: InferResponse, *, is_final: bool = False) -> bytes:
    """The bytes of a response; ``is_final`` says to a stream that no further one comes for its request."""
    message = _RESPONSE(model_name=response.model, model_version=response.version, id=response.id)
    if is_final:
        message.parameters["triton_final_response"].bool_param = True
    raw = []
    for name, array in response.outputs.items():
        datatype = name_from_dtype(array.dtype, f"output '{name}'")
        message.outputs.add(name=name, datatype=datatype, shape=array.shape)
        raw.append(raw_from_array(array))
    return join_field(message.SerializeToString(), _RAW_FIELD, raw)


def encode_stream_response(response: InferResponse) -> bytes:
    """The bytes of a response in a stream."""
    return join_field(b"", _STREAM_FIELD, [encode_infer_response(response, is_final=True)])


def encode_stream_error(error: Exception, request_id: str) -> bytes:
    """The bytes of an error in a stream, which goes on."""
    message = _STREAM_RESPONSE(error_message=status_of(error)[1])
    message.infer_response.id = request_id
    message.infer_response.parameters["triton_final_response"].bool_param = True
    data: bytes = message.SerializeToString()
    return data


def encode_document(name: str, document: dict[str, Any]) -> bytes:
    """The bytes of the message ``name`` with what it knows of a document."""
    data: bytes = ParseDict(document, INFERENCE[name](), ignore_unknown_fields=True).SerializeToString()
    return data


def status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """The status and the text of an error; of what is no ``ServeError`` the client learns nothing, and the log all."""
    if isinstance(error, ServeError):
        return grpc.StatusCode[error.grpc_status], str(error)
    _LOG.error("A request failed within the server", exc_info=error)
    return grpc.StatusCode.INTERNAL, "the server failed; its log says why"
