"""Attributes of quick layers: from a function's keyword parameters to plugin fields and back, without loss.

An attribute is an int, a float, a bool, a str, bytes, a tuple of ints or floats, or an array. Its kind comes from the
annotation, or from the default.
"""

from __future__ import annotations

import collections.abc
import hashlib
import inspect
import numbers
import operator
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import PluginError, UsageError
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType

__all__ = ["Attribute", "attributes_from_fields", "describe_attributes", "fields_from_attributes", "read_attribute"]

REQUIRED: Final = inspect.Parameter.empty
_ARRAY_SUFFIX: Final = ".array"
"""Name of the field that holds type and shape of an array: a field alone keeps neither."""

_FIELD_TYPES: Final = {
    "int": (np.int64, PluginFieldType.INT64),
    "float": (np.float64, PluginFieldType.FLOAT64),
    "bool": (np.int8, PluginFieldType.INT8),
    "ints": (np.int64, PluginFieldType.INT64),
    "floats": (np.float64, PluginFieldType.FLOAT64),
}
_SCALAR_KINDS: Final[dict[Any, str]] = {int: "int", float: "float", bool: "bool", str: "str", bytes: "bytes"}
_SEQUENCE_KINDS: Final[dict[Any, str]] = {int: "ints", float: "floats"}


@dataclass(frozen=True)
class Attribute:
    """One attribute: its name, its kind, and its default or ``REQUIRED``."""

    name: str
    kind: str
    default: Any

    def convert(self, value: Any) -> Any:
        """The value in the form it is kept; refused when it is of another kind."""
        try:
            return _CONVERTERS[self.kind](value)
        except (TypeError, ValueError):
            raise UsageError(f"attribute '{self.name}' cannot be {value!r:.60}", expected=_WORDS[self.kind]) from None


def read_attribute(parameter: inspect.Parameter, annotation: Any, where: str) -> Attribute:
    """The attribute that a keyword parameter declares."""
    kind = _kind_of_annotation(annotation)
    if kind is None and annotation is REQUIRED and parameter.default is not REQUIRED:
        kind = _kind_of_value(parameter.default)
    if kind is None:
        raise UsageError(
            f"attribute '{parameter.name}' is of no kind that a plan can store",
            where=where,
            expected="int, float, bool, str, bytes, tuple[int, ...], tuple[float, ...] or np.ndarray",
            got="no annotation and no default" if annotation is parameter.default else annotation,
        )
    attribute = Attribute(parameter.name, kind, parameter.default)
    if parameter.default is REQUIRED:
        return attribute
    return Attribute(parameter.name, kind, attribute.convert(parameter.default))


def _kind_of_annotation(annotation: Any) -> str | None:
    if isinstance(annotation, type) and annotation in _SCALAR_KINDS:
        return _SCALAR_KINDS[annotation]
    origin = typing.get_origin(annotation)
    if annotation is np.ndarray or origin is np.ndarray:
        return "array"
    if origin in (tuple, list, collections.abc.Sequence):
        elements = {element for element in typing.get_args(annotation) if element is not Ellipsis}
        return _SEQUENCE_KINDS.get(elements.pop()) if len(elements) == 1 else None
    return None


def _kind_of_value(value: Any) -> str | None:
    if isinstance(value, np.ndarray):
        return "array"
    if isinstance(value, tuple | list) and value:
        kinds = {type(element) for element in value}
        return "ints" if kinds == {int} else "floats" if kinds <= {int, float} else None
    return _SCALAR_KINDS.get(type(value))


def _to_int(value: Any) -> int:
    return operator.index(value)


def _to_float(value: Any) -> float:
    if isinstance(value, bool | str | bytes) or not isinstance(value, numbers.Real | np.generic):
        raise TypeError
    return float(value)


def _to_bool(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_ | int | np.integer) or int(value) not in (0, 1):
        raise TypeError
    return bool(value)


def _to_str(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError
    return value


def _to_bytes(value: Any) -> bytes:
    return bytes(memoryview(value))


def _to_ints(value: Any) -> tuple[int, ...]:
    return tuple(_to_int(element) for element in value)


def _to_floats(value: Any) -> tuple[float, ...]:
    return tuple(_to_float(element) for element in value)


def _to_array(value: Any) -> npt.NDArray[Any]:
    array = np.array(value, order="C")  # a copy: the caller may change or free what it passed
    if array.dtype.hasobject:
        raise TypeError
    array.setflags(write=False)
    return array


_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "str": _to_str,
    "bytes": _to_bytes,
    "ints": _to_ints,
    "floats": _to_floats,
    "array": _to_array,
}
_WORDS: Final = {
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "str": "a string without NUL",
    "bytes": "bytes",
    "ints": "a tuple of integers",
    "floats": "a tuple of numbers",
    "array": "an array",
}


def fields_from_attributes(attributes: Sequence[Attribute], values: Mapping[str, Any]) -> PluginFieldCollection:
    """The fields that hold all values; each has memory of its own."""
    fields = PluginFieldCollection()
    for attribute in attributes:
        name, value = attribute.name, values[attribute.name]
        if attribute.kind == "array":
            text = " ".join([value.dtype.name, *map(str, value.shape)])
            fields.append(PluginField(name, value.tobytes(), PluginFieldType.UNKNOWN))
            fields.append(PluginField(name + _ARRAY_SUFFIX, text.encode(), PluginFieldType.CHAR))
        elif attribute.kind in ("str", "bytes"):
            is_text = attribute.kind == "str"
            data = value.encode() if is_text else value
            fields.append(PluginField(name, data, PluginFieldType.CHAR if is_text else PluginFieldType.UNKNOWN))
        else:
            dtype, field_type = _FIELD_TYPES[attribute.kind]
            fields.append(PluginField(name, np.atleast_1d(np.array(value, dtype)), field_type))
    return fields


def attributes_from_fields(attributes: Sequence[Attribute], fields: Sequence[PluginField]) -> dict[str, Any]:
    """The values that fields hold, copied; attributes without a field keep their defaults.

    Fields may also come from an ONNX node, where strings end with NUL.
    """
    by_name = {field.name: field for field in fields}
    values = {}
    for attribute in attributes:
        field = by_name.pop(attribute.name, None)
        extra = by_name.pop(attribute.name + _ARRAY_SUFFIX, None)
        if field is not None and field.buffer is not None:
            values[attribute.name] = _value_from_field(attribute, field, extra)
    if by_name:
        known = ", ".join(attribute.name for attribute in attributes) or "none"
        raise PluginError(f"unknown field '{next(iter(by_name))}'", expected=f"one of the attributes: {known}")
    return values


def _value_from_field(attribute: Attribute, field: PluginField, extra: PluginField | None) -> Any:
    raw = np.ascontiguousarray(field.buffer)
    if attribute.kind == "str":
        return raw.tobytes().rstrip(b"\0").decode()
    if attribute.kind == "bytes":
        data = raw.tobytes()
        return data.removesuffix(b"\0") if field.type is PluginFieldType.CHAR else data  # texts of ONNX end with NUL
    if attribute.kind == "array":
        return _array_from_field(field, extra)
    if field.type is PluginFieldType.CHAR:  # its characters read as numbers, which nobody meant
        raise PluginError(
            f"field '{field.name}' holds text", expected=_WORDS[attribute.kind], got=ascii(raw.tobytes())[:60]
        )
    numbers_ = np.asarray(field.data).tolist()
    if attribute.kind in ("ints", "floats"):
        return attribute.convert(numbers_)
    if len(numbers_) != 1:
        raise PluginError(f"field '{field.name}' must hold one value", got=len(numbers_))
    return attribute.convert(numbers_[0])


def _array_from_field(field: PluginField, extra: PluginField | None) -> npt.NDArray[Any]:
    if extra is None:
        return _to_array(field.buffer)
    dtype, *dims = np.asarray(extra.data).tobytes().decode().split()
    raw = np.frombuffer(np.ascontiguousarray(field.buffer).tobytes(), np.dtype(dtype))
    return _to_array(raw.reshape([int(n) for n in dims]))


def describe_attributes(values: Mapping[str, Any]) -> str:
    """All values as text that is equal exactly when they are; arrays and long ones by digest.

    >>> describe_attributes({"alpha": 0.5, "mode": "same"})
    "alpha=0.5 mode='same'"
    """
    return " ".join(f"{name}={_describe(value)}" for name, value in values.items())


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(value.tobytes()).hexdigest()[:16]
        return f"{value.dtype.name}{list(value.shape)}#{digest}"
    text = repr(value)
    return text if len(text) <= 80 else f"#{hashlib.sha256(text.encode()).hexdigest()[:16]}"
