"""Attributes of ONNX Runtime's nodes as onnx-ir has them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from onnxruntime_ep_dovetail.abi import Functions, OrtError, OrtRuntime, read_text
from onnxruntime_ep_dovetail.graph.values import read_tensor

__all__ = ["read_attribute"]

_PLAN: Final = "ep_cache_context"
"""The attribute of a compiled model that holds a whole plan, or the name of its file."""


class _AttributeKind(IntEnum):
    """What an attribute is, by ONNX Runtime's numbers."""

    INT = 1
    INTS = 2
    FLOAT = 3
    FLOATS = 4
    STRING = 5
    STRINGS = 6
    GRAPH = 7
    TENSOR = 8


def read_attribute(runtime: OrtRuntime, attribute: int) -> ir.Attr | None:
    """Read an ``OrtOpAttr``; None for a graph or a plan, which is read with its node.

    ONNX Runtime gives no attributes of other kinds: those raise ``OrtError``.
    """
    api, number = runtime.api, ctypes.c_int()
    api.OpAttr_GetType(attribute, ctypes.addressof(number))
    kind, name = number.value, read_text(_pointer(api.OpAttr_GetName, attribute))
    if kind == _AttributeKind.GRAPH or name == _PLAN:
        return None
    if kind == _AttributeKind.TENSOR:
        return ir.AttrTensor(name, _read_tensor(api, attribute))
    if kind not in _MAKERS:
        raise OrtError(f"kind {kind} is not known")
    return _MAKERS[_AttributeKind(kind)](name, _read_bytes(api, attribute, kind))


def _read_tensor(api: Functions, attribute: int) -> ir.TensorProtocol:
    value = _pointer(api.OpAttr_GetTensorAttributeAsOrtValue, attribute)
    try:
        return read_tensor(api, value)
    finally:
        api.ReleaseValue(value)


def _read_bytes(api: Functions, attribute: int, kind: int) -> bytes:
    size = ctypes.c_size_t()
    place = ctypes.addressof(size)
    status = api.raw("ReadOpAttr")(attribute, kind, None, 0, place)
    if status:
        api.ReleaseStatus(status)  # it says that nothing is too little, and now the size is known
    buffer = ctypes.create_string_buffer(max(size.value, 8))
    api.ReadOpAttr(attribute, kind, ctypes.addressof(buffer), size.value, place)
    return buffer.raw[: size.value]


def _pointer(function: Callable[..., Any], owner: int) -> int:
    place = ctypes.c_void_p()
    function(owner, ctypes.addressof(place))
    return place.value or 0


def _split(data: bytes) -> list[str]:
    """Texts, each with a zero behind it."""
    return [text.decode(errors="surrogateescape") for text in data.split(b"\0")[:-1]]


_MAKERS: dict[_AttributeKind, Callable[[str, bytes], ir.Attr]] = {
    _AttributeKind.INT: lambda name, data: ir.AttrInt64(name, int(np.frombuffer(data, np.int64)[0])),
    _AttributeKind.INTS: lambda name, data: ir.AttrInt64s(name, np.frombuffer(data, np.int64).tolist()),
    _AttributeKind.FLOAT: lambda name, data: ir.AttrFloat32(name, float(np.frombuffer(data, np.float32)[0])),
    _AttributeKind.FLOATS: lambda name, data: ir.AttrFloat32s(name, np.frombuffer(data, np.float32).tolist()),
    _AttributeKind.STRING: lambda name, data: ir.AttrString(name, data.decode(errors="surrogateescape")),
    _AttributeKind.STRINGS: lambda name, data: ir.AttrStrings(name, _split(data)),
}
