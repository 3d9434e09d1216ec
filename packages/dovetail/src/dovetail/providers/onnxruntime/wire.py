"""The few bytes of ONNX's format that running a plan needs, written without the onnx package.

A stored partition has no weights in it. They are appended when it is loaded: in this format two messages, one after
the other, are one message with the parts of both, so nothing of what is stored has to be read or changed. What is
read is only whether a payload is whole, so that what is appended stays apart from it, and whether it names files,
because a plan must never make anybody open one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.element_types import ELEMENT_TYPES
from dovetail.errors import PlanCorruptError
from dovetail.protobuf import MalformedMessageError, read_fields, write_bytes, write_number

__all__ = [
    "INLINE_BYTES",
    "NO_QUANTIZATION_MARK",
    "AppendedTensor",
    "FilePlace",
    "append_weights",
    "count_nodes",
    "names_files",
    "type_number",
]

INLINE_BYTES: Final = 1024
"""Weights below this stand in the graph, and others where the plan has them."""
NO_QUANTIZATION_MARK: Final = "dovetail.no_quantization_passes"
"""Key of the metadata of a partition whose Q and DQ nodes ONNX Runtime must leave as they are."""
_GRAPH: Final = 7
_NODE: Final = 1
_INITIALIZER: Final = 5
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 1, 2, 8, 9, 13, 14
_EXTERNAL: Final = 1
_MAX_DEPTH: Final = 100
"""How deep a reader of ONNX follows messages inside messages."""
_TYPE_NUMBERS: Final = {each.name: each.onnx_number for each in ELEMENT_TYPES}


@dataclass(frozen=True, kw_only=True)
class FilePlace:
    """A part of a file."""

    file: str
    offset: int
    length_bytes: int


@dataclass(frozen=True, kw_only=True)
class AppendedTensor:
    """A weight with its contents, or with the place where they are."""

    name: str
    dtype: str
    shape: Sequence[int]
    contents: bytes | FilePlace


def append_weights(model: bytes | memoryview, tensors: Iterable[AppendedTensor]) -> bytes:
    """The model with these weights among its initializers."""
    initializers = b"".join(write_bytes(_INITIALIZER, _tensor(tensor)) for tensor in tensors)
    return bytes(model) + (write_bytes(_GRAPH, initializers) if initializers else b"")


def names_files(model: bytes | memoryview) -> bool:
    """Whether a model says that a tensor lies in a file.

    Such a tensor has the key ``location``; only where those bytes occur is the model walked through.

    Raises:
        PlanCorruptError: The bytes are no model, or the last part of it is cut short.
    """
    data = bytes(model)
    try:
        for _ in read_fields(memoryview(data)):
            pass  # a part that is cut short would take in what is appended
        return b"location" in data and _walk(memoryview(data), "model", 0)
    except MalformedMessageError as error:
        raise PlanCorruptError("a compiled partition is malformed", fix="build the plan again") from error


def count_nodes(model: bytes | memoryview) -> int:
    """How many nodes the graph of a model has, without those of bodies; ONNX Runtime is left to refuse damage."""
    data = memoryview(model)
    try:
        graphs = [field for field in read_fields(data) if field.number == _GRAPH and field.has_length]
        inner = (read_fields(data, field.content, field.end) for field in graphs)
        return sum(field.number == _NODE for fields in inner for field in fields)
    except MalformedMessageError:
        return 0


_MESSAGES: Final = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""The fields of each message that can hold a tensor."""


def _walk(data: memoryview, message: str, depth: int) -> bool:
    if depth > _MAX_DEPTH:
        raise MalformedMessageError
    inner = _MESSAGES[message]
    for field in read_fields(data):
        if message == "tensor" and field.number in (_EXTERNAL_DATA, _DATA_LOCATION):
            return True
        part = data[field.content : field.end]
        if field.number in inner and field.has_length and _walk(part, inner[field.number], depth + 1):
            return True
    return False


def type_number(dtype: str) -> int:
    """What ONNX calls a type that NumPy names.

    Raises:
        PlanCorruptError: ONNX Runtime has no such weights.
    """
    if dtype not in _TYPE_NUMBERS:
        raise PlanCorruptError("a weight has a type that ONNX Runtime does not know", got=dtype)
    return _TYPE_NUMBERS[dtype]


def _tensor(tensor: AppendedTensor) -> bytes:
    parts = [write_number(_DIMS, dim) for dim in tensor.shape]
    parts.append(write_number(_DATA_TYPE, type_number(tensor.dtype)))
    parts.append(write_bytes(_NAME, tensor.name.encode()))
    if isinstance(tensor.contents, bytes):
        return b"".join((*parts, write_bytes(_RAW_DATA, tensor.contents)))
    where = tensor.contents
    place = {"location": where.file, "offset": str(where.offset), "length": str(where.length_bytes)}
    parts += [write_bytes(_EXTERNAL_DATA, _entry(key, value)) for key, value in place.items()]
    parts.append(write_number(_DATA_LOCATION, _EXTERNAL))
    return b"".join(parts)


def _entry(key: str, value: str) -> bytes:
    return write_bytes(1, key.encode()) + write_bytes(2, value.encode())
