"""Values that are no arrays of numbers, as callers pass and get them: lists of arrays, None, and arrays of ``str``.

They are host objects. What goes in is checked against the type that the plan gives the input; what comes out is the
caller's own, with no array in it that anything else holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import InputError, InternalError, UsageError
from dovetail.plan.manifest import TensorRecord
from dovetail.plan.value_types import ValueType, parse_value_type
from dovetail.runtime.arrays import as_input
from dovetail.runtime.steps import Array

__all__ = ["as_object", "give_object", "refuse_address", "shape_of"]


def as_object(value: Any, tensor: TensorRecord) -> Any:
    """What steps get for an input that is an object.

    Raises:
        InputError: The value is not of the input's type.
    """
    kind = parse_value_type(tensor.type)
    if value is None and kind.is_optional:
        return None
    if not kind.is_sequence:
        return _as_array(value, kind, tensor, f"input '{tensor.name}'")
    if not isinstance(value, list | tuple):
        raise InputError(
            "not a sequence",
            where=f"input '{tensor.name}'",
            expected=f"a list of arrays, for {tensor.type}",
            got=type(value).__name__,
        )
    return [_as_array(item, kind, tensor, f"input '{tensor.name}', item {i}") for i, item in enumerate(value)]


def _as_array(value: Any, kind: ValueType, tensor: TensorRecord, where: str) -> Array:
    if value is None:
        raise InputError("nothing was given", where=where, expected=tensor.type, got="None")
    if kind.dtype == "object":
        return _as_strings(value, where)
    try:
        return as_input(value, tensor, np.dtype(kind.dtype))
    except InputError as error:
        raise InputError(error.what, where=where, expected=error.expected, got=error.got, fix=error.fix) from None


def _as_strings(value: Any, where: str) -> Array:
    try:
        array = np.asarray(value, dtype=None if isinstance(value, np.ndarray) else object)
    except ValueError as error:
        raise InputError(f"these strings make no array: {error}", where=where) from None
    if array.dtype.kind in "UT":
        array = array.astype(object)
    if array.dtype != np.object_:
        raise InputError("wrong type", where=where, expected="strings", got=array.dtype.name)
    for item in array.reshape(-1):
        if type(item) is not str:
            fix = "decode it first: text.decode()" if isinstance(item, bytes) else None
            raise InputError("not a string", where=where, expected="str", got=type(item).__name__, fix=fix)
    return array


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of an input; None for what has none."""
    return value.shape if isinstance(value, np.ndarray) else None


def give_object(value: Any, tensor: TensorRecord) -> Any:
    """An output that is an object, as the caller's own."""
    kind = parse_value_type(tensor.type)
    if value is None and kind.is_optional:
        return None
    if kind.is_sequence and isinstance(value, list):
        return [_give_array(item, kind, tensor) for item in value]
    return _give_array(value, kind, tensor)


def _give_array(value: Any, kind: ValueType, tensor: TensorRecord) -> Array:
    if not isinstance(value, np.ndarray) or value.dtype != np.dtype(kind.dtype):
        raise InternalError(
            "a step gave another type than the plan says",
            where=f"output '{tensor.name}'",
            expected=tensor.type,
            got=getattr(value, "dtype", type(value).__name__),
        )
    return value.copy()


def refuse_address(tensor: TensorRecord) -> None:
    """Raise for a tensor that is an object: there is no memory to bind to it.

    Raises:
        UsageError: The tensor is a sequence, an optional or a tensor of strings.
    """
    if tensor.type:
        raise UsageError(
            f"it is {tensor.type}, which has no address",
            where=f"tensor '{tensor.name}'",
            fix="pass it to engine(...) or context.run(...), as a list of arrays, None or an array of str",
        )
