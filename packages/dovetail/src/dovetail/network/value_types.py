"""What the values of a network are: tensors of numbers, or objects (sequences, optionals, maps, tensors of strings).

onnx-ir gives a sequence the element type, and often the shape, of the tensors in it; whoever asks for the type of
memory must ask here first. It has no type for maps, so that is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import onnx_ir as ir

__all__ = ["MapType", "describe_type", "forget_object_shapes", "has_map", "has_no_shape", "is_object", "object_type"]

_ELEMENTS: Final = {dtype: f"tensor({dtype.name.lower()})" for dtype in ir.DataType}


class MapType(ir.TypeProtocol):
    """A type that represents a map from integers or strings to single elements.

    Args:
        key_type: INT64 or STRING.
        dtype: The type of what the keys lead to.
    """

    def __init__(self, key_type: ir.DataType, dtype: ir.DataType) -> None:
        self.key_type = key_type
        self.dtype = dtype
        self.elem_type = ir.TensorType(dtype)
        self.denotation = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapType) and (self.key_type, self.dtype) == (other.key_type, other.dtype)

    def __hash__(self) -> int:
        return hash((self.key_type, self.dtype))

    def __repr__(self) -> str:
        return f"Map({self.key_type!r}, {self.elem_type!r})"


def describe_type(kind: ir.TypeProtocol) -> str:
    """A type as ONNX's schemas write it.

    >>> describe_type(ir.SequenceType(MapType(ir.DataType.INT64, ir.DataType.FLOAT)))
    'seq(map(int64,tensor(float)))'
    """
    if isinstance(kind, ir.SequenceType):
        return f"seq({describe_type(kind.elem_type)})"
    if isinstance(kind, ir.OptionalType):
        return f"optional({describe_type(kind.elem_type)})"
    if isinstance(kind, MapType):
        return f"map({kind.key_type.name.lower()},{_ELEMENTS[kind.dtype]})"
    return _ELEMENTS[kind.dtype]


def has_map(kind: ir.TypeProtocol | None) -> bool:
    """Whether a type is that of a map or of a sequence of maps."""
    return isinstance(kind.elem_type if isinstance(kind, ir.SequenceType) else kind, MapType)


def has_no_shape(value: ir.Value) -> bool:
    """Whether a value is a sequence, an optional or a map; what is in it may have a shape, it has none."""
    kind = value.type
    # To ask for a map is slow, because its base is a protocol, and almost every value is a tensor.
    return type(kind) is not ir.TensorType and isinstance(kind, ir.SequenceType | ir.OptionalType | MapType)


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
