"""The fields that a creator is given: values from the user or the command line, read as the types it declares."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from dovetail.errors import UsageError
from dovetail.near_names import suggest
from dovetail.plugin.check.host.calls import read_or
from dovetail.plugin.field_values import field_from_value, make_field
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType

__all__ = [
    "copy_fields",
    "declared_fields",
    "find_misread",
    "guess_fields",
    "make_fields",
    "overwrite_fields",
    "vary_field",
]

_GUESSED_COUNTS: Final = (1, 2, 4)
_GUESSED_VALUES: Final = (1, 2, 32)
_TEXT_TYPES: Final = (PluginFieldType.CHAR, PluginFieldType.UNKNOWN, PluginFieldType.DIMS)


def declared_fields(creator: Any) -> dict[str, PluginFieldType]:
    """The fields a creator declares; empty where the declaration is unusable, which a rule of its own reports."""
    names = read_or(creator, "field_names", None)
    items: list[Any] = list(names) if isinstance(names, list | tuple) else []
    return {item.name: item.type for item in items if isinstance(item, PluginField) and isinstance(item.name, str)}


def make_fields(declared: Mapping[str, PluginFieldType], values: Mapping[str, Any]) -> PluginFieldCollection:
    """A collection over memory of its own.

    Raises:
        UsageError: A name is not declared, or a value cannot be read as the declared type.
    """
    return PluginFieldCollection(_make_field(declared, name, value) for name, value in values.items())


def _make_field(declared: Mapping[str, PluginFieldType], name: str, value: Any) -> PluginField:
    if declared and name not in declared:
        raise UsageError(
            f"the creator has no field '{name}'",
            expected=", ".join(sorted(declared)),
            fix=suggest(name, declared) or "use one of the declared names",
        )
    if isinstance(value, PluginField):
        return _copy_field(value)
    field_type = declared.get(name)
    is_open = field_type is PluginFieldType.UNKNOWN and not isinstance(value, bytes | bytearray)
    if field_type is None or is_open:  # many creators in C++ declare names only
        return _copy_field(field_from_value(name, _read_text(value)))
    if field_type is PluginFieldType.CHAR or field_type is PluginFieldType.UNKNOWN:
        raw = value if isinstance(value, bytes | bytearray) else str(value).encode()
        return PluginField(name, bytearray(raw), field_type)
    try:
        return make_field(name, _split_numbers(value) if isinstance(value, str) else value, field_type)
    except ValueError:
        raise UsageError(
            f"field '{name}' cannot be read", expected=f"{field_type.name} numbers, such as 3 or 1,2", got=repr(value)
        ) from None


def _split_numbers(text: str) -> list[int] | list[float]:
    parts = re.split(r"[,x\s]+", text.strip("[]() "))
    try:
        return [int(part) for part in parts]
    except ValueError:
        return [float(part) for part in parts]


def _read_text(value: Any) -> Any:
    """What a text from a command line most likely means: an integer, a number, a list of them, or itself."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            numbers = [kind(part) for part in value.strip("[]()").split(",")]
        except ValueError:
            continue
        return numbers[0] if len(numbers) == 1 else numbers
    return value


def guess_fields(missing: Mapping[str, PluginFieldType]) -> Iterator[PluginFieldCollection]:
    """Values for fields that the creator cannot do without: small numbers, one or a few of them, and empty texts."""
    for count in _GUESSED_COUNTS:
        for value in _GUESSED_VALUES:
            yield PluginFieldCollection(_guess_field(name, kind, count, value) for name, kind in missing.items())


def vary_field(name: str, field_type: PluginFieldType, known: np.ndarray[Any, Any] | None) -> Iterator[PluginField]:
    """The field with other values than it has by default; ``known`` is the default, where the plugin tells it."""
    if field_type in _TEXT_TYPES:
        return
    dtype = _numpy_type(field_type)
    is_integer = dtype.kind in "iu"
    if known is None:
        variations = [np.full(1, value) for value in ((2, 3, 1, 4) if is_integer else (0.625, 2.0))]
    elif is_integer:
        variations = [known + 1, known - 1, known * 2]
    else:
        variations = [known.astype(np.float64) * 1.25 + 0.375]
    yield from (PluginField(name, values.astype(dtype), field_type) for values in variations)


def _guess_field(name: str, field_type: PluginFieldType, count: int, value: int) -> PluginField:
    if field_type in _TEXT_TYPES:
        return PluginField(name, bytearray(1), field_type)
    return PluginField(name, np.full(count, value).astype(_numpy_type(field_type)), field_type)


def _numpy_type(field_type: PluginFieldType) -> np.dtype[Any]:
    empty = PluginField("", np.empty(0, np.int8), field_type).data
    return np.dtype(np.int8) if empty is None else empty.dtype


def copy_fields(fields: PluginFieldCollection) -> PluginFieldCollection:
    """The same fields over new memory."""
    return PluginFieldCollection(_copy_field(field) for field in fields)


def _copy_field(field: PluginField) -> PluginField:
    return PluginField(field.name, None if field.buffer is None else field.buffer.copy(), field.type)


def find_misread(field: PluginField) -> str | None:
    """How the numbers of a field change when its bytes are read as the declared type, in words.

    One small int64 declared INT32 is read as the number it is, and existing plugins rely on that.
    """
    given, read = field.buffer, None if field.type is PluginFieldType.DIMS else field.data
    if given is None or read is None or read.dtype == given.dtype or min(read.itemsize, given.itemsize) == 1:
        return None
    numbers = given.reshape(-1)
    if np.array_equal(read, numbers):
        return None
    held = f"{given.dtype.name} {_show_numbers(numbers)}"
    return f"'{field.name}' holds {held} and is declared {field.type.name}: it is read back as {_show_numbers(read)}"


def _show_numbers(values: np.ndarray[Any, Any]) -> str:
    text = ", ".join(f"{value:g}" for value in values[:4].astype(np.float64))
    return f"[{text}{', ...' if values.size > 4 else ''}]"


def overwrite_fields(fields: PluginFieldCollection) -> None:
    """Turn every bit of the fields' memory, as a host that reuses it would."""
    for field in fields:
        if field.buffer is not None and field.buffer.size:
            raw = field.buffer.reshape(-1).view(np.uint8)
            np.invert(raw, out=raw)
