"""Values that are no arrays of numbers, as callers pass and get them: lists, None, dicts, and arrays of ``str``.

They are host objects. What goes in is checked against the type that the plan gives the input; what comes out is the
caller's own, with no array or dict in it that anything else holds. A dict leads from int or str to plain int, float or
str.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from dovetail.errors import InputError, PlanError, UsageError
from dovetail.plan.manifest import TensorRecord
from dovetail.plan.value_types import ValueType, parse_value_type
from dovetail.provider.devices import DeviceArray
from dovetail.provider.schemas.typed_maps import TypedMap
from dovetail.runtime.bind.arrays import as_input
from dovetail.runtime.steps.base import Array

__all__ = ["as_object", "give_object", "refuse_address", "shape_of"]


def as_object(value: Any, tensor: TensorRecord) -> Any:
    """What steps get for an input that is an object.

    Raises:
        InputError: The value is not of the input's type.
    """
    kind = parse_value_type(tensor.type)
    if value is None and kind.is_optional:
        return None
    convert = _as_map if kind.key else _as_array
    if not kind.is_sequence:
        return convert(value, kind, tensor, f"input '{tensor.name}'")
    if not isinstance(value, list | tuple):
        raise InputError(
            "not a sequence",
            where=f"input '{tensor.name}'",
            expected=f"a list of {'dicts' if kind.key else 'arrays'}, for {tensor.type}",
            got=type(value).__name__,
        )
    return [convert(item, kind, tensor, f"input '{tensor.name}', item {i}") for i, item in enumerate(value)]


def _as_array(value: Any, kind: ValueType, tensor: TensorRecord, where: str) -> Array:
    if value is None:
        raise InputError("nothing was given", where=where, expected=tensor.type, got="None")
    if kind.dtype == "object":
        return _as_strings(value, where)
    try:
        return as_input(value, tensor, np.dtype(kind.dtype))
    except InputError as error:
        raise InputError(error.what, where=where, expected=error.expected, got=error.got, fix=error.fix) from None


def _as_map(value: Any, kind: ValueType, tensor: TensorRecord, where: str) -> TypedMap:
    if not isinstance(value, Mapping):
        raise InputError("not a map", where=where, expected=f"a dict, for {tensor.type}", got=type(value).__name__)
    take_key, take_element = _TAKE[kind.key], _TAKE[kind.dtype]
    entries = {}
    for key, element in value.items():
        entries[take_key(key, f"{where}, key {_show(key)}")] = take_element(element, f"{where}[{_show(key)}]")
    return TypedMap(entries, np.dtype(kind.dtype))


def _show(key: Any) -> str:
    return repr(key)[:60]


def _take_string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InputError("not a string", where=where, expected="str", got=type(value).__name__)
    return str(value)


def _take_integer(value: Any, where: str) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise InputError("not an integer", where=where, expected="int", got=type(value).__name__)
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise InputError("an integer is out of range", where=where, expected="64 bits", got=number)
    return number


def _take_double(value: Any, where: str) -> float:
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise InputError("not a number", where=where, expected="float", got=type(value).__name__)
    try:
        return float(value)
    except OverflowError:
        raise InputError("a number is out of range", where=where, expected="float") from None


def _take_float(value: Any, where: str) -> float:
    with np.errstate(over="ignore"):  # what is too large for single precision becomes infinite, as in arrays
        return float(np.float32(_take_double(value, where)))


_TAKE: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "object": _take_string,
    "int64": _take_integer,
    "float64": _take_double,
    "float32": _take_float,
}
"""How keys and elements of maps are checked, by type."""


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
    return tuple(value.shape) if isinstance(value, np.ndarray | DeviceArray) else None


def give_object(value: Any, tensor: TensorRecord) -> Any:
    """An output that is an object, as the caller's own."""
    kind = parse_value_type(tensor.type)
    if value is None and kind.is_optional:
        return None
    give = _give_map if kind.key else _give_array
    if kind.is_sequence and isinstance(value, list):
        return [give(item, kind, tensor) for item in value]
    return give(value, kind, tensor)


def _give_array(value: Any, kind: ValueType, tensor: TensorRecord) -> Array:
    if not isinstance(value, np.ndarray) or value.dtype != np.dtype(kind.dtype):
        raise _mismatch(getattr(value, "dtype", type(value).__name__), tensor)
    return value.copy()


def _give_map(value: Any, kind: ValueType, tensor: TensorRecord) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _mismatch(type(value).__name__, tensor)
    types = {*map(type, value)}, {*map(type, value.values())}
    if not (types[0] <= {_PLAIN[kind.key]} and types[1] <= {_PLAIN[kind.dtype]}):
        raise _mismatch(f"a map of {sorted(kind.__name__ for kind in types[0] | types[1])}", tensor)
    return dict(value)


_PLAIN: Final[Mapping[str, type]] = {"object": str, "int64": int, "float64": float, "float32": float}
"""What the keys and elements of maps are outside, by type."""


def _mismatch(got: object, tensor: TensorRecord) -> PlanError:
    return PlanError(
        "a step gave another type than the plan says", where=f"output '{tensor.name}'", expected=tensor.type, got=got
    )


def refuse_address(tensor: TensorRecord) -> None:
    """Raise for a tensor that is an object: there is no memory to bind to it.

    Raises:
        UsageError: The tensor is a sequence, an optional, a map or a tensor of strings.
    """
    if tensor.type:
        raise UsageError(
            f"it is {tensor.type}, which has no address",
            where=f"tensor '{tensor.name}'",
            fix="pass it to engine(...) or context.run(...), as a list, None, a dict or an array of str",
        )
