"""Attributes of ONNX nodes as plugin fields, by the rules that existing plugins rely on.

Numbers become FLOAT32 and INT32, strings become CHAR with a final NUL, tensors keep their type. Every field has memory
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from dovetail.errors import ModelError
from dovetail.network.importer.problems import quote
from dovetail.plugin.fields import PluginField, PluginFieldType

__all__ = ["describe_attribute", "field_from_attribute", "field_type_of"]

_TENSOR_FIELDS: Final[Mapping[ir.DataType, PluginFieldType]] = {
    ir.DataType.FLOAT: PluginFieldType.FLOAT32,
    ir.DataType.FLOAT16: PluginFieldType.FLOAT16,
    ir.DataType.BFLOAT16: PluginFieldType.BF16,
    ir.DataType.DOUBLE: PluginFieldType.FLOAT64,
    ir.DataType.INT8: PluginFieldType.INT8,
    ir.DataType.INT16: PluginFieldType.INT16,
    ir.DataType.INT32: PluginFieldType.INT32,
    ir.DataType.INT64: PluginFieldType.INT64,
    ir.DataType.UINT8: PluginFieldType.INT8,
    ir.DataType.BOOL: PluginFieldType.INT8,
    ir.DataType.FLOAT8E4M3FN: PluginFieldType.FP8,
    ir.DataType.INT4: PluginFieldType.INT4,
    ir.DataType.FLOAT4E2M1: PluginFieldType.FP4,
}
_PLAIN_FIELDS: Final[Mapping[ir.AttributeType, PluginFieldType]] = {
    ir.AttributeType.FLOAT: PluginFieldType.FLOAT32,
    ir.AttributeType.FLOATS: PluginFieldType.FLOAT32,
    ir.AttributeType.INT: PluginFieldType.INT32,
    ir.AttributeType.INTS: PluginFieldType.INT32,
    ir.AttributeType.STRING: PluginFieldType.CHAR,
    ir.AttributeType.STRINGS: PluginFieldType.CHAR,
}
_INT32: Final = np.iinfo(np.int32)
_SHOWN: Final = 40


def field_from_attribute(attribute: ir.Attr, declared: PluginFieldType, warn: Callable[[str], None]) -> PluginField:
    """The field for an attribute.

    Args:
        attribute: The attribute, not a reference to one of a function.
        declared: The type that the creator names for the field; INT64 keeps integers that INT32 cannot hold.
        warn: Told when a number changes its value.
    """
    name, kind = attribute.name, attribute.type
    if kind in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
        return PluginField(name, np.atleast_1d(np.array(attribute.value, np.float32)), PluginFieldType.FLOAT32)
    if kind in (ir.AttributeType.INT, ir.AttributeType.INTS):
        return _field_from_ints(attribute, declared, warn)
    if kind == ir.AttributeType.STRING:
        return _field_from_strings(name, [attribute.value])
    if kind == ir.AttributeType.STRINGS:
        return _field_from_strings(name, attribute.value)
    if kind == ir.AttributeType.TENSOR:
        return _field_from_tensor(name, attribute.as_tensor())
    raise ModelError(
        f"attribute {quote(name)} of type {kind.name} cannot be a plugin field",
        expected="numbers, strings or a tensor",
    )


def _field_from_ints(attribute: ir.Attr, declared: PluginFieldType, warn: Callable[[str], None]) -> PluginField:
    wide = np.atleast_1d(np.array(attribute.value, np.int64))
    lost = wide[(wide < _INT32.min) | (wide > _INT32.max)]
    if not lost.size:
        return PluginField(attribute.name, wide.astype(np.int32), PluginFieldType.INT32)
    if declared is PluginFieldType.INT64:
        return PluginField(attribute.name, wide, PluginFieldType.INT64)
    cut = lost.astype(np.int32)
    warn(f"attribute {quote(attribute.name)}: {lost[0]} does not fit INT32 and is cut to {cut[0]}")
    return PluginField(attribute.name, wide.astype(np.int32), PluginFieldType.INT32)


def _field_from_strings(name: str, texts: Iterable[str | bytes]) -> PluginField:
    data = b"".join((text.encode() if isinstance(text, str) else bytes(text)) + b"\0" for text in texts)
    return PluginField(name, bytearray(data), PluginFieldType.CHAR)


def _field_from_tensor(name: str, tensor: ir.TensorProtocol) -> PluginField:
    if tensor.dtype == ir.DataType.STRING:
        return _field_from_strings(name, [bytes(text) for text in tensor.numpy().reshape(-1)])
    field_type = _TENSOR_FIELDS.get(tensor.dtype)
    if field_type is None:
        raise ModelError(
            f"attribute {quote(name)}: a {tensor.dtype.name} tensor cannot be a plugin field",
            expected=", ".join(dtype.name for dtype in _TENSOR_FIELDS),
        )
    array: npt.NDArray[Any] = np.array(tensor.numpy()).reshape(-1)  # a copy: creators may keep or change it
    if tensor.dtype in (ir.DataType.UINT8, ir.DataType.BOOL):
        array = array.view(np.int8)
    return PluginField(name, array, field_type)


def field_type_of(attribute: ir.Attr) -> str | None:
    """The name of the type of the field that an attribute becomes; None when it cannot be one."""
    if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
        dtype = attribute.as_tensor().dtype
        field_type = PluginFieldType.CHAR if dtype == ir.DataType.STRING else _TENSOR_FIELDS.get(dtype)
    else:
        field_type = _PLAIN_FIELDS.get(attribute.type)
    return None if field_type is None else field_type.name


def describe_attribute(attribute: ir.Attr) -> str:
    """An attribute in a message: its name, its type and as much of its value as fits."""
    name = f"{quote(attribute.name)[1:-1]}: {attribute.type.name}"
    if attribute.is_ref():
        return f"{name}=@{quote(attribute.ref_attr_name)}"
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        return f"{name}={tensor.dtype.name}{list(tensor.shape)}"
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return name
    text = repr(attribute.value)
    return f"{name}={text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'}"
