"""Fields of a declared type from numbers, text and tensors, with the same value or an error.

The type that a creator declares in ``field_names`` decides, never the value. Integers are exact. Real numbers are
rounded to the nearest value of a narrower floating-point type; overflow and underflow to zero are errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from dovetail.errors import UsageError
from dovetail.plugin.fields import PluginField, PluginFieldType, element_type
from dovetail.plugin.native.layout import MAX_DIMS, NativeDims

__all__ = ["field_from_value", "make_field", "make_text_field"]

_MAX_SHOWN: Final = 60
_PLAIN_TYPES: Final = {
    "b": PluginFieldType.INT8,
    "i": PluginFieldType.INT32,
    "u": PluginFieldType.INT32,
    "O": PluginFieldType.INT32,
}
"""Field types of plain Python numbers by the kind of their array; real numbers are FLOAT32."""
_UNNAMED_FLOATS: Final = ("bfloat16", "float8", "float6", "float4")
"""Prefixes of the types of ml_dtypes that are real numbers; NumPy knows no kind for them."""

Array = npt.NDArray[Any]


def make_field(name: str, value: Any, field_type: PluginFieldType) -> PluginField:
    """Make a field of a declared type, in memory of its own.

    Args:
        name: The name of the field.
        value: A number, a sequence or array of numbers, text, or a sequence of texts.
        field_type: The type that the creator declares. DIMS makes one shape of a vector of integers; CHAR holds texts,
            each with a final NUL, or bytes.

    Raises:
        UsageError: The value is of another kind, or the type cannot hold it.
    """
    texts = _find_texts(value)
    if field_type is PluginFieldType.CHAR:
        if texts is not None or (isinstance(value, Sequence) and not value):
            return make_text_field(name, texts or ())
        return PluginField(name, bytearray(_read_characters(name, value)), field_type)
    if texts is not None:
        raise _refuse(name, value, field_type, "the type holds numbers")
    dtype = element_type(field_type)
    if isinstance(value, np.ndarray) and value.dtype == dtype and field_type is not PluginFieldType.UNKNOWN:
        return PluginField(name, value.reshape(-1).copy(), field_type)
    numbers = _read_numbers(name, value, field_type)
    if field_type is PluginFieldType.DIMS:
        return PluginField(name, _pack_shape(name, numbers), field_type)
    if dtype is None or field_type is PluginFieldType.UNKNOWN:
        raise _refuse(name, value, field_type, "the type holds bytes")
    return PluginField(name, _convert(name, numbers, dtype, field_type), field_type)


def field_from_value(name: str, value: Any) -> PluginField:
    """Make a field of no declared type from a plain Python value, for command lines and tests.

    The kind of the value decides: INT32 for integers, FLOAT32 for real numbers, INT8 for truth values, CHAR for text,
    UNKNOWN for bytes, and the element type for arrays.

    >>> field_from_value("alpha", 0.5).type.name, field_from_value("axes", [1, 2]).type.name
    ('FLOAT32', 'INT32')

    Raises:
        UsageError: The type cannot hold the value, or there is none for it.
    """
    if isinstance(value, str):
        return PluginField(name, value.encode(), PluginFieldType.CHAR)
    if isinstance(value, bytes | bytearray):
        return PluginField(name, value, PluginFieldType.UNKNOWN)
    kind = np.asarray(value).dtype
    if isinstance(value, np.ndarray | np.generic) and kind != np.bool_:
        return make_field(name, value, _type_of_elements(name, kind))
    return make_field(name, value, _PLAIN_TYPES.get(kind.kind, PluginFieldType.FLOAT32))


def _type_of_elements(name: str, dtype: np.dtype[Any]) -> PluginFieldType:
    for field_type in PluginFieldType:
        if element_type(field_type) == dtype:
            return field_type
    raise UsageError(f"field '{name}' has no field type for {dtype.name}", fix="pass float, int, str, bytes or arrays")


def make_text_field(name: str, texts: Iterable[str | bytes]) -> PluginField:
    r"""Make a CHAR field of texts, each with a final NUL.

    >>> bytes(make_text_field("modes", ["a", "bc"]).data)
    b'a\x00bc\x00'
    """
    raw = b"".join((text.encode() if isinstance(text, str) else bytes(text)) + b"\0" for text in texts)
    return PluginField(name, bytearray(raw), PluginFieldType.CHAR)


def _find_texts(value: Any) -> list[str | bytes] | None:
    """The texts of a value; None where it holds something else."""
    if isinstance(value, str | bytes | bytearray):
        return [bytes(value) if isinstance(value, bytearray) else value]
    if isinstance(value, np.ndarray):
        value = value.reshape(-1).tolist() if value.dtype.kind in "OSU" else ()
    if isinstance(value, Sequence) and value and all(isinstance(item, str | bytes) for item in value):
        return list(value)
    return None


def _read_characters(name: str, value: Any) -> bytes:
    """Bytes of an INT8 or UINT8 array."""
    if isinstance(value, np.ndarray) and value.dtype in (np.int8, np.uint8):
        return value.tobytes()
    raise _refuse(name, value, PluginFieldType.CHAR, "the type holds text")


def _read_numbers(name: str, value: Any, field_type: PluginFieldType) -> Array:
    """The numbers of a value as a vector of truth values, integers or real numbers."""
    try:
        array = np.atleast_1d(np.asarray(value)).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        raise _refuse(name, value, field_type, "the type holds numbers") from None
    if array.dtype.kind == "O" and all(type(item) is int for item in array):
        return array  # beyond 64 bits
    if array.dtype.kind in "biu":
        return array
    if array.dtype.kind == "f" or array.dtype.name.startswith(_UNNAMED_FLOATS):
        return array.astype(np.float64)
    if array.dtype.name in ("int4", "uint4", "int2", "uint2"):
        return array.astype(np.int64)
    raise _refuse(name, value, field_type, "the type holds numbers")


def _convert(name: str, numbers: Array, dtype: np.dtype[Any], field_type: PluginFieldType) -> Array:
    is_real = not _is_integer(dtype)
    with np.errstate(all="ignore"):
        if numbers.dtype.kind == "f":
            fits = _fit_rounded(numbers, dtype) if is_real else _fit_integers(numbers, dtype)
        else:
            fits = _fit_exactly(numbers, dtype) if is_real else _fit_range(numbers, dtype)
        if not fits.all():
            lost = numbers[~fits][0]
            why = _explain_loss(lost, numbers, dtype)
            raise _refuse(name, lost.item() if isinstance(lost, np.generic) else lost, field_type, why)
        if not is_real and numbers.dtype.kind in "fO":
            return np.array([int(number) for number in numbers], dtype)
        return numbers.astype(dtype)


def _explain_loss(lost: Any, numbers: Array, dtype: np.dtype[Any]) -> str:
    """Return why a type cannot hold a number."""
    if _is_integer(dtype):
        return "the type holds integers" if numbers.dtype.kind == "f" and lost % 1 else "it does not fit"
    if numbers.dtype.kind != "f":
        return "the type does not hold the integer exactly"
    return "it would become 0" if float(np.asarray(lost, np.float64).astype(dtype)) == 0 else "it does not fit"


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" or dtype == np.dtype(ml_dtypes.int4)


def _fit_range(numbers: Array, dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Which integers are within the range of an integer type."""
    low, high = _range_of(dtype)
    if numbers.dtype.kind != "O":
        within = np.iinfo(np.uint8 if numbers.dtype.kind == "b" else numbers.dtype)
        low, high = max(low, int(within.min)), min(high, int(within.max))
    return np.asarray((numbers >= low) & (numbers <= high), np.bool_)


def _range_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def _fit_integers(numbers: Array, dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Which real numbers are integers within the range of a type."""
    low, high = _range_of(dtype)
    return np.asarray((np.floor(numbers) == numbers) & (numbers >= low) & (numbers < float(high + 1)), np.bool_)


def _fit_exactly(numbers: Array, dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Which integers a real type holds exactly."""
    wide = np.array([_to_float(int(number)) for number in numbers], np.float64)
    back = wide.astype(dtype).astype(np.float64)
    pairs = zip(numbers, back, strict=True)
    return np.array([math.isfinite(real) and int(real) == int(number) for number, real in pairs], bool)


def _to_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _fit_rounded(numbers: Array, dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Which real numbers round to the nearest value of a real type, without overflow and underflow to zero."""
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    largest, back = float(info.max), numbers.astype(dtype).astype(np.float64)
    overflow = largest + 2.0 ** (math.frexp(largest)[1] - 2) * float(info.eps)  # half of the last place beyond it
    near = (np.abs(numbers) < overflow) & ((back != 0) | (numbers == 0)) & np.isfinite(back)
    return np.asarray((back == numbers) | near | (np.isnan(numbers) & np.isnan(back)), np.bool_)


def _pack_shape(name: str, numbers: Array) -> Array:
    """One shape in the layout of DIMS."""
    sizes = _convert(name, numbers, np.dtype(np.int64), PluginFieldType.DIMS)
    if sizes.size > MAX_DIMS:
        raise _refuse(name, sizes.tolist(), PluginFieldType.DIMS, f"a shape has at most {MAX_DIMS} dimensions")
    shape = np.zeros(1, np.dtype(NativeDims))
    shape["rank"], shape["sizes"][0, : sizes.size] = sizes.size, sizes
    return np.frombuffer(bytearray(shape.tobytes()), np.int8)


def _refuse(name: str, value: Any, field_type: PluginFieldType, why: str) -> UsageError:
    text = repr(value)
    return UsageError(
        f"field {name[:_MAX_SHOWN]!r} of type {field_type.name} cannot hold {text[:_MAX_SHOWN]}: {why}",
        expected=_describe_type(field_type),
        got=text[:_MAX_SHOWN],
        fix="pass a value of the declared type, or declare another type in field_names",
    )


def _describe_type(field_type: PluginFieldType) -> str:
    dtype = element_type(field_type)
    if field_type is PluginFieldType.CHAR:
        return "text"
    if field_type is PluginFieldType.DIMS:
        return f"at most {MAX_DIMS} integers"
    if dtype is None or field_type is PluginFieldType.UNKNOWN:
        return "bytes"
    if _is_integer(dtype):
        low, high = _range_of(dtype)
        return f"integers from {low} to {high}"
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return f"numbers up to {float(info.max):g}"
