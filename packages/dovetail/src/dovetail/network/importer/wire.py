"""Large tensors left where they are: the bytes of a model with a short mark in place of each.

The parser copies every byte it reads, and reads at most 2 GB. So the bytes are walked first, by the rules of the wire
format, and the contents of large tensors are replaced by marks; what is parsed then is small. A mark has random bytes
that are chosen after the file was written, so no file can hold one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx

from dovetail.protobuf import MalformedMessageError, read_fields, write_header

__all__ = ["TensorStash"]

_LEAST: Final = 64 * 1024
"""Bytes from which on a tensor is left in place."""
_MAX_DEPTH: Final = 64
_NONCE: Final = 16


def _number(message: Any, name: str) -> int:
    return int(message.DESCRIPTOR.fields_by_name[name].number)


_RAW_DATA: Final = _number(onnx.TensorProto, "raw_data")
_CHILDREN: Final[Mapping[str, Mapping[int, str]]] = {
    "model": {_number(onnx.ModelProto, "graph"): "graph", _number(onnx.ModelProto, "functions"): "function"},
    "graph": {_number(onnx.GraphProto, "node"): "node", _number(onnx.GraphProto, "initializer"): "tensor"},
    "function": {_number(onnx.FunctionProto, "node"): "node"},
    "node": {_number(onnx.NodeProto, "attribute"): "attribute"},
    "attribute": {
        _number(onnx.AttributeProto, "t"): "tensor",
        _number(onnx.AttributeProto, "tensors"): "tensor",
        _number(onnx.AttributeProto, "g"): "graph",
        _number(onnx.AttributeProto, "graphs"): "graph",
    },
    "tensor": {},
}
"""For each kind of message, the fields that may hold tensors somewhere inside, and their kinds."""


class TensorStash:
    """The contents of large tensors of one model, which stay in the buffer that the model was read from.

    Args:
        data: The bytes of the model; they must not change while an array that came from here is in use.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._nonce = os.urandom(_NONCE)
        self._spans: list[tuple[int, int]] = []

    def thin(self) -> bytes:
        """The bytes for the parser; bytes that cannot be walked come back whole, for the parser to judge."""
        try:
            pieces = self._walk("model", 0, len(self._data), 0)
        except MalformedMessageError:
            self._spans.clear()
            pieces = None
        return bytes(self._data) if pieces is None else b"".join(pieces)

    def size_of(self, tensor: onnx.TensorProto) -> int:
        """How many bytes a tensor has, here or in the message."""
        span = self._span(tensor)
        return len(tensor.raw_data) if span is None else span[1]

    def array_of(self, tensor: onnx.TensorProto) -> npt.NDArray[np.uint8] | None:
        """The bytes of a tensor that was left in place; None when the message has them."""
        span = self._span(tensor)
        if span is None:
            return None
        return np.frombuffer(self._data, np.uint8, span[1], span[0])

    def _span(self, tensor: onnx.TensorProto) -> tuple[int, int] | None:
        if not self._spans or tensor.ByteSize() > _LEAST:
            return None
        mark = tensor.raw_data
        if len(mark) != _NONCE + 8 or not mark.startswith(self._nonce):
            return None
        return self._spans[int.from_bytes(mark[_NONCE:], "little")]

    # walking

    def _walk(self, kind: str, start: int, end: int, depth: int) -> list[bytes | memoryview] | None:
        """The pieces of a message without large tensors; None when it has none."""
        if depth > _MAX_DEPTH:
            return None
        if kind == "tensor":
            return self._walk_tensor(start, end)
        children, pieces, done = _CHILDREN[kind], list[bytes | memoryview](), start
        for field in read_fields(self._data, start, end):
            if field.end - field.content < _LEAST or field.number not in children or not field.has_length:
                continue
            inner = self._walk(children[field.number], field.content, field.end, depth + 1)
            if inner is not None:
                pieces += [self._data[done : field.start], *_wrap(field.number, inner)]
                done = field.end
        if not pieces:
            return None
        return [*pieces, self._data[done:end]]

    def _walk_tensor(self, start: int, end: int) -> list[bytes | memoryview] | None:
        found = [field for field in read_fields(self._data, start, end) if field.number == _RAW_DATA]
        if len(found) != 1 or not found[0].has_length or found[0].end - found[0].content < _LEAST:
            return None
        (field,) = found
        mark = self._nonce + len(self._spans).to_bytes(8, "little")
        self._spans.append((field.content, field.end - field.content))
        return [self._data[start : field.start], *_wrap(_RAW_DATA, [mark]), self._data[field.end : end]]


def _wrap(number: int, pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """A field of bytes from pieces."""
    return [write_header(number, sum(map(len, pieces))), *pieces]
