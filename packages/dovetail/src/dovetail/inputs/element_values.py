"""Values as people and JSON write them, converted to the type of an input: exactly, or refused.

A list is an array of its nesting, ``"nan"``, ``"inf"`` and ``"-inf"`` are numbers for floats, and a text is an element
of an input of strings. A sequence is a list of such values, a map an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError
from dovetail.inputs.specs import InputSpec

__all__ = ["convert_value", "is_integer_type"]

Array = npt.NDArray[Any]

_SPECIAL: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_KINDS: Final = {"b": "true or false", "i": "whole numbers", "u": "whole numbers", "O": "texts"}


def convert_value(value: Any, spec: InputSpec, *, where: str | None = None) -> Any:
    """The value of an input from plain data: an array, a list of arrays for a sequence, a dict for a map.

    >>> convert_value([[1, 2]], InputSpec(name="x", dtype="float16", dims=None))
    array([[1., 2.]], dtype=float16)

    Args:
        value: What JSON has.
        spec: The input.
        where: The place for messages; the input by default.

    Raises:
        InputError: It does not fit the type of the input.
    """
    where = where or spec.where
    if "seq(" in spec.type:
        if not isinstance(value, list):
            raise _misfit("a sequence is a list", "[...]", value, where)
        return [_convert_item(item, spec, f"{where}[{index}]") for index, item in enumerate(value)]
    return _convert_item(value, spec, where)


def _convert_item(value: Any, spec: InputSpec, where: str) -> Any:
    return _convert_map(value, spec, where) if "map(" in spec.type else _convert_array(value, spec, where)


def _convert_map(value: Any, spec: InputSpec, where: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise _misfit("a map is an object", '{"key": value}', value, where)
    entries = _convert_array(list(value.values()), spec, where).tolist()
    has_texts = "map(string" in spec.type
    try:
        keys = [str(key) if has_texts else int(key) for key in value]
    except ValueError:
        raise InputError("a key of the map is no whole number", where=where, expected=spec.type) from None
    return dict(zip(keys, entries, strict=True))


def _convert_array(value: Any, spec: InputSpec, where: str) -> Array:
    leaves: list[Any] = []
    shape = _find_shape(value, where, leaves)
    dtype = np.dtype(spec.dtype)
    elements = [_convert_element(leaf, dtype, where) for leaf in leaves]
    if dtype.kind in "OiubB":
        return np.array(elements, dtype).reshape(shape)
    exact = np.array(elements, np.complex128 if dtype.kind == "c" else np.float64)
    with np.errstate(over="ignore"):
        array = exact.astype(dtype)
    _require_no_overflow(exact, array, where)
    return array.reshape(shape)


def _find_shape(value: Any, where: str, leaves: list[Any]) -> tuple[int, ...]:
    """The shape of nested lists, whose elements are collected; lists of different lengths side by side are refused."""
    if not isinstance(value, list):
        leaves.append(value)
        return ()
    if not any(isinstance(item, list) for item in value):
        leaves.extend(value)
        return (len(value),)
    shapes = [_find_shape(item, where, leaves) for item in value]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            what = f"element {index} of a list has another shape than element 0"
            raise InputError(what, where=where, expected=_text(shapes[0]), got=_text(shape))
    return (len(value), *(shapes[0] if shapes else ()))


def _convert_element(element: Any, dtype: np.dtype[Any], where: str) -> Any:
    if dtype.kind == "O":
        if isinstance(element, str):
            return element
        raise _misfit("an element is no text", "texts in quotes", element, where)
    if dtype.kind == "b":
        if isinstance(element, bool) or element in (0, 1):
            return bool(element)
        raise _misfit("an element does not fit the type", _KINDS["b"], element, where)
    if is_integer_type(dtype):
        return _convert_integer(element, dtype, where)
    if isinstance(element, str) and element in _SPECIAL:
        return _SPECIAL[element]
    if isinstance(element, int | float) and not isinstance(element, bool):
        return _convert_float(element, dtype, where)
    raise _misfit("an element does not fit the type", f"numbers of {dtype.name}", element, where)


def is_integer_type(dtype: np.dtype[Any]) -> bool:
    """Whether elements are whole numbers, those of a few bits included."""
    return dtype.kind in "iu" or dtype.name in ("int4", "uint4", "int2", "uint2")


def _convert_integer(element: Any, dtype: np.dtype[Any], where: str) -> int:
    is_whole = isinstance(element, int) and not isinstance(element, bool)
    if isinstance(element, float) and element.is_integer():
        element, is_whole = int(element), True
    limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    if not is_whole or not limits.min <= element <= limits.max:
        expected = f"whole numbers of {dtype.name}, from {limits.min} to {limits.max}"
        raise _misfit("an element does not fit the type", expected, element, where)
    return int(element)


def _convert_float(element: float, dtype: np.dtype[Any], where: str) -> float:
    try:
        return float(element)
    except OverflowError:
        raise _misfit("an element does not fit the type", f"numbers of {dtype.name}", "a huge number", where) from None


def _require_no_overflow(exact: Array, array: Array, where: str) -> None:
    with np.errstate(invalid="ignore"):
        lost = np.isfinite(exact) & ~np.isfinite(array.astype(exact.dtype))
    if lost.any():
        first = exact[lost].reshape(-1)[0].item()
        raise _misfit("an element does not fit the type", f"numbers of {array.dtype.name}", first, where)


def _misfit(what: str, expected: str, got: Any, where: str) -> InputError:
    return InputError(what, where=where, expected=expected, got=repr(got)[:60])


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "one element"
