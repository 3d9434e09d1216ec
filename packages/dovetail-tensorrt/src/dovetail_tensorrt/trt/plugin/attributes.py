"""Attributes of plugins written with decorators: which annotations stand for one, and how values become plugin fields.

Fields hold the exact value and are read back exactly. Texts of an ONNX node end with NUL.
"""

from __future__ import annotations

import math
import typing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dovetail import PluginField, PluginFieldType
from dovetail_tensorrt.trt.plugin.errors import DecoratorError

__all__ = ["AttributeType", "read_annotation"]

_SCALARS: Final = {
    int: (np.int64, PluginFieldType.INT64),
    float: (np.float64, PluginFieldType.FLOAT64),
    bool: (np.int8, PluginFieldType.INT8),
}
_ARRAYS: Final = {
    "int8": PluginFieldType.INT8,
    "int16": PluginFieldType.INT16,
    "int32": PluginFieldType.INT32,
    "int64": PluginFieldType.INT64,
    "float16": PluginFieldType.UNKNOWN,
    "float32": PluginFieldType.FLOAT32,
    "float64": PluginFieldType.FLOAT64,
    "bool": PluginFieldType.INT8,
}
_EXPECTED: Final = f"int, float, str, bool, bytes, or numpy.typing.NDArray of {', '.join(_ARRAYS)}"


@dataclass(frozen=True)
class AttributeType:
    """The type of one attribute: a Python type, or the element type of an array."""

    python: type[Any]
    element: str = ""

    @property
    def text(self) -> str:
        """How messages name it."""
        return f"NDArray[{self.element}]" if self.element else self.python.__name__

    @property
    def field_type(self) -> PluginFieldType:
        """The type of the field that holds it."""
        if self.element:
            return _ARRAYS[self.element]
        if self.python is str:
            return PluginFieldType.CHAR
        return _SCALARS[self.python][1] if self.python in _SCALARS else PluginFieldType.UNKNOWN

    def check(self, name: str, value: Any, where: str) -> Any:
        """The value, refused unless it is exactly of the type; an array is copied."""
        if self.element:
            if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.name == self.element:
                return value.copy()
            got = f"{value.ndim}-D {value.dtype.name} array" if isinstance(value, np.ndarray) else type(value).__name__
            raise DecoratorError(
                f"attribute '{name}' is no array of its type", where=where, expected=f"a 1-D {self.text}", got=got
            )
        if type(value) is not self.python:
            raise DecoratorError(
                f"attribute '{name}' is of another type", where=where, expected=self.text, got=type(value).__name__
            )
        return value

    def to_field(self, name: str, value: Any) -> PluginField:
        """A field with memory of its own."""
        if self.element:
            data = value.view(np.int8).copy() if self.element in ("float16", "bool") else value.copy()
            return PluginField(name, data, self.field_type)
        if self.python is str:
            return PluginField(name, value.encode(), PluginFieldType.CHAR)
        if self.python is bytes:
            return PluginField(name, value, PluginFieldType.UNKNOWN)
        return PluginField(name, np.array([value], _SCALARS[self.python][0]), self.field_type)

    def from_field(self, field: PluginField, where: str) -> Any:
        """The value that a field holds, in memory of its own."""
        if field.buffer is None:
            raise DecoratorError(f"attribute '{field.name}' has no value", where=where, expected=self.text)
        if self.python in (str, bytes) and not self.element:
            raw = np.ascontiguousarray(field.buffer).tobytes()
            if self.python is str:
                return raw.removesuffix(b"\0").decode()
            return raw.removesuffix(b"\0") if field.type is PluginFieldType.CHAR else raw
        values: Any = field.data
        if self.element:
            is_raw = field.type is PluginFieldType.UNKNOWN
            return values.view(self.element).copy() if is_raw else self._convert(values, field.name, where)
        if values is None or values.size != 1:
            raise DecoratorError(f"attribute '{field.name}' is no single value", where=where, expected=self.text)
        value = values.reshape(-1)[0].item()
        is_exact = math.isfinite(value) and value == int(value) and (self.python is int or value in (0, 1))
        if self.python is not float and not is_exact:
            raise DecoratorError(
                f"attribute '{field.name}' is another value", where=where, expected=self.text, got=value
            )
        return self.python(value)

    def _convert(self, values: Any, name: str, where: str) -> Any:
        """The elements in the type of the annotation, which must hold them."""
        with np.errstate(all="ignore"):
            converted = values.astype(self.element)
        is_rounded = converted.dtype.kind == "f" and values.dtype.kind == "f"
        same = np.isfinite(converted) == np.isfinite(values) if is_rounded else converted == values
        if not np.all(same):
            raise DecoratorError(
                f"attribute '{name}' does not fit", where=where, expected=self.text, got=values.tolist()
            )
        return converted


def read_annotation(annotation: Any) -> AttributeType | None:
    """The attribute type that an annotation stands for; None where it stands for none.

    >>> import numpy.typing as npt
    >>> read_annotation(npt.NDArray[np.int32]).text, read_annotation(int).text, read_annotation(list)
    ('NDArray[int32]', 'int', None)
    """
    if annotation in (int, float, str, bool, bytes):
        return AttributeType(annotation)
    alias = getattr(typing.get_origin(annotation), "__value__", None)
    if alias is not None:  # NDArray is an alias of this kind since NumPy 2.5
        return read_annotation(alias[typing.get_args(annotation)])
    if typing.get_origin(annotation) is not np.ndarray:
        return None
    arguments = typing.get_args(typing.get_args(annotation)[1])
    name = np.dtype(arguments[0]).name if arguments and isinstance(arguments[0], type) else ""
    return AttributeType(np.ndarray, name) if name in _ARRAYS else None


def describe_types() -> str:
    """What an attribute may be, for messages."""
    return _EXPECTED
