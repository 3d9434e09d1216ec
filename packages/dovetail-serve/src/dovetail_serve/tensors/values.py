"""Tensors as values of JSON: numbers, booleans and strings, flat or nested as the shape is.

NaN and the infinities are written as JavaScript writes them, as other servers and clients of the protocol do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail_serve.errors import RequestError
from dovetail_serve.tensors.datatypes import BYTES, Datatype
from dovetail_serve.tensors.raw import array_from_strings
from dovetail_serve.tensors.strings import bytes_from_string

__all__ = ["array_from_json", "array_from_values", "is_finite", "values_from_array"]

Array = npt.NDArray[Any]

_ELEMENTS: Final[dict[str, Any]] = {"f": list[float], "V": list[float], "i": list[int], "u": list[int]}
"""What a list holds, by the kind of the array type; ml_dtypes has its types under V."""
_DECODERS: Final = {kind: msgspec.json.Decoder(type_) for kind, type_ in _ELEMENTS.items()}
_BOOLEANS: Final = msgspec.json.Decoder(list[bool | int])
_STRINGS: Final = msgspec.json.Decoder(list[str])
_ANYTHING: Final = msgspec.json.Decoder()


def array_from_json(raw: bytes | memoryview, shape: Sequence[int], count: int, datatype: Datatype, where: str) -> Array:
    """An array from the text of the values, ``count`` of them.

    >>> from dovetail_serve.tensors.datatypes import DATATYPES
    >>> array_from_json(b"[[1, 2], [3, 4]]", (2, 2), 4, DATATYPES["INT8"], "input 'x'").tolist()
    [[1, 2], [3, 4]]
    """
    text = bytes(raw)
    # Lists that are not empty have one comma less than values, nested or not: what is far too long is never decoded.
    if datatype is not BYTES and count and text.count(b",") + 1 != count:
        raise _wrong_count(text.count(b",") + 1, count, shape, where)
    try:
        if _is_nested(text):
            return array_from_values(_ANYTHING.decode(text), shape, count, datatype, where)
        return _array_from_list(_decoder_of(datatype).decode(text), shape, count, datatype, where)
    except (msgspec.DecodeError, RecursionError):
        raise _wrong_values(datatype, where) from None


def _is_nested(text: bytes) -> bool:
    """Whether a list opens before the first string does."""
    return text.find(b"[", 1, text.find(b'"') if b'"' in text else len(text)) >= 0


def array_from_values(values: object, shape: Sequence[int], count: int, datatype: Datatype, where: str) -> Array:
    """An array from decoded values: a flat list, or one nested as the shape is."""
    is_nested = isinstance(values, list) and any(isinstance(each, list) for each in values)
    flat = _flatten(values, shape, where) if is_nested else values
    try:
        return _array_from_list(msgspec.convert(flat, _type_of(datatype)), shape, count, datatype, where)
    except msgspec.ValidationError:
        raise _wrong_values(datatype, where) from None


def _decoder_of(datatype: Datatype) -> Any:
    if datatype is BYTES:
        return _STRINGS
    return _BOOLEANS if datatype.name == "BOOL" else _DECODERS[datatype.dtype.kind]


def _type_of(datatype: Datatype) -> Any:
    return _decoder_of(datatype).type


def _flatten(values: object, shape: Sequence[int], where: str) -> list[Any]:
    level: list[Any] = [values]
    for size in shape:
        if not all(isinstance(each, list) and len(each) == size for each in level):
            raise RequestError(
                "the nested lists do not have the shape of the tensor", where=where, expected=list(shape)
            )
        level = list(chain.from_iterable(level))
    return level


def _array_from_list(values: list[Any], shape: Sequence[int], count: int, datatype: Datatype, where: str) -> Array:
    if len(values) != count:
        raise _wrong_count(len(values), count, shape, where)
    if datatype is BYTES:
        return array_from_strings([each.encode("utf-8", "surrogatepass") for each in values], shape)
    if datatype.name == "BOOL" and not all(each in (0, 1) for each in values):
        raise _wrong_values(datatype, where)
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, datatype.dtype)
    except OverflowError:
        raise _too_large(datatype, where) from None
    if not is_finite(array) and np.any(np.isfinite(np.array(values, np.float64)) & ~np.isfinite(array)):
        raise _too_large(datatype, where)
    return array.reshape(shape)


def _too_large(datatype: Datatype, where: str) -> RequestError:
    return RequestError("a value does not fit the datatype", where=where, expected=datatype.name)


def _wrong_count(got: int, count: int, shape: Sequence[int], where: str) -> RequestError:
    what = "the tensor has another number of values than its shape needs"
    return RequestError(what, where=where, expected=f"{count} for {list(shape)}", got=got)


def _wrong_values(datatype: Datatype, where: str) -> RequestError:
    named = {"BOOL": "true or false", "BYTES": "strings"}.get(datatype.name)
    named = named or ("numbers" if datatype.dtype.kind in "fV" else "whole numbers")
    what = f"the values do not fit {datatype.name}"
    return RequestError(what, where=where, expected=f"a list of {named}, flat or nested as the shape is")


def values_from_array(array: Array, where: str) -> list[Any]:
    """The values of a tensor, flat, in row-major order.

    >>> values_from_array(np.array([[0.5, 2]], np.float16), "output 'y'")
    [0.5, 2.0]
    """
    if array.dtype == object:
        return [_text_of(each, where) for each in array.ravel().tolist()]
    if array.dtype.kind == "V":
        array = array.astype(np.float32)
    values: list[Any] = array.ravel().tolist()
    return values


def _text_of(string: bytes | str, where: str) -> str:
    try:
        return bytes_from_string(string).decode()
    except UnicodeDecodeError:
        raise RequestError(
            "a string of the tensor is no text in UTF-8, which JSON needs", where=where, fix="ask for binary data"
        ) from None


def is_finite(array: Array) -> bool:
    """Whether no element is NaN or infinite, which strict JSON cannot write."""
    return array.dtype.kind not in "fV" or bool(np.isfinite(array).all())
