"""Attributes of kernels in a manifest: plain JSON values, with the floats JSON lacks as strings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from dovetail.errors import PlanCorruptError
from dovetail.plan._header import show
from dovetail.plan.manifest import AttributeRecord

__all__ = ["decode_attributes", "encode_attribute"]


def encode_attribute(name: str, value: Any) -> AttributeRecord:
    """A record for an int, float, string or a list of one of them.

    >>> encode_attribute("alpha", float("inf")).value
    'inf'
    """
    if isinstance(value, list | tuple):
        kinds = {type(item) for item in value} or {int}
        kind = {int: "ints", float: "floats", str: "strings"}[kinds.pop()]
        return AttributeRecord(name=name, type=kind, value=[_encode_scalar(item) for item in value])
    kind = {int: "int", bool: "int", float: "float", str: "string"}[type(value)]
    return AttributeRecord(name=name, type=kind, value=_encode_scalar(value))


def _encode_scalar(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return int(value) if isinstance(value, bool) else value


def decode_attributes(records: list[AttributeRecord], tensors: Callable[[str], Any]) -> Mapping[str, Any]:
    """Keyword arguments for a kernel; ``tensors`` gives the array of a blob.

    Raises:
        PlanCorruptError: A value is not of the type that its record says, or a name comes twice.
    """
    attributes = {record.name: _decode(record, tensors) for record in records}
    if len(attributes) != len(records):
        raise PlanCorruptError("an attribute is given twice", got=show([record.name for record in records]))
    return attributes


def _decode(record: AttributeRecord, tensors: Callable[[str], Any]) -> Any:
    kind, value = record.type, record.value
    if kind == "tensor" and isinstance(value, str):
        return tensors(value)
    if kind in _SCALARS and _SCALARS[kind](value):
        return float(value) if kind == "float" else value
    if kind in _LISTS and isinstance(value, list) and all(map(_SCALARS[_LISTS[kind]], value)):
        return [float(item) for item in value] if kind == "floats" else list(value)
    raise PlanCorruptError(f"attribute {show(record.name)} is not of the type {show(kind)}", got=_shown(value))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or _is_int(value) or (isinstance(value, str) and value in ("inf", "-inf", "nan"))


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


_SCALARS: Final[Mapping[str, Callable[[Any], bool]]] = {"int": _is_int, "float": _is_float, "string": _is_string}
_LISTS: Final = {"ints": "int", "floats": "float", "strings": "string"}


def _shown(value: Any) -> str:
    """A value for a message; what is nested may be nested too deep to be shown."""
    return type(value).__name__ if isinstance(value, list | dict) else show(value)
