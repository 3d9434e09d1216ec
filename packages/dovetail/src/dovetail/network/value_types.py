"""What the values of a network are: tensors of numbers, or objects (sequences, optionals and tensors of strings).

onnx-ir gives a sequence the element type, and often the shape, of the tensors in it; whoever asks for the type of
memory must ask here first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import onnx_ir as ir

__all__ = ["describe_type", "forget_object_shapes", "has_no_shape", "is_object", "object_type"]

_ELEMENTS: Final = {dtype: f"tensor({dtype.name.lower()})" for dtype in ir.DataType}


def describe_type(kind: ir.TypeProtocol) -> str:
    """A type as ONNX's schemas write it.

    >>> describe_type(ir.SequenceType(ir.TensorType(ir.DataType.FLOAT)))
    'seq(tensor(float))'
    """
    if isinstance(kind, ir.SequenceType):
        return f"seq({describe_type(kind.elem_type)})"
    if isinstance(kind, ir.OptionalType):
        return f"optional({describe_type(kind.elem_type)})"
    return _ELEMENTS[kind.dtype]


def has_no_shape(value: ir.Value) -> bool:
    """Whether a value is a sequence or an optional; what is in it has a shape, it has none."""
    return isinstance(value.type, ir.SequenceType | ir.OptionalType)


def is_object(value: ir.Value) -> bool:
    """Whether a value is a host object and not memory that holds numbers."""
    return has_no_shape(value) or value.dtype == ir.DataType.STRING


def object_type(value: ir.Value) -> str:
    """The type of an object as ONNX's schemas write it; empty for numbers."""
    return describe_type(value.type) if value.type is not None and is_object(value) else ""


def forget_object_shapes(values: Iterable[ir.Value]) -> None:
    """Take away the shapes of what sequences and optionals hold: only the run tells those."""
    for value in values:
        if has_no_shape(value):
            value.shape = None
