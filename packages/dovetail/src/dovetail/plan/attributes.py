"""Attributes of kernels in a manifest: plain JSON values, with the floats JSON lacks as strings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.errors import PlanCorruptError
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


_SCALARS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "string": str}


def decode_attributes(records: list[AttributeRecord], tensors: Callable[[str], Any]) -> Mapping[str, Any]:
    """Keyword arguments for a kernel; ``tensors`` gives the array of a blob."""
    return {record.name: _decode(record, tensors) for record in records}


def _decode(record: AttributeRecord, tensors: Callable[[str], Any]) -> Any:
    try:
        if record.type == "tensor":
            return tensors(record.value)
        if record.type in _SCALARS:
            return _SCALARS[record.type](record.value)
        return [_SCALARS[record.type[:-1]](item) for item in record.value]
    except (KeyError, TypeError, ValueError) as error:
        raise PlanCorruptError(
            f"attribute '{record.name}' of type '{record.type}' is malformed", got=repr(record.value)[:60]
        ) from error
