"""Fields of built-in plugins: what a creator takes, what it refuses and why, and what a plan stores.

A ``FieldRule`` describes one field. ``read_fields`` turns a collection into plain values by these rules, and
``write_fields`` turns the values back into a collection that reads as the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dovetail.errors import PluginError
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType

__all__ = [
    "REQUIRED",
    "FieldRule",
    "describe_values",
    "is_flag",
    "is_positive",
    "list_names",
    "read_fields",
    "write_fields",
]

REQUIRED: Final = object()
"""The default of a field that must be given."""

_INTEGERS: Final = (PluginFieldType.INT32, PluginFieldType.INT8, PluginFieldType.INT16, PluginFieldType.INT64)
_FLOATS: Final = (
    PluginFieldType.FLOAT32,
    PluginFieldType.FLOAT16,
    PluginFieldType.FLOAT64,
    PluginFieldType.BF16,
    *_INTEGERS,
)
_NUMPY: Final = {PluginFieldType.INT32: np.int32, PluginFieldType.FLOAT32: np.float32}


@dataclass(frozen=True, kw_only=True)
class FieldRule:
    """One field: its type, its default, and which values it may have.

    Attributes:
        name: The name, as converters write it.
        type: INT32, FLOAT32 or CHAR.
        default: The value where it is not given, or ``REQUIRED``.
        count: How many numbers it has; 1 is a plain number, more a tuple, 0 a tuple of any length.
        is_valid: Whether a value is allowed.
        expected: What is allowed, in words.
    """

    name: str
    type: PluginFieldType = PluginFieldType.INT32
    default: Any = REQUIRED
    count: int = 1
    is_valid: Callable[[Any], bool] = lambda value: True
    expected: str = ""


def is_flag(value: Any) -> bool:
    """Whether a value is 0 or 1."""
    return value in (0, 1)


def is_positive(value: Any) -> bool:
    """Whether a number is, or all of several are, larger than 0."""
    return all(each > 0 for each in value) if isinstance(value, tuple) else value > 0


def list_names(rules: Iterable[FieldRule]) -> PluginFieldCollection:
    """What a creator declares."""
    return PluginFieldCollection([PluginField(rule.name, None, rule.type) for rule in rules])


def read_fields(where: str, rules: Sequence[FieldRule], given: Iterable[PluginField]) -> dict[str, Any]:
    """The value of every field, defaults included; fields that no rule names are left alone.

    Raises:
        PluginError: A field is missing, of another type, of another length or not allowed.
    """
    by_name = {field.name: field for field in given}
    return {rule.name: _read(where, rule, by_name.get(rule.name)) for rule in rules}


def _read(where: str, rule: FieldRule, field: PluginField | None) -> Any:
    if field is None or field.data is None:
        if rule.default is REQUIRED:
            raise PluginError(
                f"field '{rule.name}' is missing",
                where=where,
                expected=rule.expected or rule.type.name,
                fix=f"give the node the attribute '{rule.name}'",
            )
        return rule.default
    value = _read_text(where, field) if rule.type is PluginFieldType.CHAR else _read_numbers(where, rule, field)
    if not rule.is_valid(value):
        raise PluginError(
            f"field '{rule.name}' has a value that is not allowed", where=where, expected=rule.expected, got=value
        )
    return value


def _read_text(where: str, field: PluginField) -> str:
    data = field.data
    if field.type is not PluginFieldType.CHAR or data is None:
        raise PluginError(f"field '{field.name}' is no text", where=where, expected="CHAR", got=field.type.name)
    try:
        return bytes(data).rstrip(b"\0").decode()  # the importer of ONNX models ends texts with NUL
    except UnicodeDecodeError:
        raise PluginError(f"field '{field.name}' is no text", where=where, expected="UTF-8") from None


def _read_numbers(where: str, rule: FieldRule, field: PluginField) -> Any:
    allowed = _FLOATS if rule.type is PluginFieldType.FLOAT32 else _INTEGERS
    if field.type not in allowed:
        raise PluginError(
            f"field '{rule.name}' is of another type", where=where, expected=rule.type.name, got=field.type.name
        )
    kind = float if rule.type is PluginFieldType.FLOAT32 else int
    values = tuple(kind(value) for value in np.asarray(field.data).reshape(-1))
    if rule.count and len(values) != rule.count:
        raise PluginError(f"field '{rule.name}' has another length", where=where, expected=rule.count, got=len(values))
    return values[0] if rule.count == 1 else values


def write_fields(rules: Iterable[FieldRule], values: Mapping[str, Any]) -> PluginFieldCollection:
    """Fields that ``read_fields`` reads as these values."""
    return PluginFieldCollection([_write(rule, values[rule.name]) for rule in rules])


def _write(rule: FieldRule, value: Any) -> PluginField:
    if rule.type is PluginFieldType.CHAR:
        return PluginField(rule.name, bytearray(value.encode()), rule.type)
    return PluginField(rule.name, np.atleast_1d(np.array(value, _NUMPY[rule.type])), rule.type)


def describe_values(rules: Iterable[FieldRule], values: Mapping[str, Any]) -> str:
    """The values in one line, as the inspector shows them.

    >>> describe_values([FieldRule(name="axis")], {"axis": -1})
    'axis=-1'
    """
    return " ".join(f"{rule.name}={_shorten(values[rule.name])}" for rule in rules)


def _shorten(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{len(value)} values]" if len(value) > 4 else str(list(value)).replace(" ", "")
    return f"{value:.9g}" if isinstance(value, float) else str(value)
