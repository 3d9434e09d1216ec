"""Attributes of ONNX nodes as plugin fields.

The type that the creator declares for a field decides the type that it receives; a value that the type cannot hold is
an error. For a field declared UNKNOWN the kind of the attribute decides: FLOAT32 for numbers, INT32 for integers, CHAR
with a final NUL for strings, and the element type for tensors. Every field has memory of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from dovetail.errors import ModelError, UsageError
from dovetail.network.importer.problems import quote
from dovetail.plugin.field_values import make_field
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
    ir.DataType.UINT8: PluginFieldType.UNKNOWN,
    ir.DataType.BOOL: PluginFieldType.INT8,
    ir.DataType.FLOAT8E4M3FN: PluginFieldType.FP8,
    ir.DataType.INT4: PluginFieldType.INT4,
    ir.DataType.FLOAT4E2M1: PluginFieldType.FP4,
    ir.DataType.STRING: PluginFieldType.CHAR,
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


def field_from_attribute(attribute: ir.Attr, declared: PluginFieldType) -> PluginField:
    """Make the field for an attribute, with the exact value or an error.

    Args:
        attribute: The attribute, not a reference to one of a function.
        declared: The type that the creator names for the field.

    Raises:
        ModelError: The attribute is of a kind that no field has, or the type cannot hold the value.
    """
    name, kind = attribute.name, attribute.type
    value = _value_of(attribute)
    field_type = declared
    if declared is PluginFieldType.UNKNOWN:
        field_type = _PLAIN_FIELDS.get(kind) or _type_of_tensor(name, attribute.as_tensor())
    if field_type is PluginFieldType.UNKNOWN:
        return PluginField(name, value, field_type)
    try:
        return make_field(name, value, field_type)
    except UsageError as error:
        raise ModelError(error.what, expected=error.expected, got=error.got, fix=error.fix) from error


def _value_of(attribute: ir.Attr) -> Any:
    """Numbers, texts or a vector, all in memory of its own."""
    name, kind = attribute.name, attribute.type
    if kind in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
        return np.atleast_1d(np.array(attribute.value, np.float32))
    if kind in (ir.AttributeType.INT, ir.AttributeType.INTS):
        return np.atleast_1d(np.array(attribute.value, np.int64))
    if kind == ir.AttributeType.STRING:
        return [attribute.value]
    if kind == ir.AttributeType.STRINGS:
        return list(attribute.value)
    if kind == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        array: npt.NDArray[Any] = np.array(tensor.numpy()).reshape(-1)
        return [bytes(text) for text in array] if tensor.dtype == ir.DataType.STRING else array
    raise ModelError(
        f"attribute {quote(name)} of type {kind.name} cannot be a plugin field",
        expected="numbers, strings or a tensor",
    )


def _type_of_tensor(name: str, tensor: ir.TensorProtocol) -> PluginFieldType:
    field_type = _TENSOR_FIELDS.get(tensor.dtype)
    if field_type is None:
        raise ModelError(
            f"attribute {quote(name)}: a {tensor.dtype.name} tensor cannot be a plugin field of no declared type",
            expected=", ".join(dtype.name for dtype in _TENSOR_FIELDS),
            fix="declare the type of the field in field_names",
        )
    return field_type


def field_type_of(attribute: ir.Attr) -> str | None:
    """Return the name of a field type that holds the attribute; None when no field can."""
    if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
        field_type = _TENSOR_FIELDS.get(attribute.as_tensor().dtype)
    else:
        field_type = _PLAIN_FIELDS.get(attribute.type)
    if field_type is PluginFieldType.INT32 and not attribute.is_ref() and attribute.type != ir.AttributeType.TENSOR:
        numbers = np.atleast_1d(np.array(attribute.value, np.int64))
        is_wide = ((numbers < _INT32.min) | (numbers > _INT32.max)).any()
        field_type = PluginFieldType.INT64 if is_wide else field_type
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
